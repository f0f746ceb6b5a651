"""People whom models are judged on: no training may use them, whatever they are called."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marstts.codec.base import CodecSpec
from marstts.errors import DataError
from marstts.io.config import parse_config
from marstts_lab.data.corpora.people_table import split_of
from marstts_lab.data.corpus import load_corpus
from marstts_lab.data.held_out_people import (
    TABLE_VARIABLE,
    judged_people,
    people_of,
    persons_of,
    refuse_test_people,
    split_for,
    table_path,
)
from marstts_lab.data.manifest import Utterance, read_for_training, write_manifest
from marstts_lab.data.shards import ShardInfo, shard_path, write_shard
from marstts_lab.preference.mine import MineConfig, choose_references
from marstts_lab.training.codec.config import CodecTrainingConfig
from marstts_lab.training.codec.segments import Segments
from marstts_lab.training.loop import LoopConfig
from marstts_lab.training.speaker.clips import read_corpora
from marstts_lab.training.speaker.config import SpeakerTrainingConfig

ROOT = Path(__file__).parents[2]
SPEECH = ROOT.parent / "shared" / "speech"

UTTERANCE = Utterance(
    id="u1", audio="u1.wav", text="Hello.", speaker="vctk-p226", style="regular", seconds=2.0, source_rate=24_000,
    split="train", license="CC0",
)  # fmt: skip


def manifest_of(folder: Path, *utterances: Utterance) -> Path:
    write_manifest(utterances, folder / "utterances.jsonl")
    return folder / "utterances.jsonl"


@pytest.mark.parametrize(
    ("speaker", "recording"),
    [
        ("libri-1688", "a.wav"),
        ("libritts-8455", "a.wav"),
        ("librivox-1688", "a.wav"),
        ("LibriSpeech_1688", "a.wav"),
        ("vctk-p225", "a.wav"),
        ("ljspeech", "a.wav"),
        ("ljspeech-LJ", "a.wav"),
        ("somebody", "clips/1688-142285-0003.flac"),
        ("somebody", "8455_210777_000067_000000.wav"),
        ("somebody", "p227_003_mic2.flac"),
        ("somebody", "LJ001-0008.wav"),
    ],
)
def test_a_test_person_is_found_by_speaker_or_recording(speaker: str, recording: str):
    assert persons_of(speaker, recording) & judged_people()
    with pytest.raises(DataError, match=r"corpus: 1 utterances are of people whom models are judged on"):
        refuse_test_people([(speaker, (recording,))], "corpus")


@pytest.mark.parametrize(
    ("speaker", "recording"),
    [("1688", "a.wav"), ("p225", "a.wav"), ("libri-16880", "a.wav"), ("cmu_arctic-ljm", "x.wav"), ("me", "0003.wav"),
     ("vctk-p236", "p236_001.flac"), ("libri-4077", "4077-13751-0001.flac")],
)  # fmt: skip
def test_other_people_may_be_trained_on(speaker: str, recording: str):
    refuse_test_people([(speaker, (recording,))], "corpus")


def test_those_who_were_trained_on_are_no_test_people_any_more():
    people = people_of(table_path())
    assert [people[name] for name in ("libri-4077", "vctk-p236", "vctk-p279")] == ["heard"] * 3
    assert not judged_people() & {"libri-4077", "vctk-p236", "vctk-p279"}
    assert [split_of(name) for name in ("libri-4077", "vctk-p236", "vctk-p279")] == ["train"] * 3


def test_corpora_give_test_people_the_split_of_tests():
    assert (split_for("vctk-p226", "train"), split_for("libritts-8463", "validation")) == ("test", "test")
    assert (split_for("vctk-p229", "train"), split_for("vctk-p229", "test")) == ("train", "test")
    assert split_of("libri-1688") == "test"


def write_toy_shard(folder: Path, *utterances: Utterance) -> None:
    spec = CodecSpec(name="toy", sample_rate=8000, codebook_size=9, hop_lengths=(400, 200, 100))
    info = ShardInfo(codec=spec, encoders={}, fingerprint="f", utterances=utterances)
    write_shard(
        shard_path(folder, 0), info, [tuple(np.ones(n, int) for n in spec.patch_layout) for _ in utterances], {}
    )


def test_shards_of_test_people_are_refused_by_the_trainings_of_models(tmp_path: Path):
    write_toy_shard(tmp_path, UTTERANCE, replace(UTTERANCE, id="u2", speaker="ann"))
    with pytest.raises(DataError, match=r"1 utterances are of people whom models are judged on \(vctk-p226\)"):
        load_corpus(tmp_path)
    write_toy_shard(tmp_path, replace(UTTERANCE, split="test"), replace(UTTERANCE, id="u2", speaker="ann"))
    assert len(load_corpus(tmp_path)) == 2


ENCODER = {
    "kind": "identity", "loop": {"steps": 1}, "model": {"size": 9, "width": 12, "blocks": 2, "num_mels": 20},
}  # fmt: skip

READERS: dict[str, Callable[[Path], object]] = {
    "codec": lambda manifest: Segments(manifest, CodecTrainingConfig(loop=LoopConfig(steps=1))),
    "speaker encoders": lambda manifest: read_corpora([manifest], parse_config(SpeakerTrainingConfig, ENCODER, "")),
    "takes": lambda manifest: choose_references([manifest], MineConfig()),
    "manifest": read_for_training,
}


@pytest.mark.parametrize("training", READERS)
def test_every_training_that_reads_a_manifest_refuses_test_people(training: str, tmp_path: Path):
    other = replace(UTTERANCE, id="u2", audio="u2.wav", speaker="vctk-p229")
    path = manifest_of(tmp_path, UTTERANCE, other)
    with pytest.raises(DataError, match=r"utterances.jsonl: 1 utterances are of .*\(vctk-p226\), so no training"):
        READERS[training](path)


def test_test_people_may_be_in_the_split_of_tests(tmp_path: Path):
    path = manifest_of(tmp_path, replace(UTTERANCE, split="test"), replace(UTTERANCE, id="u2", speaker="ann"))
    assert len(read_for_training(path)) == 2


def test_a_table_of_your_own_replaces_that_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mine.tsv").write_text("person\tcorpus\tstatus\tnote\nann\tmy studio\ttest\t\n")
    monkeypatch.setenv(TABLE_VARIABLE, str(tmp_path / "mine.tsv"))
    read_for_training(manifest_of(tmp_path, UTTERANCE))
    with pytest.raises(DataError, match=r"judged on \(ann\)"):
        read_for_training(manifest_of(tmp_path, replace(UTTERANCE, speaker="ann")))
    (tmp_path / "bad.tsv").write_text("who\nann\n")
    monkeypatch.setenv(TABLE_VARIABLE, str(tmp_path / "bad.tsv"))
    with pytest.raises(DataError, match=r"bad.tsv: expected the columns person, corpus, status, note"):
        read_for_training(manifest_of(tmp_path, UTTERANCE))


def test_the_list_of_recordings_says_who_was_heard_by_which_stage_and_has_no_test_people_among_them():
    content = gzip.decompress((ROOT / "recipes/mini/people.tsv.gz").read_bytes())
    lines = content.decode("utf-8").splitlines()
    names = lines[0].split("\t")
    rows = [dict(zip(names, line.split("\t"), strict=True)) for line in lines[1:]]
    stages = {"codec?", "mars6?", "likeness?", "likeness", "predicted?"}
    assert all(set(row["heard_by"].split()) <= stages for row in rows)
    certain = {f"{row['corpus']}-{row['speaker']}" for row in rows if "likeness" in row["heard_by"].split()}
    assert certain == {"librispeech-4077", "vctk-p236", "vctk-p279"}
    known = {row["speaker"] for row in rows if row["heard_by"]} & {
        person.partition("-")[2] for person in judged_people()
    }
    assert known == {"39"}, "of whom the table says that the last decoder may have heard him"


@pytest.mark.skipif(not SPEECH.is_dir(), reason="the recordings for tests are not here")
def test_everybody_among_the_recordings_for_tests_is_a_test_person():
    for corpus in ("librispeech", "libritts", "vctk", "ljspeech", "librivox_sense"):
        for path in (SPEECH / corpus).glob("*.flac"):
            assert persons_of("", path.name) & judged_people(), path
