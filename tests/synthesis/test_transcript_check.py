"""Whether a recording has the words of a transcript, with the packaged model."""

from __future__ import annotations

from pathlib import Path

import pytest

from marstts.audio import read
from marstts.synthesis.clone import first_seconds, prepare
from marstts.synthesis.loading import load
from marstts.synthesis.transcript_check import transcript_fits
from marstts.text.normalize import normalize

AUDIO = Path(__file__).parents[1] / "audio"
AMIABLE = "He might even have been made amiable himself."
OTHERS = (
    "The sun came up behind the hills, and a small boat left the harbor without a sound.",
    "has never been surpassed",
    "Please call the office before ten.",
)


def fits(name: str, transcript: str) -> bool:
    tts = load("mini")
    recording = read(AUDIO / name)
    prepared = first_seconds(prepare(recording, tts.codec.spec.sample_rate, name))
    voice = tts.clone(recording, keep_reference=False)
    return transcript_fits(prepared, normalize(transcript), voice, tts.model, tts.codec)


@pytest.mark.slow
def test_a_recording_has_its_own_words():
    assert fits("sense-0930.flac", AMIABLE)


@pytest.mark.slow
@pytest.mark.parametrize("transcript", OTHERS)
def test_a_recording_does_not_have_other_words(transcript):
    assert not fits("sense-0930.flac", transcript)


@pytest.mark.slow
def test_a_synthetic_recording_is_checked_as_well():
    tts = load("mini")
    recording = tts.speak("The ship left the harbor at dawn.", "kal").waveform
    prepared = first_seconds(prepare(recording, tts.codec.spec.sample_rate, "recording"))
    voice = tts.clone(recording, keep_reference=False)
    assert transcript_fits(prepared, "The ship left the harbor at dawn.", voice, tts.model, tts.codec)
    assert not transcript_fits(prepared, normalize(AMIABLE), voice, tts.model, tts.codec)
