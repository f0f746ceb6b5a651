"""Phones of real recordings: found in order, appended once, and left out where text and recording do not meet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile

from marstts.audio import Waveform
from marstts.cli.prepare import phones as command
from marstts.data.manifest import Utterance, write_manifest
from marstts.evaluation.annotations import within
from marstts.evaluation.timelines import align_corpus, align_utterance
from marstts.training.phonetics import PHONES, read_timelines


def utterance(number: int, text: str, seconds: float, split: str = "train") -> Utterance:
    return Utterance(id=f"u{number}", audio="surpassed.wav", text=text, speaker="a", style="regular", seconds=seconds,
                     source_rate=16000, split=split, licence="public domain")  # fmt: skip


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


def test_phones_come_in_the_order_of_the_words(manifest: Path, surpassed: Waveform) -> None:
    found = align_utterance(manifest.parent, utterance(0, "Has never been surpassed.", surpassed.seconds))
    assert found is not None
    spoken = [phone for phone, _, _ in found if phone != "SIL"]
    assert spoken[:3] == ["HH", "AE", "Z"] and spoken[-2:] == ["S", "T"]
    assert all(phone in PHONES for phone, _, _ in found)
    starts = [start for _, start, _ in found]
    assert starts == sorted(starts) and starts[-1] < surpassed.seconds


def test_a_second_call_adds_nothing_and_the_trainer_reads_the_file(manifest: Path) -> None:
    said: list[str] = []
    align_corpus(manifest, manifest.parent / "phones.jsonl", say=said.append)
    assert "2 more recordings; in 1 none could be found" in said[0]
    first = (manifest.parent / "phones.jsonl").read_text()
    command(manifest)
    assert (manifest.parent / "phones.jsonl").read_text() == first
    assert set(read_timelines(manifest.parent / "phones.jsonl")) == {"u0", "u3"}  # neither nonsense nor the test split
    assert json.loads(first.splitlines()[0])["id"] == "u0"


def test_processes_find_what_one_finds(manifest: Path) -> None:
    align_corpus(manifest, manifest.parent / "one.jsonl", say=lambda _: None)
    align_corpus(manifest, manifest.parent / "two.jsonl", workers=2, say=lambda _: None)
    assert (manifest.parent / "one.jsonl").read_text() == (manifest.parent / "two.jsonl").read_text()


def test_hours_bound_the_work() -> None:
    rows = [utterance(number, "a", 1800.0) for number in range(5)]
    assert [u.id for u in within(1.0, rows)] == ["u0", "u1"] and len(within(0.0, rows)) == 5


def test_a_recording_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    assert align_utterance(tmp_path, utterance(0, "has", 1.0)) is None
