"""Strings of files from others, which may hold codes that a terminal obeys, are printed as escapes."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner, Result

from marstts.cli import main as main_module
from marstts.cli.main import app
from marstts.cli.terminal import say, say_json
from marstts.errors import DataError, VoiceError, escaped
from marstts.voice import METADATA_KEY, Voice
from marstts_lab.cli import commands as lab_commands

RUN = CliRunner()
CODES = ["\x1b[31m", "\x9b31m", "\x1b]0;title\x07", "\u202e", "\x08\x7f", "\udc80", "a\rb"]


def marstts(*words: object) -> Result:
    return RUN.invoke(app, [str(word) for word in words])


def assert_harmless(text: str) -> None:
    assert all(each.isprintable() or each in "\n\t" for each in text), ascii(text)


def voice_file(path: Path, **changes: object) -> Path:
    fields = {
        "format_version": 2, "name": "v", "transcript": None, "codec": "c", "encoders": {"identity": "i"},
        "source_sha256": "0", "consent": "hers", "reference_transcript": "", "model": "m",
    }  # fmt: skip
    metadata = {METADATA_KEY: json.dumps(fields | changes)}
    safetensors.numpy.save_file({"embedding.identity": np.ones(3, np.float32)}, path, metadata)
    return path


@pytest.mark.parametrize("code", CODES)
def test_errors_show_what_they_quote_as_escapes(code: str) -> None:
    for error in (VoiceError(f"voice format {code}"), DataError(f"a\nb\t{code}")):
        assert_harmless(str(error))
    assert str(DataError("a\nb\tü")) == "a\nb\tü"


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(
    "field", ["format_version", "name", "transcript", "codec", "encoders", "consent", "model", "x"]
)
def test_fields_of_voice_files_are_printed_as_escapes(tmp_path: Path, field: str, code: str) -> None:
    if "\udc80" in code:
        code = "\x00"  # which JSON takes
    value = {code: code} if field == "encoders" else code
    path = voice_file(tmp_path / "v.voice", **{field: value})
    assert_harmless(marstts("voice", "show", path).output)
    try:
        Voice.load(path)
    except VoiceError as error:
        assert_harmless(str(error))
    else:
        assert field not in ("format_version", "x")


@pytest.mark.parametrize("code", CODES[:5])
def test_words_of_texts_and_lexicons_are_printed_as_escapes(tmp_path: Path, code: str) -> None:
    text = tmp_path / "t.txt"
    text.write_text(f"Hello {code} there. [x{code}]{{y{code}}} 5 km.", encoding="utf-8")
    for options in ([], ["--json"], ["--explain"]):
        assert_harmless(marstts("text", "--file", text, *options).output)
    lexicon = tmp_path / "words.tsv"
    lexicon.write_text(f"{code}\t{code}\nno tab {code}\n", encoding="utf-8")
    assert_harmless(marstts("text", "Hi.", "--lexicon", lexicon).output)


@pytest.mark.parametrize("code", CODES[:5])
def test_keys_and_values_of_configurations_are_printed_as_escapes(tmp_path: Path, code: str) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f"{json.dumps(code)} = {json.dumps(code)}\nseed = {json.dumps(code)}\n", encoding="utf-8")
    for words in (["estimate", config], ["train", "mars6", "--config", config, "--data", tmp_path, "--output", "x"]):
        result = marstts(*words)
        assert result.exit_code != 0
        assert_harmless(result.output)


@pytest.mark.parametrize("code", CODES)
def test_results_are_printed_as_escapes(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(f"a{code}\nü")
    say_json({code: [code, "ü"]}, indent=2)
    shown = capsys.readouterr().out
    assert_harmless(shown)
    first, _, rest = shown.partition("\nü\n")
    assert first == "a" + escaped(code) and json.loads(rest) == {code: [code, "ü"]} and "ü" in rest


def test_commands_print_by_one_function() -> None:
    """Another way of printing would show what it is given as it is."""
    folders = [Path(module.__file__).parent for module in (main_module, lab_commands)]
    for path in (path for folder in folders for path in folder.glob("*.py")):
        if path.name == "terminal.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("print", "typer.echo", "typer.secho", "click.echo"), path
