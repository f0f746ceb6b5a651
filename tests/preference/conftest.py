"""A corpus of tones whose words are easy to mine from, and judges that need no ears."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from marstts.audio import Waveform, write
from marstts.data.manifest import Utterance, write_manifest
from marstts.evaluation.metrics.alignment import Alignment
from marstts.evaluation.metrics.word_choice import WordChoices

RATE = 24_000
ANIMALS = ("cat", "dog", "cow", "pig", "hen", "owl", "fox")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest of seven buzzing recordings of 1.6 to 2.2 s by three people, one of them held out."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = np.random.default_rng(0)
    utterances = []
    for number in range(7):
        seconds = 1.6 + 0.1 * number
        time = np.arange(int(RATE * seconds)) / RATE
        buzz = sum(np.sin(2 * np.pi * (90 + 25 * number) * h * time) / h for h in range(1, 9))
        noise = 0.01 * rng.standard_normal(len(time))
        samples = 0.2 * buzz * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * time)) + noise
        write(Waveform(samples.astype(np.float32), RATE), folder / f"{number}.wav")
        utterances.append(
            Utterance(
                id=f"u{number}", audio=f"{number}.wav", text=f"the {ANIMALS[number]} sat",
                speaker="cleo" if number == 6 else ("anna", "bert")[number % 2], style="regular", seconds=seconds,
                source_rate=RATE, split="test" if number == 6 else "train", licence="own",
            )
        )  # fmt: skip
    write_manifest(utterances, folder / "utterances.jsonl")
    return folder / "utterances.jsonl"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("rules\tShe sells sea shells.\nthe mat sat\n\n!?\nthe mat sat\n")
    return path


class CountingRecogniser:
    """Hears the first word of everything as many times as there are half seconds."""

    name = "counting"

    def hear(self, waveform: Waveform) -> list[str]:
        return ["the"] * max(1, round(2 * waveform.seconds))


class LoudnessPredictor:
    """Likes loud takes."""

    name = "loudness"
    scales = ("loudness",)

    def rate(self, waveform: Waveform) -> dict[str, float]:
        return {"loudness": 1.0 + 4.0 * float(np.abs(waveform.samples).mean())}


class HalfRightWordTest:
    """Takes every other word for another."""

    def score(self, pcm: bytes, words: list[str]) -> WordChoices:
        return WordChoices(right=1, choices=2, skipped=0)


class CarelessAligner:
    """Places any words anywhere."""

    def align(self, pcm: bytes, words: list[str]) -> Alignment:
        return Alignment(words[0], -9.0, 0, -4.5)


@pytest.fixture
def quick_judges(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Stand-ins for the recogniser and the predictor, wherever preference rooms open them."""
    from marstts.preference import checkup, judging

    for room in (judging, checkup):
        monkeypatch.setitem(room.RECOGNISERS, "sphinx", CountingRecogniser)
    monkeypatch.setattr(judging, "open_quality_judge", lambda name: LoudnessPredictor())
    monkeypatch.setattr(judging, "WordChoiceTest", HalfRightWordTest)
    monkeypatch.setattr(judging, "Aligner", CarelessAligner)
    return lambda: None
