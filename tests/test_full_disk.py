"""A full disk under a command that writes: one sentence, exit code 2, and older outputs as they were."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marstts.cli.main import app
from marstts.io import files
from scripted import good, scripted_synthesizer
from test_fuzz_commands import time_limit

RUN = CliRunner()


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
