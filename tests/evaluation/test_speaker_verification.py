"""Equal error rates of speaker encoders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marstts import audio
from marstts.audio import Waveform
from marstts.data.manifest import Utterance, write_manifest
from marstts.errors import DataError
from marstts.evaluation.verification import error_rate, error_rate_of_drawn, measure_encoder
from marstts.speaker.base import equal_error_rate, trials


class FirstSamples:
    """A speaker encoder whose embedding is the first samples."""

    name, size = "first-samples", 3

    def embed(self, waveform: Waveform):
        return waveform.samples[:3].copy()


def six_voices(folder: Path) -> Path:
    """Six voices with four recordings each, two of them whispered; the last two voices have one name."""
    rng, utterances = np.random.default_rng(0), []
    for number in range(6):
        direction = np.eye(3)[number % 3] * (1 if number < 3 else -1)
        for take in range(4):
            name = f"s{number}-{take}"
            samples = np.tile(direction + 0.1 * rng.standard_normal(3), 400).astype(np.float32) * 0.5
            audio.write(Waveform(samples, 8000), folder / f"{name}.wav")
            utterances.append(
                Utterance(
                    id=name, audio=f"{name}.wav", text="x", speaker=f"s{min(number, 4)}",
                    style="whisper" if take > 1 else "regular", seconds=0.15, source_rate=8000, split="test",
                    license="none",
                )
            )  # fmt: skip
    write_manifest(utterances, folder / "utterances.jsonl")
    return folder / "utterances.jsonl"


def test_equal_error_rate_is_printed_overall_and_by_style(tmp_path: Path):
    text = measure_encoder(FirstSamples(), six_voices(tmp_path), "test", 50)
    assert text.startswith("first-samples on the test split")
    rows = [line for line in text.splitlines() if line.startswith(("| all", "| regular", "| whisper"))]
    assert [row.split(" | ")[1:3] for row in rows] == [["24", "5"], ["12", "5"], ["12", "5"]]
    assert float(rows[0].split(" | ")[3].split(" ")[0]) > 5.0  # one of them has two voices
    with pytest.raises(DataError, match="has not two speakers"):
        measure_encoder(FirstSamples(), tmp_path / "utterances.jsonl", "train", 50)


def test_only_the_beginning_of_recordings_is_used(tmp_path: Path):
    lengths: set[float] = set()

    class Lengths(FirstSamples):
        def embed(self, waveform: Waveform):
            lengths.add(waveform.seconds)
            return super().embed(waveform)

    manifest = six_voices(tmp_path)
    text = measure_encoder(Lengths(), manifest, "test", 50, seconds=0.1)
    assert text.startswith("first-samples on the test split of utterances.jsonl, 0.1 s of each recording")
    assert lengths == {0.1}
    with pytest.raises(DataError, match="two recordings of at least 2 s each"):
        measure_encoder(FirstSamples(), manifest, "test", 50, seconds=2.0)


def test_interval_of_the_equal_error_rate_is_over_speakers():
    rng = np.random.default_rng(3)
    names = [f"s{n}" for n in range(12) for _ in range(4)]
    voices = np.repeat(rng.standard_normal((12, 6)), 4, axis=0)
    embeddings = (voices + 0.8 * rng.standard_normal(voices.shape)).astype(np.float32)
    found = error_rate(embeddings, names)
    assert found.value == pytest.approx(equal_error_rate(*trials(embeddings, names)))
    assert 0.0 < found.low < found.value < found.high < 0.6


def test_a_speaker_drawn_twice_is_not_compared_with_itself_as_another():
    similarities = np.eye(4, dtype=np.float32)
    rows = np.array([0, 1])
    assert np.isnan(error_rate_of_drawn(similarities, [(0, rows), (0, rows)]))
