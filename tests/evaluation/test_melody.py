"""Pitch of real recordings: followed, written once, and read by the trainer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from marstts.audio import Waveform
from marstts.cli.prepare import pitch as command
from marstts.data.manifest import Utterance, write_manifest
from marstts.evaluation.melody import follow_corpus, follow_utterance
from marstts.training.melody import read_pitches


def utterance(name: str, seconds: float, split: str = "train") -> Utterance:
    return Utterance(id=name, audio=f"{name}.wav", text="la", speaker="a", style="regular", seconds=seconds,
                     source_rate=16000, split=split, licence="public domain")  # fmt: skip


@pytest.fixture
def manifest(tmp_path: Path, surpassed: Waveform) -> Path:
    soundfile.write(tmp_path / "speech.wav", surpassed.samples, surpassed.sample_rate)
    noise = 0.01 * np.random.default_rng(0).standard_normal(8000)
    soundfile.write(tmp_path / "noise.wav", noise, 16000)
    rows = [
        utterance("speech", surpassed.seconds), utterance("noise", 0.5, "validation"), utterance("gone", 1.0),
        utterance("held out", 1.0, "test"),
    ]  # fmt: skip
    write_manifest(rows, tmp_path / "utterances.jsonl")
    return tmp_path / "utterances.jsonl"


def test_a_rising_tone_is_followed(tmp_path: Path) -> None:
    times = np.arange(24000) / 24000
    phase = 2 * np.pi * (100 * times + 50 * times**2)
    tone = sum(np.sin(number * phase) / number for number in range(1, 20))
    soundfile.write(tmp_path / "rising.wav", 0.1 * tone, 24000)
    found = follow_utterance(tmp_path, utterance("rising", 1.0))
    assert found is not None and 100 <= len(found) <= 101
    np.testing.assert_allclose(found[20:80], 100 + 100 * 0.01 * np.arange(20, 80), rtol=0.01)


def test_what_cannot_be_read_is_left_out_and_a_second_call_adds_nothing(manifest: Path) -> None:
    said: list[str] = []
    follow_corpus(manifest, manifest.parent / "pitch.jsonl", say=said.append)
    assert "pitch of 2 more recordings; in 1 none could be found" in said[0]
    first = (manifest.parent / "pitch.jsonl").read_text()
    command(manifest)
    assert (manifest.parent / "pitch.jsonl").read_text() == first
    pitches = read_pitches(manifest.parent / "pitch.jsonl")
    assert set(pitches) == {"speech", "noise"}
    voiced = pitches["speech"][pitches["speech"] > 0]
    assert len(voiced) > 20 and 60 < np.median(voiced) < 400
    assert json.loads(first.splitlines()[0])["id"] == "speech"
