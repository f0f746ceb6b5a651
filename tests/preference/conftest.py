"""A corpus of tones to mine from, and stand-ins for the metrics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marstts.audio import Waveform, write
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.metrics import recognition
from marstts_lab.preference import scoring

RATE = 24_000
ANIMALS = ("cat", "dog", "cow", "pig", "hen", "owl", "fox")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest of seven buzzing recordings of 1.6 to 2.2 s by three speakers, one of them held out."""
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
                source_rate=RATE, split="test" if number == 6 else "train", license="own",
            )
        )  # fmt: skip
    write_manifest(utterances, folder / "utterances.jsonl")
    return folder / "utterances.jsonl"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("rules\tShe sells sea shells.\nthe mat sat\n\n!?\nthe mat sat\n")
    return path


class CountingRecognizer:
    """Transcribes one word for every half second."""

    name = "counting"

    def transcribe(self, waveform: Waveform) -> list[str]:
        return ["the"] * max(1, round(2 * waveform.seconds))


class LoudnessPredictor:
    """Gives loud takes a high score."""

    name = "loudness"
    scales = ("loudness",)

    def rate(self, waveform: Waveform) -> dict[str, float]:
        return {"loudness": 1.0 + 4.0 * float(np.abs(waveform.samples).mean())}


@pytest.fixture
def quick_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the metrics, wherever the package opens them."""
    monkeypatch.setitem(recognition.RECOGNIZERS, "faster-whisper", CountingRecognizer)
    monkeypatch.setattr(scoring, "missing_packages", lambda names: [])
    monkeypatch.setattr(scoring, "open_quality_metric", lambda name: LoudnessPredictor())
