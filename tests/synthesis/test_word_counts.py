"""Words that a take says too often or too rarely: their syllables are counted in its loudness."""

from __future__ import annotations

import numpy as np
import pytest
from test_attention_path import places_of, steps_at

from marstts.audio import Waveform
from marstts.synthesis.words.attention_path import search_path
from marstts.synthesis.words.flaws import FlawKind, find_flaws
from marstts.synthesis.words.word_counts import (
    MIN_DIP_DB,
    find_runs,
    num_syllables,
    prominent_peaks,
    syllable_peaks,
)

RATE, STEP_SECONDS = 24_000, 0.1


def syllables_at(*times: float, seconds: float) -> Waveform:
    """A buzz of 0.15 s from each time, with hardly any sound between them."""
    moments = np.arange(round(seconds * RATE)) / RATE
    buzz = sum(np.sin(2 * np.pi * 130 * harmonic * moments) for harmonic in range(1, 20)) / 20
    envelope = np.full(len(moments), 1e-3)
    for time in times:
        envelope += np.where((moments >= time) & (moments < time + 0.15), np.sin(np.pi * (moments - time) / 0.15), 0.0)
    return Waveform((buzz * envelope).astype(np.float32), RATE)


@pytest.mark.parametrize(
    ("sentence", "runs"),
    [
        ("No, no, no, he said.", [("No, no, no", 3, 3)]),
        ("Never never, tick, tock, tick, tock.", [("Never never", 0, 4), ("tick, tock, tick, tock", 4, 4)]),
        ("Mile after mile after mile.", [("Mile after mile after mile", 0, 7)]),
        ("He came, he came to town.", [("He came, he came", 0, 4)]),
        ("He said that he said no. 1 1 да да", []),
        ("The W W W.", [("W W W", 0, 9)]),
        ("", []),
    ],
)
def test_runs_are_words_or_pairs_of_words_that_return_at_once(sentence, runs):
    places = places_of(sentence)
    found = [
        (sentence[places.places[run.words[0]].start : places.places[run.words[-1]].end], run.fewest, run.most)
        for run in find_runs(places)
    ]
    assert found == runs


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "well knock the mile baked times rhythms mm"),
        (2, "going table prices horses wanted idle apples x-linked three-d year-round"),
        (3, "banana already resembling w"),
    ],
)
def test_syllables_are_counted_by_letters(count, words):
    assert {word: num_syllables(word) for word in words.split()} == dict.fromkeys(words.split(), count)


def test_peaks_of_loudness_are_those_of_a_signal_library():
    from scipy.signal import find_peaks  # slow to import

    rng = np.random.default_rng(0)
    for _ in range(200):
        levels = np.cumsum(rng.normal(0.0, 2.0, 80))
        padded = np.concatenate([[-1e3], levels, [-1e3]])
        assert prominent_peaks(levels.tolist()) == (find_peaks(padded, prominence=MIN_DIP_DB)[0] - 1).tolist()


@pytest.mark.parametrize("rate", [16_000, 24_000, 44_100])
def test_each_syllable_is_a_peak(rate: int):
    times = 0.2, 0.6, 0.9, 1.5
    spoken = syllables_at(*times, seconds=2.0)
    resampled = Waveform(np.interp(np.arange(2 * rate) / rate, np.arange(2 * RATE) / RATE, spoken.samples), rate)
    assert syllable_peaks(resampled) == pytest.approx(np.array(times) + 0.075, abs=0.02)


def test_silence_has_no_syllables_but_one():
    assert len(syllable_peaks(Waveform(np.zeros(RATE, np.float32), RATE))) == 1


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((0.1, 0.5, 0.9, 1.5), []),
        ((0.1, 0.4, 0.6, 0.9, 1.5), [(FlawKind.REPEATED, "No")]),
        ((0.1, 0.9, 1.5), [(FlawKind.SKIPPED, "No")]),
        ((0.1, 0.5, 0.9, 1.3, 1.5), []),  # the last two are "he went"
    ],
)
def test_a_run_that_is_said_too_often_or_too_rarely_is_a_flaw(times, expected):
    places = places_of("No, no, no, he went.")
    visited = [1, 1, 1, 2, 3, 3, 3, 4, 5, 5, 5, 6, 7, 7, 8, 8, 8, 10]
    search = search_path(places, steps_at(places, visited, sharpness=0.97))
    waveform = syllables_at(*times, seconds=1.8)
    flaws = find_flaws(search, "No, no, no, he went.", STEP_SECONDS, waveform=waveform)
    assert [(flaw.kind, flaw.word) for flaw in flaws] == expected
    assert find_flaws(search, "No, no, no, he went.", STEP_SECONDS) == ()


def test_words_of_a_run_that_share_a_breath_are_not_counted():
    places = places_of("No no no.")
    search = search_path(places, steps_at(places, [1, 1, 1, 2, 2, 2, 3, 3, 3, 5], sharpness=0.97))
    flaws = find_flaws(search, "No no no.", STEP_SECONDS, waveform=syllables_at(0.3, seconds=1.0))
    assert flaws == ()


@pytest.mark.parametrize(
    ("times", "steps", "expected"),
    [
        ((0.1, 0.4, 0.75), 7, [(FlawKind.REPEATED, "nine")]),
        ((0.1, 0.5), 7, []),
        ((0.1, 0.4, 0.75), 5, []),  # "nine" is not long, so the peak may be its neighbor's
    ],
)
def test_a_long_word_with_twice_its_syllables_is_said_twice(times, steps, expected):
    places = places_of("Ten nine.")
    visited = [1] * (11 - steps - 1) + [2] * steps + [3, 4]
    search = search_path(places, steps_at(places, visited, sharpness=0.97))
    waveform = syllables_at(*times, seconds=0.1 * len(visited))
    found = find_flaws(search, "Ten nine.", STEP_SECONDS, waveform=waveform)
    assert [(flaw.kind, flaw.word) for flaw in found] == expected


@pytest.mark.parametrize(("steps", "is_flawed"), [(12, True), (10, False)])
def test_a_word_is_only_said_twice_if_it_lasts_as_long_for_each_of_its_syllables(steps, is_flawed):
    places = places_of("Buy bananas.")
    search = search_path(places, steps_at(places, [1, 1, *[2] * steps, 3, 4], sharpness=0.97))
    waveform = syllables_at(0.25, 0.4, 0.55, 0.7, 0.85, 1.0, seconds=0.1 * (steps + 4))
    found = find_flaws(search, "Buy bananas.", STEP_SECONDS, waveform=waveform)
    assert [(flaw.kind, flaw.word) for flaw in found] == [(FlawKind.REPEATED, "bananas")] * is_flawed


@pytest.mark.parametrize(("times", "is_flawed"), [((0.1, 0.4), False), ((0.1, 0.4, 0.7, 1.0), True)])
def test_words_that_attention_returns_to_are_only_repeated_if_their_syllables_are_heard_again(times, is_flawed):
    places = places_of("Ten nine.")
    search = search_path(places, steps_at(places, [1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 4], sharpness=0.97))
    waveform = syllables_at(*times, seconds=1.2)
    found = find_flaws(search, "Ten nine.", STEP_SECONDS, waveform=waveform)
    assert [(flaw.kind, flaw.word) for flaw in found] == [(FlawKind.REPEATED, "Ten")] * is_flawed
