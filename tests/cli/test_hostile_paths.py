"""Links, pipes, devices and impossible names in the place of files that commands read and write."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import soundfile
from typer.testing import CliRunner

from marstts.cli.main import app
from marstts.errors import AudioError
from marstts.io.files import lock_folder
from marstts.synthesis.loading import load
from scripted import good, scripted_synthesizer
from small_epub import write_small_epub

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX links and pipes"),
]
RUN = CliRunner()


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: scripted_synthesizer(good))
    Path("victim").write_text("precious")
    os.mkfifo("pipe")


def refusal(*words: Any) -> str:
    """The one sentence of a command that is refused at once."""
    started = time.monotonic()
    result = RUN.invoke(app, [*map(str, words)])
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit), (words, result.exception)
    assert time.monotonic() - started < 20.0
    [sentence] = [line for line in result.stderr.splitlines() if line.startswith("marstts: ")]
    assert sentence.isprintable() and Path("victim").read_text() == "precious"
    return sentence


@pytest.mark.parametrize(
    "words",
    [
        ["voice", "create", "victim", "--name", "me", "--output"],
        ["speak", "Hi.", "--reference", "victim", "--output"],
        ["speak", "Hi.", "--voice", "victim", "--output"],
        ["speak", "--file", "victim", "--words"],
        ["evaluate", "testset", "victim", "--output"],
        ["train", "tokenizer", "victim", "--output"],
    ],
)
@pytest.mark.parametrize("link", [False, True])
def test_a_file_that_is_read_is_not_overwritten(words: list[str], link: bool) -> None:
    output = "a.srt" if "--words" in words else "a.wav"
    os.rename("victim", output)
    if link:
        os.link(output, "other" + output)
    Path("victim").symlink_to(output)  # what `refusal` looks at
    assert "would be overwritten" in refusal(*words, "other" + output if link else output)


@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "/dev/full", ".", "no\nsuch\x1b[2Jfile", "a" * 300])
@pytest.mark.parametrize(
    "words",
    [
        ["speak", "Hi.", "--lexicon"],
        ["text", "Hi.", "--lexicon"],
        ["text", "--file"],
        ["speak", "--file"],
        ["speak", "--output", "folder/", "--file"],
        ["speak", "--batch", "1", "--output", "folder", "--file"],
        ["speak", "Hi.", "--reference"],
        ["speak", "Hi.", "--voice"],
        ["speak", "Hi.", "--model"],
        ["voice", "show"],
    ],
    ids=" ".join,
)
def test_inputs_that_are_no_files_are_refused(
    words: list[str], name: str, monkeypatch: pytest.MonkeyPatch, reference_file: Path
) -> None:
    if "--model" in words:
        monkeypatch.setattr("marstts.cli.speak.load", load)
    refusal(*words, name)


@pytest.mark.parametrize("more", [[], ["--stream"]], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "name", ["a" * 300 + ".wav", "é" * 130 + ".wav", "pipe.wav", "full.wav", "loop.wav", "dir.wav"]
)
def test_outputs_that_cannot_be_written_are_refused(name: str, more: list[str], reference_file: Path) -> None:
    os.mkfifo("pipe.wav")
    Path("full.wav").symlink_to("/dev/full")
    Path("loop.wav").symlink_to("loop.wav")
    Path("dir.wav").mkdir()
    refusal("speak", "The cat sat.", "--reference", reference_file, "--output", name, *more)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("victim")])
def test_the_unfinished_file_of_a_stream_is_none_of_others(make: Any, reference_file: Path) -> None:
    make(Path("a.partial.wav"))
    refusal("speak", "The cat sat.", "--reference", reference_file, "--output", "a.wav", "--stream")


def test_a_lock_that_is_a_link_is_refused() -> None:
    Path("folder").mkdir()
    Path("folder/.lock").symlink_to(Path("victim").resolve())
    with pytest.raises(AudioError, match="cannot be locked"), lock_folder("folder", AudioError):
        pass
    assert Path("victim").read_text() == "precious"


@pytest.mark.parametrize("name", ["report.jsonl", "0001.wav"])
def test_links_in_the_folder_of_a_batch_are_not_followed(name: str, reference_file: Path) -> None:
    Path("lines.txt").write_text("The cat sat.\n")
    Path("out").mkdir()
    Path("out", name).symlink_to(Path("victim").resolve())
    words = ["speak", "--file", "lines.txt", "--reference", reference_file, "--batch", "1", "--output", "out"]
    assert "link" in refusal(*words)


def test_links_in_the_folder_of_a_book_are_not_followed(reference_file: Path) -> None:
    Path("out").mkdir()
    Path("out", "01-the-harbor.mp3").symlink_to(Path("victim").resolve())
    book = write_small_epub(Path("a.epub"))
    assert "link" in refusal("speak", "--file", book, "--reference", reference_file, "--output", "out/")


@pytest.mark.end_to_end
@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_neither_an_error_nor_part_of_the_output(closed: str, tmp_path: Path) -> None:
    """A file that is opened where standard error was closed would get what libraries print."""
    words = f'"{sys.executable}" -m marstts speak "Hi." --voice ada --output out.wav {closed}'
    assert subprocess.run(["sh", "-c", words], cwd=tmp_path, timeout=120, check=False).returncode == 0
    assert soundfile.info(tmp_path / "out.wav").duration > 0.1
