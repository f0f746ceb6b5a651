"""Acceptance of takes, and the choice among several rejected ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.errors import ConfigError
from marstts.generation.request import StopReason
from marstts.synthesis.backoff import BackoffConfig, RejectReason, best_of, rejection_reason
from marstts.synthesis.speech import Take
from marstts.synthesis.words.flaws import FlawKind, TakeFlaw

RATE = 16_000
TEXT = "Forty two characters, which is a sentence."
CONFIG = BackoffConfig()


def take(seconds: float, *, stop: StopReason = StopReason.EOS, amplitude: float = 0.1, top_p: float = 0.2) -> Take:
    tone = amplitude * np.sin(2 * np.pi * 220 * np.arange(round(seconds * RATE)) / RATE)
    return Take(
        text=TEXT,
        codes=(np.zeros(0, np.int64),),
        waveform=Waveform(tone.astype(np.float32), RATE),
        stop=stop,
        top_p=top_p,
    )


def test_the_top_p_schedule_rises_and_stays_at_one():
    assert CONFIG.top_p_schedule(0.2) == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert CONFIG.top_p_schedule(0.7) == [0.7, 0.9, 1.0, 1.0, 1.0]
    assert BackoffConfig(attempts=2, top_p_step=0.05).top_p_schedule(0.0) == [0.0, 0.05]


@pytest.mark.parametrize(
    ("candidate", "flaw"),
    [
        (take(3.0), None),
        (take(1.0), RejectReason.TOO_SHORT),  # the onset and 42 characters at 32 a second take 1.46 s
        (take(9.0), RejectReason.TOO_LONG),  # and at 7 a second, with 0.75 s to spare, 6.75 s
        (take(3.0, stop=StopReason.MAX_PATCHES), RejectReason.UNENDED),
        (take(3.0, amplitude=1e-3), RejectReason.SILENT),
        (take(3.0, amplitude=0.0), RejectReason.SILENT),
        (take(0.0), RejectReason.SILENT),
    ],
)
def test_flaws_are_found(candidate: Take, flaw: RejectReason | None):
    assert rejection_reason(candidate, CONFIG) is flaw


def test_the_bounds_are_those_of_the_configuration():
    assert rejection_reason(take(1.0), BackoffConfig(max_chars_per_second=60.0)) is None
    assert rejection_reason(take(9.0), BackoffConfig(slack_seconds=4.0)) is None
    assert rejection_reason(take(3.0), BackoffConfig(min_chars_per_second=30.0)) is RejectReason.TOO_LONG
    assert rejection_reason(take(3.0, amplitude=1e-3), BackoffConfig(min_loudness=-68.0)) is None


def test_the_onset_comes_on_top_of_the_letters():
    assert BackoffConfig(onset_seconds=0.5).shortest("A.") == 0.5 + 2 / 32
    assert CONFIG.shortest("Come in.") == pytest.approx(0.4)  # a misread take of 0.38 s was accepted before
    assert CONFIG.shortest(TEXT) == pytest.approx(0.15 + 42 / 32)


def test_generation_is_bounded_by_what_is_plausible():
    limits = BackoffConfig(max_length_factor=2.0).limits(TEXT, patch_rate=10.0)
    assert limits.min_patches == 15  # 0.15 + 42 / 32 = 1.4625 s
    assert limits.max_patches == 135  # 2 * (0.75 + 42 / 7) s


def test_the_best_of_flawed_takes_is_kept_with_a_warning():
    flawed = [take(0.2), take(1.2, top_p=0.4), take(0.0), take(30.0), take(3.0, amplitude=0.0)]
    kept = best_of(flawed, CONFIG)
    assert (kept.seconds, kept.top_p, kept.attempts) == (1.2, 0.4, 5)
    assert kept.warning is not None and TEXT in kept.warning and RejectReason.TOO_SHORT.value in kept.warning


def test_of_takes_with_flawed_words_one_of_plausible_length_is_kept():
    flaw = TakeFlaw(FlawKind.REPEATED, "two", 1.0)
    too_long, short = (replace(take(seconds), flaws=(flaw,)) for seconds in (9.0, 0.9))
    assert best_of([too_long, short], CONFIG).seconds == short.seconds  # 3 s are usual, which 9 s are nearer to
    assert best_of([take(9.0), short], CONFIG).seconds == 9.0


def test_silence_is_kept_rather_than_dropping_the_sentence():
    kept = best_of([take(0.0), take(0.0)], CONFIG)
    assert kept.text == TEXT and kept.attempts == 2
    assert kept.warning is not None and RejectReason.SILENT.value in kept.warning


def test_impossible_bounds_are_refused():
    with pytest.raises(ValueError):
        BackoffConfig(attempts=0)
    from marstts.io.config import parse_config

    with pytest.raises(ConfigError, match="patience"):
        parse_config(BackoffConfig, {"patience": 3}, "backoff.toml")


@pytest.mark.parametrize(
    "choices",
    [{"onset_seconds": 2.0}, {"slack_seconds": 0.0}, {"max_chars_per_second": 4.0, "min_chars_per_second": 7.0}],
)
def test_bounds_within_which_nothing_can_be_spoken_are_refused(choices: dict[str, float]):
    with pytest.raises(ValueError, match=r"the shortest take .* is longer than the longest"):
        BackoffConfig(**choices)
