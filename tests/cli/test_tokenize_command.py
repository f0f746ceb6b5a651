"""`marstts tokenize` by its command line: every option takes effect, and impossible values are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import miniature_corpora
from marstts.cli.main import app
from marstts_lab.data.corpus import load_corpus
from marstts_lab.data.shards import read_info, shard_path

RUN = CliRunner()
ENCODERS = ["--codec", "toy:64", "--identity", "toy:5", "--style", "toy:7"]


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """The manifest of a folder of eight recordings, half of which last 0.9 s and half 0.6 s."""
    miniature_corpora.own_folder(tmp_path / "mine")
    for name in ("anna/1", "anna/2", "ben/1", "ben/2"):
        miniature_corpora.record(tmp_path / "mine" / f"{name}.wav", 44_100, 0.9)
    output = tmp_path / "corpus"
    options = ["--root", str(tmp_path / "mine"), "--output", str(output), "--license", "own"]
    assert RUN.invoke(app, ["prepare", "folder", *options]).exit_code == 0
    return output / "utterances.jsonl"


def test_a_folder_of_recordings_becomes_shards_by_two_commands(manifest: Path, tmp_path: Path) -> None:
    options = ["--shard-size", "3", "--loudness", "-20", "--batch-size", "2", "--workers", "1"]
    limits = ["--min-seconds", "0.3", "--max-seconds", "2"]
    command = ["tokenize", str(manifest), "--output", str(tmp_path / "shards"), *ENCODERS, *options, *limits]
    result = RUN.invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "8 utterances in 3 shards, 3 of them made now; 0 rejected" in result.stdout
    corpus = load_corpus(tmp_path / "shards")
    assert len(corpus) == 8 and {utterance.speaker for utterance in corpus.utterances} == {"anna", "ben"}
    assert "0 of them made now" in RUN.invoke(app, command).stdout
    assert len(read_info(shard_path(tmp_path / "shards", 2)).utterances) == 2


def test_limits_of_the_command_line_reject_utterances_and_stop_the_run(manifest: Path, tmp_path: Path) -> None:
    command = [
        "tokenize",
        str(manifest),
        "--output",
        str(tmp_path / "shards"),
        *ENCODERS,
        "--max-seconds",
        "0.8",
    ]
    stopped = RUN.invoke(app, command)
    assert stopped.exit_code == 2 and "4 of 8 utterances cannot be used (50.0%; allowed are 10.0%)" in stopped.stderr
    allowed = RUN.invoke(app, [*command, "--max-reject-ratio", "0.5"])
    assert allowed.exit_code == 0 and "4 rejected" in allowed.stdout
    rejects = [json.loads(line)["id"] for line in (tmp_path / "shards" / "rejects.jsonl").open()]
    assert rejects == ["anna/1", "anna/2", "ben/1", "ben/2"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--loudness", "5"], "loudness_lufs"),
        (["--batch-size", "0"], "batch_size"),
    ],
)
def test_impossible_options_are_refused_by_name(options, complaint: str, manifest: Path, tmp_path: Path) -> None:
    result = RUN.invoke(app, ["tokenize", str(manifest), "--output", str(tmp_path / "shards"), *ENCODERS, *options])
    assert result.exit_code == 2 and complaint in result.stderr
