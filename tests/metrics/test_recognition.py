"""Open recognition and its error counts."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.errors import CheckpointError, ConfigError, MissingExtraError
from marstts_lab.metrics import recognition, sphinx
from marstts_lab.metrics.recognition import (
    Edits,
    FasterWhisperRecognizer,
    SphinxRecognizer,
    character_edits,
    faster_whisper_model,
    open_recognizer,
    word_edits,
)


@pytest.fixture(scope="module")
def recognizer() -> SphinxRecognizer:
    return SphinxRecognizer()


@pytest.mark.parametrize(
    ("transcript", "errors"),
    [
        ("the cat sat on the mat", 0),
        ("the cat sat on mat", 1),
        ("a cat sat on the big mat", 2),
        ("mat", 5),
        ("", 6),
        ("one two three four five six seven eight", 8),
    ],
)
def test_word_edits_agree_with_counting_by_hand(transcript: str, errors: int):
    assert word_edits(["the", "cat", "sat", "on", "the", "mat"], transcript.split()) == Edits(errors, 6)


@pytest.mark.parametrize(("transcript", "errors"), [("ab cd", 0), ("ab ce", 1), ("abcd", 1), ("b cdd", 2), ("", 5)])
def test_character_edits_count_the_spaces_between_words(transcript: str, errors: int):
    assert character_edits(["ab", "cd"], transcript.split()) == Edits(errors, 5)


@pytest.mark.slow
def test_human_speech_is_transcribed(recognizer: SphinxRecognizer, surpassed: Waveform):
    assert recognizer.transcribe(surpassed) == ["has", "never", "been", "surpassed"]


@pytest.mark.slow
def test_silence_has_an_empty_transcript(recognizer: SphinxRecognizer):
    assert recognizer.transcribe(Waveform(np.zeros(8000, np.float32), 16000)) == []


def test_prepared_audio_does_not_depend_on_level(surpassed: Waveform):
    quiet = Waveform(surpassed.samples * 0.1, surpassed.sample_rate)
    first, second = (np.frombuffer(sphinx.prepare(w), "<i2").astype(int) for w in (surpassed, quiet))
    assert np.abs(first - second).max() <= 1
    assert len(first) == pytest.approx((surpassed.seconds + 2 * sphinx.EDGE_SECONDS) * sphinx.SAMPLE_RATE, abs=1)


def test_faster_whisper_gets_16_khz_english(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    class WhisperModel:
        def __init__(self, source, **settings):
            assert (source, settings["device"]) == (str(tmp_path), "cpu")

        def transcribe(self, samples, language, **settings):
            assert (len(samples), samples.dtype, language) == (16_000, np.float32, "en")
            return iter([SimpleNamespace(text=" Mr. Brown"), SimpleNamespace(text=" sat 2 times.")]), None

    monkeypatch.setitem(sys.modules, "faster_whisper", SimpleNamespace(WhisperModel=WhisperModel))
    asked: list[str] = []
    monkeypatch.setattr(recognition, "fetch_model", lambda source, files: asked.append(source) or tmp_path)
    recognizer = FasterWhisperRecognizer("tiny")
    assert recognizer.transcribe(Waveform(np.ones(24_000, np.float32), 24_000)) == [
        "mister",
        "brown",
        "sat",
        "two",
        "times",
    ]
    assert recognizer.name.startswith("faster-whisper tiny (") and asked == ["Systran/faster-whisper-tiny"]
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    with pytest.raises(MissingExtraError, match=r"marstts\[eval\]"):
        FasterWhisperRecognizer()


def test_a_folder_of_weights_needs_no_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "whisper").mkdir()
    monkeypatch.chdir(tmp_path)
    assert [faster_whisper_model(name) for name in ("whisper", "base", "me/whisper")] == [
        "whisper",
        "Systran/faster-whisper-base",
        "me/whisper",
    ]


@pytest.mark.parametrize("choice", ["ear", "sphinx=folder", "faster-whisper="])
def test_recognizers_that_cannot_be_opened_are_refused(choice: str):
    with pytest.raises(ConfigError, match=choice.partition("=")[0]):
        open_recognizer(choice)


def test_a_folder_without_whispers_weights_is_refused(tmp_path: Path):
    pytest.importorskip("faster_whisper")
    with pytest.raises(CheckpointError, match=r"expected model\.bin"):
        FasterWhisperRecognizer(f"{tmp_path}/")
