"""Runs say what they were trained with, and what they began with."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_mars6 import write_toy_run

from marstts.bundle import find_bundle, read_info
from marstts.io.part_provenance import pass_on, read_part
from marstts_lab.training.loop import LoopConfig
from marstts_lab.training.provenance import file_digests, name_parent, record_training


@pytest.mark.parametrize("program", ["/usr/bin/marstts", "/usr/lib/marstts/__main__.py"])
def test_a_run_says_its_command_configuration_data_and_parent(
    program: str, toy_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.argv", [program, "train", "mars6", "--output", "my run"])
    manifest = tmp_path / "corpus/utterances.jsonl"
    manifest.parent.mkdir()
    manifest.write_text("one\n")
    record_training(tmp_path / "run", LoopConfig(steps=7), file_digests([manifest]), toy_bundle)
    record = read_part(tmp_path / "run")
    assert record.command == "marstts train mars6 --output 'my run'" and record.configuration["steps"] == 7
    assert record.parent == read_info(toy_bundle).label and record.commit and record.date
    [(name, digest)] = record.data.items()
    manifest.write_text("two\n")
    assert name == "corpus/utterances.jsonl" and file_digests([manifest]) != {name: digest}


def test_a_resumed_run_keeps_its_parent(toy_bundle: Path, tmp_path: Path):
    record_training(tmp_path, LoopConfig(steps=7), {}, toy_bundle)
    record_training(tmp_path, LoopConfig(steps=9), {})
    record = read_part(tmp_path)
    assert record.parent == read_info(toy_bundle).label and record.configuration["steps"] == 9


def test_the_parent_of_a_run_is_named_by_its_weights(tmp_path: Path):
    one, other = write_toy_run(tmp_path / "one"), write_toy_run(tmp_path / "other")
    assert name_parent(one).startswith("one@") and name_parent(other).startswith("other@")
    assert name_parent(one).partition("@")[2] == name_parent(other).partition("@")[2]


def test_an_exported_part_has_the_record_of_its_run(tmp_path: Path):
    for name in ("run", "part", "old run"):
        (tmp_path / name).mkdir()
    record_training(tmp_path / "run", LoopConfig(steps=7), {"shards": "f00"})
    pass_on(tmp_path / "run", tmp_path / "part")
    assert read_part(tmp_path / "part").data == {"shards": "f00"}
    pass_on(tmp_path / "old run", tmp_path / "run")
    assert read_part(tmp_path / "run").data == {"shards": "f00"}


def test_a_packaged_model_is_a_parent_by_its_name_as_a_path_too():
    assert name_parent(Path("mini")) == name_parent("mini") == read_info(find_bundle("mini")).label
