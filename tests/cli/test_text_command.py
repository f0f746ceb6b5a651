"""`marstts text`: what will be spoken, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from marstts.cli.text import text
from marstts.errors import ConfigError, DataError, MarsError, TextError

RUN = CliRunner()
APP = typer.Typer()
APP.command()(text)


def test_sentences_are_printed_one_a_line() -> None:
    result = RUN.invoke(APP, ["Dr. Li paid $5. Then he left."])
    assert result.stdout.splitlines() == ["Doctor Li paid five dollars.", "Then he left."]


def test_explain_names_the_rules() -> None:
    lines = RUN.invoke(APP, ["--explain", "Dr. Li paid $5 🎉."]).stdout.splitlines()
    assert lines[0] == "Doctor Li paid five dollars."
    assert [line.split() for line in lines[1:3]] == [
        ["abbreviation.title", "'Dr.'", "->", "'Doctor'"],
        ["money.symbol", "'$5'", "->", "'five", "dollars'"],
    ]
    assert lines[-1].split() == ["left", "out", "'🎉'"]
    phones = [line.split(maxsplit=1)[1] for line in lines if line.split()[0] == "phones"]
    assert phones[:2] == ["'Doctor' -> '{D AA1 K T ER0}'", "'Li' -> '{L IY1}'"] and len(phones) == 5


def test_json_holds_segments_and_steps() -> None:
    [row] = [
        json.loads(line) for line in RUN.invoke(APP, ["--json", "--explain", "5 km [pause:1s]"]).stdout.splitlines()
    ]
    assert row["segments"][0]["text"] == "five kilometers" and row["segments"][0]["pause_seconds"] == 1.0
    assert {"rule": "unit.number", "written": "5 km", "read": "five kilometers"} in row["steps"]


def test_warnings_go_to_standard_error() -> None:
    result = RUN.invoke(APP, ["Hello Привет."])
    assert result.stdout == "Hello.\n" and "Cyrillic letters" in result.stderr


def test_files_standard_input_and_ssml_are_read(tmp_path: Path) -> None:
    plain, ssml = tmp_path / "a.txt", tmp_path / "a.ssml"
    plain.write_text("# One\n- 5 km\n", encoding="utf-8")
    ssml.write_text('<speak>Hi.<break time="1s"/><voice name="anna">Ho.</voice></speak>', encoding="utf-8")
    assert RUN.invoke(APP, ["--file", str(plain)]).stdout == "One. [pause 0.5 s]\nfive kilometers\n"
    for words in (["--file", "-"], ["-"]):
        assert RUN.invoke(APP, words, input="It is 5 km.").stdout == "It is five kilometers.\n"
    assert RUN.invoke(APP, ["--file", str(ssml)]).stdout == "Hi. [pause 1 s]\nHo. [voice anna]\n"


@pytest.mark.parametrize("long", [0, 30_000])
def test_bytes_that_are_no_utf8_are_named_by_their_place(long: int, tmp_path: Path) -> None:
    content = b"Hello. " * long + b"A caf\xe9."
    (tmp_path / "a.txt").write_bytes(content)
    complaint = f"expected UTF-8 text, but byte {7 * long + 5} is no part of a letter; convert it to UTF-8"
    named = RUN.invoke(APP, ["--file", str(tmp_path / "a.txt")])
    assert str(named.exception) == f"{tmp_path / 'a.txt'}: {complaint}" and isinstance(named.exception, TextError)
    assert str(RUN.invoke(APP, ["--file", "-"], input=content).exception) == f"standard input: {complaint}"


def test_a_lexicon_is_applied(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text("nguyen\twin\n", encoding="utf-8")
    assert RUN.invoke(APP, ["--lexicon", str(path), "Nguyen left."]).stdout == "win left.\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [([], ConfigError), (["a", "--file", "b"], ConfigError), (["--file", "nope.txt"], TextError), (["🎉"], TextError),
     (["<speak>a"], TextError), (["a", "--lexicon", "nope.tsv"], DataError), (["--file", "/"], TextError)],
)  # fmt: skip
def test_what_cannot_be_read_is_one_sentence(arguments: list[str], error: type[MarsError]) -> None:
    result = RUN.invoke(APP, arguments)
    assert isinstance(result.exception, error)
    assert "\n" not in str(result.exception)


def test_the_voice_of_dialogue_is_shown() -> None:
    result = RUN.invoke(APP, ['"Is it you?" she asked.', "--dialogue", "Anna"])
    assert result.stdout.splitlines() == ['"Is it you?" [voice Anna]', "she asked."]
