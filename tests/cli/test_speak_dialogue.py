"""`marstts speak` with several voices: dialogue, a cast file, and stems."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner, Result

from marstts.cli.cast import read_cast, read_pauses
from marstts.cli.main import app
from marstts.cli.stems import name_stems
from marstts.errors import ConfigError, VoiceError
from marstts.text.segments import Pauses
from scripted import good, scripted_synthesizer

pytestmark = pytest.mark.slow

RUN = CliRunner()
TEXT = '[voice:Old Tom] It rained. [voice:default] "Hello," she said.'


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reference_file: Path) -> Path:
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: scripted_synthesizer(good))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "voices").mkdir()
    scripted_synthesizer(good).clone(reference_file).save(tmp_path / "voices" / "tom.voice")
    return tmp_path


def speak(*arguments: str | Path) -> Result:
    return RUN.invoke(app, ["speak", *map(str, arguments)])


@pytest.mark.parametrize(
    "content",
    [
        "# who speaks\nnarrator = anna.wav\nOld Tom = voices/tom.voice\ndialogue=anna.wav\n",
        'narrator = \'anna.wav\' # a recording\n\n"Old Tom" = "voices/tom.voice"\ndialogue = "anna.wav"',
    ],
)
def test_a_cast_gives_voices_to_names_narrator_and_dialogue(folder: Path, content: str) -> None:
    (folder / "cast.txt").write_text(content)
    result = speak(TEXT, "--cast", "cast.txt", "--output", "talk.wav", "--stems", "stems", "--json")
    assert result.exit_code == 0, result.stderr
    assert [take["text"] for take in json.loads(result.stdout)["takes"]] == ["It rained.", '"Hello,"', "she said."]
    whole, _ = soundfile.read("talk.wav", dtype="int16")
    stems = {path.name: soundfile.read(path, dtype="int16")[0] for path in Path("stems").iterdir()}
    assert sorted(stems) == ["Old Tom.wav", "dialogue.wav", "narrator.wav"]
    np.testing.assert_array_equal(sum(stems.values()), whole)
    sounding = [[bool(part.any()) for part in np.array_split(stems[name], 3)] for name in sorted(stems)]
    assert sounding == [[True, False, False], [False, True, False], [False, False, True]] or all(map(any, sounding))
    assert sorted(path.name for path in Path().glob("*talk*")) == ["talk.wav"]


@pytest.mark.parametrize("dialogue", ["tom", "voices/tom.voice", "anna.wav"])
def test_dialogue_has_a_voice_by_name_or_file(folder: Path, dialogue: str) -> None:
    result = speak(
        '"Hello," she said.', "--dialogue", dialogue, "--voices", "voices", "--output", "a.wav", "--stems", "s",
        "--reference", "anna.wav",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert len(list(Path("s").iterdir())) == 2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--cast", "lost.txt"], "lost.txt"),
        (["--dialogue", "nobody"], "nobody"),
        (["--stems", "s", "--stream"], "--stems"),
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


def test_stems_have_different_names() -> None:
    assert name_stems([None, "Anna", "anna", "A/../b", None, "narrator", "!"]) == {
        None: "narrator.wav", "Anna": "Anna.wav", "anna": "anna-2.wav", "A/../b": "A-b.wav",
        "narrator": "narrator-2.wav", "!": "voice.wav",
    }  # fmt: skip
