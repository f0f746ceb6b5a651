"""A full disk under commands that write: one sentence, exit code 2, and older outputs as they were.

The commands are read from the command line itself; one that is added fails here until it is tried or listed.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

import miniature_corpora
from command_lines import commands_with
from marstts.cli.main import app
from marstts.io import files
from scripted import good, scripted_synthesizer
from test_fuzz_commands import GOLDEN, TOY_PARTS, time_limit

RUN = CliRunner()

TRIED = {
    "speak", "voice create", "prepare folder", "tokenize", "train tokenizer", "export", "convert", "quantize", "report",
}  # fmt: skip

SAME_WRITERS = {
    "prepare folder": [
        "prepare people", "prepare libriheavy", "prepare globe", "prepare vctk", "prepare anispeech", "prepare ccv2",
        "prepare libritts", "prepare ljspeech", "prepare ears", "prepare synthetic", "prepare phone-alignments",
        "prepare f0", "evaluate testset",
    ],
    "export": ["finetune", "bundle upgrade", "train codec", "train speaker"],
    "tokenize": ["preference mine", "preference pairs"],
    "report": ["evaluate", "evaluate codec", "evaluate metrics", "doctor"],
    "killed training": ["train mars6", "train mars5-ar", "train mars5-nar", "preference train"],
}  # fmt: skip
"""Commands that are not tried here, by one that writes its outputs through the same functions. Full disks under the
checkpoints of a training are tried in `training/test_checkpoint.py`."""


def test_every_command_that_writes_is_tried_or_has_one_that_stands_for_it() -> None:
    assert set(commands_with("--output")) == TRIED.union(*SAME_WRITERS.values())


def contents(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def other_names(output: Path) -> list[str]:
    """The names in the folder of an output, without finished sentences of a stream that could not be completed."""
    return sorted(path.name for path in output.parent.iterdir() if ".partial" not in path.name)


def invoke_on_a_full_disk(monkeypatch: pytest.MonkeyPatch, words: Sequence[object]) -> None:
    """Run a command, which must end with one sentence."""

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, time_limit(str(words[0])):
        patch.setattr(files, "_sync", full)
        result = RUN.invoke(app, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    sentences = [line for line in result.stderr.splitlines() if line.startswith("marstts: ")]
    assert result.exit_code == 2 and len(sentences) == 1 and "the disk is full" in sentences[0], result.output


def check(monkeypatch: pytest.MonkeyPatch, words: Sequence[object], output: Path, *, replaces: bool = True) -> None:
    """Run a command on a full disk, then on another one, and where it replaces its output on a full disk again."""
    invoke_on_a_full_disk(monkeypatch, words)
    if words[0] != "speak" or "--batch" in words:  # a speech keeps the sentences that are finished
        assert not [path for path in output.parent.glob(f"{output.stem}.*") if ".partial" in path.name]
    first = RUN.invoke(app, [str(word) for word in words])
    assert first.exit_code == 0, first.output
    before, names = contents(output), other_names(output)
    assert before
    if replaces:
        invoke_on_a_full_disk(monkeypatch, words)
        assert contents(output) == before
        assert other_names(output) == names


@pytest.mark.slow
def test_speech_and_voices(
    tmp_path: Path,
    reference_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: scripted_synthesizer(good))
    out = tmp_path / "made"
    out.mkdir()
    speak = ["speak", "Hi.", "--reference", reference_file, "--output", out / "a.wav"]
    check(monkeypatch, speak, out / "a.wav")
    check(monkeypatch, [*speak[:-1], out / "b.wav", "--stream"], out / "b.wav")
    create = ["voice", "create", reference_file, "--name", "A", "--output", out / "c.voice"]
    check(monkeypatch, create, out / "c.voice")


@pytest.mark.slow
def test_corpora_shards_and_tokenizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    miniature_corpora.own_folder(tmp_path / "mine")
    out = tmp_path / "made"
    out.mkdir()
    folder = ["prepare", "folder", "--root", tmp_path / "mine", "--license", "own", "--output"]
    check(monkeypatch, [*folder, out / "corpus"], out / "corpus", replaces=False)
    manifest = out / "corpus" / "utterances.jsonl"
    check(monkeypatch, ["tokenize", manifest, *TOY_PARTS, "--output", out / "shards"], out / "shards", replaces=False)
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\n" * 50)
    tokenizer = ["train", "tokenizer", text, "--vocab-size", "270", "--output", out / "tokenizer.json"]
    check(monkeypatch, tokenizer, out / "tokenizer.json")


@pytest.mark.slow
def test_bundles(toy_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from toy_mars6 import export_by_copying, write_toy_run

    export_by_copying(toy_bundle, monkeypatch)
    out = tmp_path / "made"
    out.mkdir()
    run = write_toy_run(tmp_path / "run")
    check(monkeypatch, ["export", run, "--output", out / "b", "--name", "n", *TOY_PARTS], out / "b")
    check(monkeypatch, ["quantize", toy_bundle, "--output", out / "q"], out / "q")
    checkpoint, tokenizer = GOLDEN / "checkpoint.pt", GOLDEN / "tokenizer.model"
    parts = ["--codec", "toy:4096", "--identity", "toy:512", "--style", "toy:1024"]
    convert = ["convert", checkpoint, "--tokenizer", tokenizer, "--output", out / "c", *parts]
    check(monkeypatch, convert, out / "c")


@pytest.mark.slow
def test_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("scipy")
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "evaluation"))
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "listening_test"))
    from test_report import many, write_output

    out = tmp_path / "made"
    out.mkdir()
    folder = write_output(tmp_path / "a", many("mini", 1))
    check(monkeypatch, ["report", folder, "--output", out / "report"], out / "report")
