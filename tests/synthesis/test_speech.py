"""Joining takes, and what a Speech can do."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import soundfile

from marstts.audio import Waveform
from marstts.generation.request import StopReason
from marstts.synthesis.speech import (
    CLAUSE_PAUSE_SECONDS,
    SENTENCE_PAUSE_SECONDS,
    Speech,
    Take,
    at_speed,
    join,
    pause_after,
)
from marstts.synthesis.words.flaws import FlawKind, TakeFlaw

RATE = 8_000


def take(text: str, seconds: float, amplitude: float = 0.5, warning: str | None = None) -> Take:
    samples = np.full(round(seconds * RATE), amplitude, np.float32)
    return Take(
        text=text,
        codes=(np.arange(3),),
        waveform=Waveform(samples, RATE),
        stop=StopReason.EOS,
        top_p=0.4,
        attempts=2,
        warning=warning,
    )


def speech(*takes: Take, text_warning: str | None = None) -> Speech:
    return Speech(
        waveform=join(takes),
        takes=tuple(takes),
        model="mini",
        seed=7,
        compute_seconds=1.23456,
        first_audio_seconds=0.5,
        text_warning=text_warning,
    )


def test_takes_are_joined_in_order_with_the_pauses_their_marks_ask_for():
    joined = join([take("One,", 0.5), take("two.", 0.25), take("Three.", 0.125)])
    expected = 0.5 + CLAUSE_PAUSE_SECONDS + 0.25 + SENTENCE_PAUSE_SECONDS + 0.125
    assert joined.seconds == pytest.approx(expected, abs=1e-3)
    middle_of_first_pause = int((0.5 + CLAUSE_PAUSE_SECONDS / 2) * RATE)
    assert joined.samples[middle_of_first_pause] == 0.0 and joined.samples[RATE // 4] == 0.5


@pytest.mark.parametrize(
    ("text", "longer"), [("Is it?", "a pause,"), ('"Yes!"', "then;"), ("well,", "cut anywhere"), ("so —", "")]
)
def test_stronger_marks_make_longer_pauses(text: str, longer: str):
    assert pause_after(text) > pause_after(longer)


@pytest.mark.parametrize("peak", [1.2, 2.0, 4.0])
def test_a_peak_beyond_one_changes_no_other_sentence(peak: float):
    loud, quiet = at_speed(take("One.", 0.5, amplitude=peak), 1.0), at_speed(take("Two.", 0.5, amplitude=0.5), 1.0)
    joined = join([loud, quiet])
    assert 0.99 < np.abs(joined.samples).max() <= 1.0
    assert joined.samples[-RATE // 4] == 0.5


def test_an_empty_take_does_not_break_the_join():
    assert join([take("One.", 0.0), take("Two.", 0.5)]).seconds == pytest.approx(0.5 + SENTENCE_PAUSE_SECONDS, abs=1e-3)
    assert join([take("One.", 0.0)]).seconds == 0.0


def test_a_saved_speech_is_read_back(tmp_path):
    spoken = speech(take("Hello.", 0.5))
    spoken.save(tmp_path / "hello.flac")
    samples, rate = soundfile.read(tmp_path / "hello.flac", dtype="float32")
    assert rate == spoken.sample_rate == RATE
    np.testing.assert_allclose(samples, spoken.samples, atol=1e-4)
    in_memory, _ = soundfile.read(io.BytesIO(spoken.wav_bytes()), dtype="float32")
    np.testing.assert_allclose(in_memory, samples, atol=1e-4)


def test_a_notebook_shows_a_player_with_the_sound_in_it():
    shown = speech(take("Hello.", 0.5, warning="a <b>flaw</b>"))._repr_html_()
    encoded = shown.partition("base64,")[2].partition('"')[0]
    samples, _ = soundfile.read(io.BytesIO(base64.b64decode(encoded)))
    assert len(samples) == 0.5 * RATE
    assert "<audio controls" in shown and "a &lt;b&gt;flaw" in shown


def test_the_report_is_json_and_complete():
    flawed = replace(take("Hello.", 0.5, warning="flawed"), flaws=(TakeFlaw(FlawKind.SKIPPED, "there", 0.25),))
    report = json.loads(json.dumps(speech(flawed, text_warning="left out: 🙂").report()))
    assert report == {
        "audio_seconds": 0.5,
        "compute_seconds": 1.235,
        "first_audio_seconds": 0.5,
        "model": "mini",
        "seed": 7,
        "warnings": ["left out: 🙂", "flawed"],
        "takes": [
            {
                "text": "Hello.",
                "stop": StopReason.EOS.value,
                "top_p": 0.4,
                "attempts": 2,
                "seconds": 0.5,
                "warning": "flawed",
                "repaired": None,
                "flaws": [{"kind": "skipped", "word": "there", "at": 0.25}],
            }
        ],
    }
