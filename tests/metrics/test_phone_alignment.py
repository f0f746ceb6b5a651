"""Phone alignments of a corpus: in order, appended once, left out where text and recording do not fit."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import soundfile

from marstts.audio import Waveform
from marstts.data.manifest import Utterance, write_manifest
from marstts.metrics.annotations import align_corpus, align_utterance, first_hours
from marstts.training.codec.losses import PHONES


def utterance(number: int, text: str, seconds: float, split: str = "train") -> Utterance:
    return Utterance(id=f"u{number}", audio="surpassed.wav", text=text, speaker="a", style="regular", seconds=seconds,
                     source_rate=16000, split=split, license="public domain")  # fmt: skip


@pytest.fixture
def manifest(tmp_path: Path, surpassed: Waveform) -> Path:
    soundfile.write(tmp_path / "surpassed.wav", surpassed.samples, surpassed.sample_rate)
    texts = ["has never been surpassed", "?!", "has never been surpassed", "has never been surpassed"]
    splits = ["train", "train", "test", "validation"]
    rows = [
        utterance(n, text, surpassed.seconds, split) for n, (text, split) in enumerate(zip(texts, splits, strict=True))
    ]
    write_manifest(rows, tmp_path / "utterances.jsonl")
    return tmp_path / "utterances.jsonl"


def test_aligned_phones_follow_the_order_of_the_words(manifest: Path, surpassed: Waveform) -> None:
    found = align_utterance(manifest.parent, utterance(0, "Has never been surpassed.", surpassed.seconds))
    assert found is not None
    spoken = [phone for phone, _, _ in found if phone != "SIL"]
    assert spoken[:3] == ["HH", "AE", "Z"] and spoken[-2:] == ["S", "T"]
    assert all(phone in PHONES for phone, _, _ in found)
    starts = [start for _, start, _ in found]
    assert starts == sorted(starts) and starts[-1] < surpassed.seconds


def test_a_second_call_adds_nothing(manifest: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    align_corpus(manifest, manifest.parent / "phones.jsonl")
    assert "2 more recordings; 1 could not be annotated" in caplog.text
    first = (manifest.parent / "phones.jsonl").read_text()
    align_corpus(manifest, manifest.parent / "phones.jsonl")
    assert (manifest.parent / "phones.jsonl").read_text() == first
    assert [json.loads(line)["id"] for line in first.splitlines()] == ["u0", "u3"]  # not the test split
    assert json.loads(first.splitlines()[0])["id"] == "u0"


@pytest.mark.slow
def test_two_processes_align_as_one_does(manifest: Path) -> None:
    align_corpus(manifest, manifest.parent / "one.jsonl")
    align_corpus(manifest, manifest.parent / "two.jsonl", workers=2)
    assert (manifest.parent / "one.jsonl").read_text() == (manifest.parent / "two.jsonl").read_text()


def test_hours_limit_the_annotated_audio() -> None:
    rows = [utterance(number, "a", 1800.0) for number in range(5)]
    assert [u.id for u in first_hours(1.0, rows)] == ["u0", "u1"] and len(first_hours(0.0, rows)) == 5


def test_a_missing_recording_is_left_out(tmp_path: Path) -> None:
    assert align_utterance(tmp_path, utterance(0, "has", 1.0)) is None
