"""F0 contours of a corpus: extracted, written once, and resumed."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import soundfile

from marstts.audio import Waveform
from marstts.errors import DataError
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.metrics.annotations import extract_corpus_f0, extract_f0, first_hours


def utterance(name: str, seconds: float, split: str = "train") -> Utterance:
    return Utterance(id=name, audio=f"{name}.wav", text="la", speaker="a", style="regular", seconds=seconds,
                     source_rate=16000, split=split, license="public domain")  # fmt: skip


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


def test_extracted_f0_of_a_rising_tone_matches_its_formula(tmp_path: Path) -> None:
    times = np.arange(24000) / 24000
    phase = 2 * np.pi * (100 * times + 50 * times**2)
    tone = sum(np.sin(number * phase) / number for number in range(1, 20))
    soundfile.write(tmp_path / "rising.wav", 0.1 * tone, 24000)
    found = extract_f0(tmp_path, utterance("rising", 1.0))
    assert found is not None and 100 <= len(found) <= 101
    np.testing.assert_allclose(found[20:80], 100 + 100 * 0.01 * np.arange(20, 80), rtol=0.01)


def test_unreadable_recordings_are_counted_and_a_second_call_adds_nothing(
    manifest: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    extract_corpus_f0(manifest, manifest.parent / "f0.jsonl")
    assert "f0 of 2 more recordings; 1 could not be annotated" in caplog.text
    first = (manifest.parent / "f0.jsonl").read_text()
    extract_corpus_f0(manifest, manifest.parent / "f0.jsonl")
    assert (manifest.parent / "f0.jsonl").read_text() == first
    rows = {row["id"]: np.array(row["f0"]) for row in map(json.loads, first.splitlines())}
    assert set(rows) == {"speech", "noise"}
    voiced = rows["speech"][rows["speech"] > 0]
    assert len(voiced) > 20 and 60 < np.median(voiced) < 400
    assert json.loads(first.splitlines()[0])["id"] == "speech"


def test_a_torn_last_line_is_written_again_and_a_malformed_one_is_refused(manifest: Path) -> None:
    path = manifest.parent / "f0.jsonl"
    extract_corpus_f0(manifest, path)
    whole = path.read_text()
    path.write_text(whole[: len(whole) - 20])
    extract_corpus_f0(manifest, path)
    assert path.read_text() == whole
    path.write_text(whole + "{}\n")
    with pytest.raises(DataError, match=r"f0\.jsonl:3: id: is missing"):
        extract_corpus_f0(manifest, path)


def test_hours_limit_the_annotated_audio() -> None:
    rows = [utterance(str(number), 1800.0) for number in range(5)]
    assert [u.id for u in first_hours(1.0, rows)] == ["0", "1"] and len(first_hours(0.0, rows)) == 5
