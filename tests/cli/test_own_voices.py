"""`marstts voice create … --name me`, and then `--voice me`: the user's own voices on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from marstts.cli.main import app
from marstts.synthesis.clone.voice_folder import VoiceFolder
from scripted import ScriptedModel, good, scripted_synthesizer

pytestmark = pytest.mark.slow

RUN = CliRunner()


@pytest.fixture(autouse=True)
def scripted_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: scripted_synthesizer(good))
    monkeypatch.setattr("marstts.cli.voice.load", lambda model: scripted_synthesizer(good))
    monkeypatch.chdir(tmp_path)


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


def run(*arguments: str | Path) -> Result:
    return RUN.invoke(app, [*map(str, arguments)])


def done(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def assert_refused(result: Result, *complaints: str) -> None:
    assert result.exit_code == 2 and result.stdout == "" and result.stderr.count("\n") == 1, result.output
    assert all(complaint in result.stderr for complaint in complaints), result.stderr


@pytest.fixture
def me(reference_file: Path) -> str:
    done("voice", "create", reference_file, "--name", "me", "--consent", "my own voice")
    return "me"


def test_a_voice_is_created_and_spoken_with_by_its_name(me: str, speakers: dict[str, str]):
    assert [path.name for path in Path().glob("*")] == ["anna.wav"], "nothing is written beside the recording"
    for name in ("me", "ME"):
        done("speak", "The cat sat.", "--voice", name, "--output", "a.wav")
    assert speakers == {"The cat sat.": "me"}


def test_own_voices_are_listed_shown_renamed_and_deleted(me: str):
    assert "your own, shallow" in done("voice", "list") and "my own voice" in done("voice", "list")
    [row] = [row for row in json.loads(done("voice", "list", "--json")) if row["name"] == "me"]
    assert row["kind"] == "shallow" and row["consent"] == "my own voice"
    assert "my own voice" in done("voice", "show", "me") and "name:          ada" in done("voice", "show", "ada")
    assert "me is now Me Myself" in done("voice", "rename", "me", "Me Myself")
    assert run("voice", "show", "me").exit_code == 2
    assert "deleted Me Myself" in done("voice", "delete", "Me Myself")
    assert "your own" not in done("voice", "list") and len(VoiceFolder()) == 0


@pytest.mark.parametrize("name", ["ada", "Ada", "alloy", "me", "", "narrator"])
def test_a_taken_name_is_refused_before_the_model_is_loaded(
    me: str, reference_file: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("marstts.cli.voice.load", lambda model: pytest.fail("loaded"))
    assert_refused(run("voice", "create", reference_file, "--name", name), "name")
    if name != "me":
        assert_refused(run("voice", "rename", "me", name), "name")
    assert [entry.name for entry in VoiceFolder().entries()] == ["me"]


def test_a_voice_that_is_not_the_users_own_is_neither_renamed_nor_deleted(me: str):
    for command in (["rename", "mee", "you"], ["delete", "me", "mee"]):
        assert_refused(run("voice", *command), "mee: you have no voice", "did you mean 'me'")
    for command in (["rename", "ada", "you"], ["delete", "ada"]):
        assert_refused(run("voice", *command), "packaged voice")
    assert_refused(run("voice", "delete", "../me"), "no voice of this name")
    assert list(VoiceFolder()) == ["me"], "none is deleted where one is not there"


def test_an_unknown_name_is_refused_with_own_names(me: str):
    assert_refused(run("speak", "Hi.", "--voice", "mee"), "ada", "did you mean 'me'")


@pytest.mark.parametrize("mark", ["[voice:me] It rained.", '<speak><voice name="Me">It rained.</voice></speak>'])
def test_a_text_may_name_an_own_voice(me: str, mark: str, speakers: dict[str, str]):
    done("speak", mark, "--voice", "anna.wav", "--output", "a.wav")
    assert speakers == {"It rained.": "me"}


@pytest.mark.parametrize("name", ["anna.wav", "./anna.wav", "../anna.wav"])
def test_a_text_never_names_a_file(me: str, name: str):
    assert_refused(run("speak", f"[voice:{name}] It rained.", "--output", "a.wav"), "expected")


def test_a_cast_and_dialogue_may_name_an_own_voice(me: str, speakers: dict[str, str]):
    Path("cast.txt").write_text("narrator = anna.wav\nOld Tom = me\n")
    done("speak", '[voice:Old Tom] It rained. [voice:default] "Hello," she said.', "--cast", "cast.txt",
         "--dialogue", "me", "--output", "a.wav")  # fmt: skip
    assert speakers == {"It rained.": "me", '"Hello,"': "me", "she said.": "anna"}


def test_a_voice_of_a_folder_is_named_by_voice_and_by_the_text(reference_file: Path, speakers: dict[str, str]):
    Path("voices").mkdir()
    done("voice", "create", reference_file, "--name", "Tom", "--output", "voices/tom.voice")
    for options in (["It rained.", "--voice", "tom"], ["[voice:tom] It snowed."]):
        done("speak", *options, "--voices", "voices", "--output", "a.wav")
    done("voice", "create", reference_file, "--name", "me")  # whose folder has ids as names
    done("speak", "It thawed.", "--voice", "me", "--voices", VoiceFolder().folder, "--output", "a.wav")
    assert speakers == {"It rained.": "Tom", "It snowed.": "Tom", "It thawed.": "me"}


def test_a_new_voice_does_not_make_a_book_begin_anew(me: str, reference_file: Path):
    Path("book.txt").write_text("Title: A Walk\n\nIt rained.\n")
    done("speak", "--file", "book.txt", "--voice", "me", "--output", "book/")
    made = {path: path.stat().st_mtime_ns for path in Path("book").glob("*.mp3")}
    done("voice", "create", reference_file, "--name", "another")
    assert "1 kept" in done("speak", "--file", "book.txt", "--voice", "me", "--output", "book/")
    assert made and made == {path: path.stat().st_mtime_ns for path in Path("book").glob("*.mp3")}


LINES = """The cat sat.
[voice:me] It rained.
[voice:Tom] It snowed.
"Hello," she said.
"""


def test_lines_of_a_batch_are_spoken_by_own_and_named_voices(me: str, reference_file: Path, speakers: dict[str, str]):
    Path("lines.txt").write_text(LINES)
    Path("voices").mkdir()
    done("voice", "create", reference_file, "--name", "Tom", "--output", "voices/tom.voice")
    batch = ["speak", "--file", "lines.txt", "--batch", "2", "--voices", "voices", "--dialogue", "me"]
    assert "4 " in done(*batch, "--voice", "tom", "--output", "out")
    assert speakers == {
        "The cat sat.": "Tom", "It rained.": "me", "It snowed.": "Tom", '"Hello,"': "me", "she said.": "Tom",
    }  # fmt: skip
    Path("lines.txt").write_text("It thawed.\n")
    done("speak", "--file", "lines.txt", "--batch", "2", "--voices", VoiceFolder().folder, "--voice", "ME", "-o", "own")
    assert speakers["It thawed."] == "me"


def test_pauses_count_for_the_lines_of_a_batch(me: str):
    Path("lines.txt").write_text("It rained. It snowed.\n")
    for folder, pauses in (("short", "sentence=0.3"), ("long", "sentence=2")):
        done("speak", "--file", "lines.txt", "--batch", "1", "--voice", me, "--pauses", pauses, "--output", folder)
    sizes = [len(Path(folder, "0001.wav").read_bytes()) for folder in ("short", "long")]
    assert sizes[1] - sizes[0] > 24_000
