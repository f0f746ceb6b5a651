"""Open recognition and its error counts."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.errors import CheckpointError, MissingExtraError
from marstts.evaluation.metrics import sphinx
from marstts.evaluation.metrics.recognition import (
    Edits,
    FasterWhisperRecogniser,
    SphinxRecogniser,
    WhisperRecogniser,
    character_edits,
    word_edits,
)


@pytest.fixture(scope="module")
def recogniser() -> SphinxRecogniser:
    return SphinxRecogniser()


@pytest.mark.parametrize(
    ("heard", "errors"),
    [
        ("the cat sat on the mat", 0),
        ("the cat sat on mat", 1),
        ("a cat sat on the big mat", 2),
        ("mat", 5),
        ("", 6),
        ("one two three four five six seven eight", 8),
    ],
)
def test_word_edits_agree_with_counting_by_hand(heard: str, errors: int):
    assert word_edits(["the", "cat", "sat", "on", "the", "mat"], heard.split()) == Edits(errors, 6)


@pytest.mark.parametrize(("heard", "errors"), [("ab cd", 0), ("ab ce", 1), ("abcd", 1), ("b cdd", 2), ("", 5)])
def test_character_edits_count_the_spaces_between_words(heard: str, errors: int):
    assert character_edits(["ab", "cd"], heard.split()) == Edits(errors, 5)


def test_edits_agree_with_the_textbook_recursion():
    def distance(first: str, second: str) -> int:
        if not first or not second:
            return len(first) + len(second)
        return min(
            distance(first[1:], second) + 1,
            distance(first, second[1:]) + 1,
            distance(first[1:], second[1:]) + (first[0] != second[0]),
        )

    rng = np.random.default_rng(3)
    for _ in range(20):
        first, second = ("".join(rng.choice(list("abc"), rng.integers(1, 6))) for _ in range(2))
        assert word_edits(list(first), list(second)).errors == distance(first, second)


def test_real_speech_is_heard_as_its_text(recogniser: SphinxRecogniser, surpassed: Waveform):
    assert recogniser.hear(surpassed) == ["has", "never", "been", "surpassed"]


def test_nothing_is_heard_in_silence(recogniser: SphinxRecogniser):
    assert recogniser.hear(Waveform(np.zeros(8000, np.float32), 16000)) == []


def test_what_was_heard_before_changes_nothing(surpassed: Waveform, amiable: Waveform):
    fresh, used = SphinxRecogniser(), SphinxRecogniser()
    noise = np.random.default_rng(0).standard_normal(16000).astype(np.float32)
    used.hear(Waveform(noise, 16000))
    used.hear(surpassed)
    assert used.hear(amiable) == fresh.hear(amiable)


def test_prepared_audio_does_not_depend_on_level(surpassed: Waveform):
    quiet = Waveform(surpassed.samples * 0.1, surpassed.sample_rate)
    first, second = (np.frombuffer(sphinx.prepare(w), "<i2").astype(int) for w in (surpassed, quiet))
    assert np.abs(first - second).max() <= 1
    assert len(first) == pytest.approx((surpassed.seconds + 2 * sphinx.EDGE_SECONDS) * sphinx.SAMPLE_RATE, abs=1)


def test_faster_whisper_hears_16_khz_english(monkeypatch: pytest.MonkeyPatch):
    class WhisperModel:
        def __init__(self, source, **settings):
            assert (source, settings["device"]) == ("tiny", "cpu")

        def transcribe(self, samples, language, **settings):
            assert (len(samples), samples.dtype, language) == (16_000, np.float32, "en")
            return iter([SimpleNamespace(text=" Mr. Brown"), SimpleNamespace(text=" sat 2 times.")]), None

    monkeypatch.setitem(sys.modules, "faster_whisper", SimpleNamespace(WhisperModel=WhisperModel))
    recogniser = FasterWhisperRecogniser("tiny")
    assert recogniser.hear(Waveform(np.ones(24_000, np.float32), 24_000)) == ["mister", "brown", "sat", "two", "times"]
    assert recogniser.name.startswith("faster-whisper tiny (")
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    with pytest.raises(MissingExtraError, match=r"marstts\[judges\]"):
        FasterWhisperRecogniser()


def test_whisper_listens_through_transformers(monkeypatch: pytest.MonkeyPatch):
    torch = pytest.importorskip("torch")

    class Processor:
        feature_extractor = SimpleNamespace(sampling_rate=16_000)

        def __call__(self, samples, sampling_rate, return_tensors):
            assert (len(samples), sampling_rate, return_tensors) == (16_000, 16_000, "pt")
            return SimpleNamespace(input_features=torch.ones(1, 80, 3000))

        def batch_decode(self, ids, skip_special_tokens):
            assert skip_special_tokens
            return [" The cat, sat." if ids.tolist() == [[7, 3]] else ""]

    class Model:
        generation_config = SimpleNamespace(is_multilingual=True)

        def eval(self):
            return self

        def generate(self, features, do_sample, num_beams, language, task):
            assert (do_sample, num_beams, language, task) == (False, 1, "en", "transcribe")
            return torch.tensor([[7, 3]])

    def load(kind):
        return SimpleNamespace(from_pretrained=lambda source, **settings: kind())

    package = SimpleNamespace(WhisperProcessor=load(Processor), WhisperForConditionalGeneration=load(Model))
    monkeypatch.setitem(sys.modules, "transformers", package)
    recogniser = WhisperRecogniser("somewhere")
    assert recogniser.hear(Waveform(np.ones(24_000, np.float32), 24_000)) == ["the", "cat", "sat"]
    assert recogniser.name.startswith("somewhere (transformers ")


def test_whispers_missing_weights_are_named(tmp_path: Path):
    pytest.importorskip("transformers")
    with pytest.raises(CheckpointError, match="Whisper's weights are neither here"):
        WhisperRecogniser(str(tmp_path))
