"""Commands with unusual names, options, texts, interrupts and networks."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from marstts.cli.main import app
from marstts.cli.terminal import configure_logging
from marstts.errors import AudioError
from marstts.io.files import lock_folder
from marstts.synthesis.loading import load
from scripted import good, scripted_synthesizer

RUN = CliRunner()
TOY_PARTS = ["--codec", "toy:64", "--identity", "toy:5", "--style", "toy:7"]
posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX names and signals")


@pytest.fixture(autouse=True)
def scripted_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: scripted_synthesizer(good))
    monkeypatch.setattr("marstts.cli.voice.load", lambda model: scripted_synthesizer(good))
    monkeypatch.chdir(tmp_path)


def marstts(*words: object) -> Result:
    return RUN.invoke(app, [str(word) for word in words])


def sentence_of(result: Result) -> str:
    """The one printable sentence of a command that refuses."""
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("marstts: ") and result.stderr.count("\n") == 1
    assert result.stderr[:-1].isprintable()
    return result.stderr


@pytest.mark.slow
@posix
@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2Jb", os.fsdecode(b"a\xffb")])
def test_strange_names_are_printed_escaped_on_one_line(name: str, reference_file: Path) -> None:
    escaped = {"a\nb": r"a\nb", "a\x1b[2Jb": r"a\x1b[2Jb"}.get(name, r"a\xffb")
    written = marstts("speak", "Hi.", "--reference", reference_file, "--output", f"{name}.wav")
    assert written.exit_code == 0 and written.stdout.startswith(f"Wrote {escaped}.wav (")
    made = marstts("voice", "create", reference_file, "--name", "A", "--output", f"{name}.voice")
    assert made.exit_code == 0 and made.stdout.startswith(f"{escaped}.voice: ")
    for words in (
        ["voice", "show", f"{name}.nothing"],
        ["speak", "Hi.", "--voice", name],
        ["speak", "--file", name],
        ["tokenize", name, "--output", "out", *TOY_PARTS],
        ["quantize", name, "--output", "out"],
    ):
        assert escaped in sentence_of(marstts(*words))


def test_records_of_the_log_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    logging.getLogger("marstts.test").warning("%s: odd", "a\nb\x1b[2J")
    assert capsys.readouterr().err == "warning: a\\nb\\x1b[2J: odd\n"


@posix
@pytest.mark.parametrize(
    "words",
    [
        ["speak", "H\udcffi."],
        ["voice", "create", "REF", "--name", "A\udcff", "--output", "a.voice"],
        ["export", "run", "--name", "A\udcff", "--output", "out"],
        ["voice", "create", "REF", "--name", "A", "--consent", "\udcff", "--output", "a.voice"],
    ],
)
def test_texts_that_are_no_utf8_are_refused(words: list[str], reference_file: Path) -> None:
    output = sentence_of(marstts(*[str(reference_file) if word == "REF" else word for word in words]))
    assert "expected UTF-8 text" in output and r"\xff" in output
    assert not Path("a.voice").exists() and not Path("speech.wav").exists()


def test_an_unknown_model_lists_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marstts.cli.speak.load", load)
    output = sentence_of(marstts("speak", "Hi.", "--model", "nobody"))
    assert "nobody: neither a folder nor the name of a model: mini, " in output and ", mars6-turbo, " in output


def test_a_text_in_another_script_gives_the_language_of_the_model(reference_file: Path) -> None:
    output = sentence_of(marstts("speak", "Привет, мир", "--reference", reference_file))
    assert "the model speaks English" in output
    mixed = marstts("speak", "The cat 你好 sat.", "--reference", reference_file)
    assert mixed.exit_code == 0 and "left out what cannot be spoken: " in mixed.stderr and "你 好" in mixed.stderr


@pytest.mark.parametrize("number", ["nan", "inf", "1e308"])
def test_numbers_out_of_range_are_refused_by_name(
    number: str, reference_file: Path, toy_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marstts.cli.speak.load", load)
    words = ["speak", "Hi.", "--model", toy_bundle, "--reference", reference_file, "--top-p", number]
    assert str(float(number)) in sentence_of(marstts(*words))


def test_a_second_batch_in_one_folder_is_refused(reference_file: Path) -> None:
    Path("lines.txt").write_text("The cat sat.\n")
    words = ["speak", "--file", "lines.txt", "--reference", reference_file, "--batch", "1", "--output", "out"]
    with lock_folder("out", AudioError):
        assert "another process is working in this folder" in sentence_of(marstts(*words))
    assert marstts(*words).exit_code == 0
