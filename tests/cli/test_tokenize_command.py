"""`marstts tokenize` by its command line: every option reaches the work, and impossible ones are refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import miniature_corpora
from marstts.cli.main import app
from marstts.data.shards import load_corpus, read_info, shard_path

RUN = CliRunner()
EARS = ["--codec", "toy:64", "--identity", "toy:5", "--style", "toy:7"]


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """What `marstts prepare` makes of eight recordings of one's own."""
    miniature_corpora.own_folder(tmp_path / "mine")
    output = tmp_path / "corpus"
    options = ["--root", str(tmp_path / "mine"), "--output", str(output), "--licence", "own"]
    assert RUN.invoke(app, ["prepare", "folder", *options]).exit_code == 0
    return output / "utterances.jsonl"


def test_a_folder_of_recordings_becomes_shards_by_two_commands(manifest: Path, tmp_path: Path) -> None:
    options = ["--shard-size", "3", "--trim", "silence", "--loudness", "-20", "--batch", "2", "--workers", "1"]
    limits = ["--min-seconds", "0.3", "--max-seconds", "2", "--max-clipped", "0.5", "--min-pace", "1"]
    command = ["tokenize", str(manifest), "--output", str(tmp_path / "shards"), *EARS, *options, *limits]
    result = RUN.invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "8 utterances in 3 shards, 3 of them made now; 0 left out" in result.stdout
    corpus = load_corpus(tmp_path / "shards")
    assert len(corpus) == 8 and {utterance.speaker for utterance in corpus.utterances} == {"anna", "ben"}
    assert "0 of them made now" in RUN.invoke(app, command).stdout
    assert len(read_info(shard_path(tmp_path / "shards", 2)).utterances) == 2


def test_limits_of_the_command_line_refuse_and_stop(manifest: Path, tmp_path: Path) -> None:
    command = ["tokenize", str(manifest), "--output", str(tmp_path / "shards"), *EARS, "--max-pace", "30"]
    stopped = RUN.invoke(app, command)  # of the four texts each, those of more than 18 characters are read too fast
    assert stopped.exit_code == 2 and "4 of 8 utterances cannot be used (50.0%; allowed are 10.0%)" in stopped.stderr
    allowed = RUN.invoke(app, [*command, "--max-rejects", "0.5"])
    assert allowed.exit_code == 0 and "4 left out" in allowed.stdout
    rejects = [json.loads(line)["id"] for line in (tmp_path / "shards" / "rejects.jsonl").open()]
    assert rejects == ["anna/1", "anna/2", "ben/1", "ben/2"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--loudness", "5"], "loudness_lufs"),
        (["--min-speech", "2"], "min_speech_share"),
        (["--batch", "0"], "batch_size"),
    ],
)
def test_impossible_options_are_told_by_name(options, complaint: str, manifest: Path, tmp_path: Path) -> None:
    result = RUN.invoke(app, ["tokenize", str(manifest), "--output", str(tmp_path / "shards"), *EARS, *options])
    assert result.exit_code == 2 and complaint in result.stderr


def test_a_cluster_needs_its_package(manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    command = ["tokenize", str(manifest), "--output", str(tmp_path / "shards"), *EARS, "--ray", "auto"]
    result = RUN.invoke(app, command)
    assert result.exit_code == 2 and "pip install 'marstts[data]'" in result.stderr
