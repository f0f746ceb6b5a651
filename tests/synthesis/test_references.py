"""Long recordings as references: where their speech is found, and how much memory that takes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import AudioError
from marstts.synthesis.clone import references
from marstts.synthesis.clone.references import open_excerpt

RATE = 24_000


@pytest.fixture(autouse=True)
def recordings_of_more_than_five_seconds_are_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(references, "WHOLE_SECONDS", 5.0)


@pytest.fixture
def recording(reference: Waveform, tmp_path: Path) -> Callable[..., Path]:
    """Write parts one after another: a number is that many seconds of noise at -60 dB, "speech" is three of speech."""

    def write(*parts: float | str) -> Path:
        rng, path = np.random.default_rng(0), tmp_path / "long.flac"
        pieces = [
            reference.samples if part == "speech" else rng.normal(0, 0.001, int(float(part) * RATE)) for part in parts
        ]
        soundfile.write(path, np.concatenate(pieces), RATE)
        return path

    return write


def test_a_short_recording_is_kept_as_it_is(recording: Callable[..., Path]):
    path = recording(1.5, "speech")
    excerpt = open_excerpt(path, 1.0)
    assert excerpt.start_seconds is None
    np.testing.assert_array_equal(excerpt.waveform.samples, audio.read(path).samples)


@pytest.mark.slow
def test_of_a_long_recording_the_part_that_begins_with_speech_is_kept(recording: Callable[..., Path]):
    path = recording(13, "speech", 20)
    excerpt = open_excerpt(path, 3.0)
    assert excerpt.start_seconds == 12.0
    assert 3.0 <= excerpt.waveform.seconds <= 5.0
    whole = audio.read(path).samples[12 * RATE :]
    np.testing.assert_array_equal(excerpt.waveform.samples, whole[: len(excerpt.waveform.samples)])


def test_decoding_stops_behind_the_excerpt(recording: Callable[..., Path], monkeypatch: pytest.MonkeyPatch):
    path, decoded = recording("speech", 120), 0.0
    read_blocks = audio.read_blocks

    def counted(source: Path, **how: bool):
        nonlocal decoded
        for block in read_blocks(source, **how):
            decoded += block.seconds
            yield block

    monkeypatch.setattr(audio, "read_blocks", counted)
    open_excerpt(path, 3.0)
    assert decoded < 30.0


@pytest.mark.slow
def test_with_a_transcript_a_long_recording_may_hold_silence_but_no_later_speech(recording: Callable[..., Path]):
    path = recording(8, "speech", 15)
    assert open_excerpt(path, 3.0, covers_all=True).start_seconds == 7.0
    with pytest.raises(AudioError, match=r"long\.flac: 1\d s or more lie between .* at most 3 s can be used, so cut"):
        open_excerpt(recording(8, "speech", 9, "speech"), 3.0, covers_all=True)


@pytest.mark.slow
def test_a_long_recording_without_speech_is_refused_unless_any_sound_will_do(recording: Callable[..., Path]):
    path = recording(9)
    with pytest.raises(AudioError, match=r"long\.flac: no speech was found in it"):
        open_excerpt(path, 3.0)
    assert open_excerpt(path, 3.0, any_sound=True).start_seconds == 0.0


def noise_and_speech(seconds: int, speech: np.ndarray) -> np.ndarray:
    """Loud noise without a pause, then speech."""
    return np.concatenate([np.random.default_rng(1).normal(0, 0.05, seconds * RATE), np.tile(speech, 2)])


@pytest.mark.slow
def test_speech_after_minutes_of_noise_is_found_by_one_window_of_four(
    reference: Waveform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The detector takes nine tenths of the time: 15 minutes of noise took more than a minute on a busy machine."""
    monkeypatch.setattr(references, "EVERY_WINDOW", 10)
    searched, has_speech = 0, references.SpeechDetector.has_speech

    def counted(*arguments: Any) -> tuple[bool, float]:
        nonlocal searched
        searched += 1
        return has_speech(*arguments)

    monkeypatch.setattr(references.SpeechDetector, "has_speech", counted)
    for seconds in (61, 63):
        searched = 0
        soundfile.write(tmp_path / "noise.wav", noise_and_speech(seconds, reference.samples), RATE)
        start = open_excerpt(tmp_path / "noise.wav", 3.0).start_seconds
        assert start is not None and seconds - 1.0 <= start <= seconds + 1.0
        assert searched < 10 + seconds / 4 + 8


FORK = """
import os, sys
import marstts
tts = marstts.load()
voice = tts.clone(sys.argv[1])
child = os.fork()
if child == 0:
    again = tts.clone(sys.argv[1])
    assert all((again.embeddings[role] == voice.embeddings[role]).all() for role in voice.embeddings)
    tts.speak("Good morning.", again)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.end_to_end
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_that_forks_after_a_clone_clones_and_speaks(reference_file: Path):
    subprocess.run([sys.executable, "-c", FORK, str(reference_file)], check=True, timeout=120)
