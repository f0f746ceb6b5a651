"""Whether a recording has the words of a transcript, with the packaged model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from marstts.audio import read
from marstts.synthesis.clone import first_seconds, prepare
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.transcript_check import transcript_fits
from marstts.text.normalize import normalize

AUDIO = Path(__file__).parents[1] / "audio"
AMIABLE = "He might even have been made amiable himself."
OTHERS = (
    "The sun came up behind the hills, and a small boat left the harbor without a sound.",
    "has never been surpassed",
    "Please call the office before ten.",
)


@pytest.fixture(scope="module")
def fits(mini: Synthesizer) -> Callable[[str], bool]:
    """Whether a recording, prepared and cloned once, has the words of a transcript."""
    recording, codec = read(AUDIO / "sense-0930.flac"), mini.session.codec
    prepared = first_seconds(prepare(recording, codec.spec.sample_rate, "sense-0930.flac"))
    voice = mini.clone(recording, keep_reference=False)
    return lambda transcript: transcript_fits(prepared, normalize(transcript), voice, mini.session.model, codec)


@pytest.mark.slow
def test_a_recording_has_its_own_words(fits: Callable[[str], bool]):
    assert fits(AMIABLE)


@pytest.mark.slow
@pytest.mark.parametrize("transcript", OTHERS)
def test_a_recording_does_not_have_other_words(fits: Callable[[str], bool], transcript: str):
    assert not fits(transcript)


@pytest.mark.slow
def test_a_synthetic_recording_is_checked_as_well(mini: Synthesizer):
    """Most takes have their words, and none has others."""
    text, has_own, has_other = "The ship left the harbor at dawn.", [], []
    for seed, name in enumerate(("kal", "ada", "ross")):
        recording = mini.speak(text, name, seed=seed).waveform
        prepared = first_seconds(prepare(recording, mini.session.codec.spec.sample_rate, "recording"))
        voice = mini.clone(recording, keep_reference=False)
        has_own.append(transcript_fits(prepared, text, voice, mini.session.model, mini.session.codec))
        has_other.append(transcript_fits(prepared, normalize(AMIABLE), voice, mini.session.model, mini.session.codec))
    assert sum(has_own) >= 2 and not any(has_other)
