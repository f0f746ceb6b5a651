"""`marstts speak` with several voices: dialogue and a cast file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from marstts.cli.cast import read_cast, read_pauses
from marstts.cli.main import app
from marstts.errors import ConfigError, VoiceError
from marstts.text.segments import Pauses
from scripted import ScriptedModel, good, scripted_synthesizer

pytestmark = pytest.mark.slow

RUN = CliRunner()
TEXT = '[voice:Old Tom] It rained. [voice:default] "Hello," she said.'


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reference_file: Path) -> Path:
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: scripted_synthesizer(good))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "voices").mkdir()
    tom = replace(scripted_synthesizer(good).clone(reference_file), name="Tom")
    tom.save(tmp_path / "voices" / "tom.voice")
    return tmp_path


@pytest.fixture
def speakers(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The name of the voice that speaks each sentence."""
    found: dict[str, str] = {}
    prompt = ScriptedModel.prompt
    monkeypatch.setattr(
        ScriptedModel,
        "prompt",
        lambda model, text, voice: found.update({text: voice.name}) or prompt(model, text, voice),
    )
    return found


def speak(*arguments: str | Path) -> Result:
    return RUN.invoke(app, ["speak", *map(str, arguments)])


@pytest.mark.parametrize(
    "content",
    [
        "# who speaks\nnarrator = anna.wav\nOld Tom = voices/tom.voice\ndialogue=voices/tom.voice\n",
        'narrator = \'anna.wav\' # a recording\n\n"Old Tom" = "voices/tom.voice"\ndialogue = "voices/tom.voice"',
    ],
)
def test_a_cast_gives_voices_to_names_narrator_and_dialogue(
    folder: Path, content: str, speakers: dict[str, str]
) -> None:
    (folder / "cast.txt").write_text(content)
    result = speak(TEXT, "--cast", "cast.txt", "--output", "talk.wav", "--json")
    assert result.exit_code == 0, result.stderr
    assert [take["text"] for take in json.loads(result.stdout)["takes"]] == ["It rained.", '"Hello,"', "she said."]
    assert speakers == {"It rained.": "Tom", '"Hello,"': "Tom", "she said.": "anna"}
    assert sorted(path.name for path in Path().glob("*talk*")) == ["talk.wav"]


@pytest.mark.parametrize(("dialogue", "name"), [("tom", "Tom"), ("voices/tom.voice", "Tom"), ("anna.wav", "anna")])
def test_dialogue_has_a_voice_by_name_or_file(folder: Path, dialogue: str, name: str, speakers: dict[str, str]) -> None:
    result = speak(
        '"Hello," she said.', "--dialogue", dialogue, "--voices", "voices", "--output", "a.wav",
        "--reference", "anna.wav",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert speakers == {'"Hello,"': name, "she said.": "anna"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--cast", "lost.txt"], "lost.txt"),
        (["--dialogue", "nobody"], "nobody"),
        (["--pauses", "para=1"], "did you mean 'paragraph'"),
        (["--chapters", "2"], "the book has 1 chapter"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(folder: Path, options: list[str], complaint: str) -> None:
    (folder / "a.txt").write_text("Hello.")
    result = speak("--file", "a.txt", "--output", "a.wav", *options)
    assert result.exit_code == 2 and complaint in result.stderr and result.stderr.count("\n") == 1
    assert not Path("a.wav").exists()


@pytest.mark.parametrize("line", ["Anna", "= ada", "Anna =", "[cast]", "Tom = ada\nTom = emma", '"" = ada'])
def test_a_line_of_a_cast_has_a_name_and_a_voice(folder: Path, line: str) -> None:
    (folder / "cast.txt").write_text(line)
    with pytest.raises(VoiceError, match=r"cast\.txt:\d"):
        read_cast(folder / "cast.txt")


def test_pauses_are_named() -> None:
    assert read_pauses(None) == Pauses()
    assert read_pauses("sentence=0.5, end=2") == Pauses(sentence=0.5, end=2.0)
    for stated in ("", "end", "end=", "end=x", "end=-1", "end=nan", "end=1e9", "start=1"):
        with pytest.raises(ConfigError):
            read_pauses(stated)
