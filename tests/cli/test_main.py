"""The command `marstts`: its list of commands, its imports, and its errors."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

import marstts
from light_install import WITHOUT_EXTRAS
from marstts.cli.commands import LazyCommand
from marstts.cli.main import COMMANDS, app
from marstts.cli.terminal import silence_libraries
from marstts.errors import DataError
from scripted import ScriptedPrompt, ScriptedTake, good, scripted_synthesizer

pytestmark = pytest.mark.slow

RUN = CliRunner()


@pytest.fixture
def add_command(monkeypatch: pytest.MonkeyPatch):
    """Adds a command whose module the test writes."""

    def add(name: str, **attributes: object) -> None:
        module = ModuleType(f"marstts.cli.{name}")
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(COMMANDS, name, LazyCommand(name, "command", "A command of this test.", extra="train"))

    return add


@pytest.mark.parametrize("words", [["out.wav"], ["out.wav", "--stream"], ["out.flac"]])
def test_sigterm_ends_a_command_with_one_line_and_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words):
    def end(attempt: int, prompt: ScriptedPrompt) -> ScriptedTake:
        os.kill(os.getpid(), signal.SIGTERM)
        return good(attempt, prompt)

    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: scripted_synthesizer(end))
    monkeypatch.chdir(tmp_path)
    Path(words[0]).write_bytes(b"an older recording")
    result = RUN.invoke(app, ["speak", "The cat sat.", "--output", *words])
    assert (result.exit_code, result.output) == (143, "marstts: ended by SIGTERM\n")
    assert Path(words[0]).read_bytes() == b"an older recording"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_sigterm_ends_forked_processes_as_before(add_command):
    def command() -> None:
        if (child := os.fork()) == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        print(f"{-os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")

    add_command("forks", command=command)
    assert RUN.invoke(app, ["forks"]).stdout == f"{signal.SIGTERM.value}\n"


def test_help_lists_every_command_without_importing_any(monkeypatch: pytest.MonkeyPatch):
    for module in [name for name in sys.modules if name.startswith("marstts.cli.") and name != "marstts.cli.main"]:
        monkeypatch.delitem(sys.modules, module)  # put back afterward: other tests hold them already
    result = RUN.invoke(app, ["--help"])
    assert result.exit_code == 0
    for name, command in COMMANDS.items():
        assert name in result.stdout and command.help.split()[0] in result.stdout
    assert not [name for name in sys.modules if name.startswith("marstts.cli.") and name != "marstts.cli.main"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_prints_its_help(name: str):
    pytest.importorskip("torch")
    result = RUN.invoke(app, [name, "--help"])
    assert result.exit_code == 0 and f" {name} " in result.stdout


@pytest.mark.parametrize(
    "words", [["text", "--explain", "a \u2248 b \u65e5"], ["voice", "show", "\u65e5.voice"], ["--help"]]
)
def test_an_old_encoding_of_the_console_ends_no_command(words: list[str]):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    found = subprocess.run([sys.executable, "-m", "marstts", *words], env=environment, capture_output=True, check=False)
    assert found.returncode == (2 if "show" in words else 0) and b"Traceback" not in found.stderr
    assert found.stdout + found.stderr


def test_version_is_printed():
    assert RUN.invoke(app, ["--version"]).stdout.strip() == f"marstts {marstts.__version__}"


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["spaek", "Hi."], "Did you mean 'speak'?"),
        (["voice", "lst"], "Did you mean 'list'?"),
        (["speak", "Hi.", "--voice", "emna"], "did you mean 'emma'?"),
        (["speak", "Hi.", "--model", "min"], "did you mean 'mini'?"),
    ],
)
def test_mistyped_names_are_refused_with_a_suggestion(arguments: list[str], suggestion: str):
    result = RUN.invoke(app, arguments)
    assert result.exit_code == 2 and suggestion in result.stderr


ALL_HELPS = """
import typer
from typer.testing import CliRunner
from marstts.cli.main import COMMANDS

def helps(*words):
    result = CliRunner().invoke(app, [*words, "--help"])
    print(*words, result.exit_code, "Usage:" in result.stdout, "options are listed once" in result.stdout, sep="|")

for name, command in COMMANDS.items():
    helps(name)
    for child in getattr(command.open(name), "commands", ()):
        helps(name, child)
"""


@pytest.mark.end_to_end
def test_every_command_prints_its_options_in_the_light_install(light_install: LightInstall):
    rows = [line.split("|") for line in light_install.helps]
    assert {row[0] for row in rows} == set(COMMANDS) and len(rows) > len(COMMANDS) + 10
    assert [row for row in rows if row[-3:] != ["0", "True", "False"]] == []


CALLS_THAT_NEED_AN_EXTRA = {
    "train codec --config c.toml --data u.jsonl --output out": "train",
    "train mars6 --config c.toml --data shards --output out": "train",
    "train speaker --config c.toml --data u.jsonl --output out": "train",
    "finetune --data recordings --output out": "train",
    "preference train mini --pairs p --held-out h --config c.toml --output out": "train",
    "export run --name a --output out": "train",
    "quantize mini --output out": "train",
    "convert model.pt --tokenizer t --output out": "released",
    "serve": "serve",
    "evaluate --system mini": "eval",
    "speak Hi. --engine torch": "torch",
    "speak Hi. --stream": "play",
}
"""Commands whose packages are missing, complete otherwise, and the extra that each must name."""

CALLS = f"""
import json, shlex
from typer.testing import CliRunner
for line in {list(CALLS_THAT_NEED_AN_EXTRA)}:
    result = CliRunner().invoke(app, shlex.split(line))
    print(json.dumps([line, result.exit_code, result.stderr, repr(result.exception)]))
"""


@dataclass(frozen=True)
class LightInstall:
    """What one interpreter without extras printed."""

    calls: list[str]
    helps: list[str]
    folder: Path
    """Where it worked."""


@pytest.fixture(scope="module")
def light_install(tmp_path_factory: pytest.TempPathFactory) -> LightInstall:
    folder = tmp_path_factory.mktemp("light")
    script = WITHOUT_EXTRAS.replace("app()", f"{CALLS}\nprint('---')\n{ALL_HELPS}")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=folder)
    calls, helps = done.stdout.split("---\n")
    return LightInstall(calls.splitlines(), helps.splitlines(), folder)


def test_a_missing_extra_is_named_in_one_sentence_before_any_work(light_install: LightInstall):
    for line, exit_code, message, error in map(json.loads, light_install.calls):
        assert exit_code == 2 and message.count("\n") == 1, f"{line}: {message} {error}"
        assert f"pip install 'marstts[{CALLS_THAT_NEED_AN_EXTRA[line]}]'" in message, f"{line}: {message}"
    assert not list(light_install.folder.iterdir()), "something was written before the packages were checked"


def test_warnings_of_libraries_about_themselves_are_hidden_unless_asked_for(monkeypatch: pytest.MonkeyPatch):
    def shown() -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            silence_libraries()
            warnings.warn("pkg_resources is deprecated as an API.", UserWarning, stacklevel=1)
            warnings.warn("operator torchvision::nms does not exist", UserWarning, stacklevel=1)
            warnings.warn("this will change", FutureWarning, stacklevel=1)
            warnings.warn("the recording is short", UserWarning, stacklevel=1)
        return [str(warning.message) for warning in caught]

    monkeypatch.setattr(sys, "warnoptions", [])
    assert shown() == ["the recording is short"]
    monkeypatch.setattr(sys, "warnoptions", ["default"])
    assert len(shown()) == 4


def test_errors_for_users_are_one_sentence_and_exit_code_2(add_command):
    def command() -> None:
        raise DataError("utterances.jsonl: no such manifest")

    add_command("fail", command=command)
    result = RUN.invoke(app, ["fail"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "marstts: utterances.jsonl: no such manifest\n"


def test_bugs_keep_their_traceback(add_command):
    def command() -> None:
        raise ZeroDivisionError

    add_command("crash", command=command)
    assert isinstance(RUN.invoke(app, ["crash"]).exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), "there is not enough memory"),
        (OSError(errno.ENOSPC, "x"), "the command cannot continue: the disk is full"),
    ],
    ids=["memory", "disk"],
)
def test_what_the_machine_lacks_is_one_sentence(error, sentence, monkeypatch):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("marstts.cli.text.read_lexicon", fail)
    result = RUN.invoke(app, ["text", "Hi.", "--lexicon", "a.txt"])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"marstts: {sentence}") and len(result.stderr.splitlines()) == 1


@pytest.mark.end_to_end
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of a process on Linux")
@pytest.mark.parametrize(("limit", "value"), [("RLIMIT_NOFILE", 9), ("RLIMIT_DATA", 115 * 2**20)])
def test_a_process_with_low_limits_ends_in_one_sentence_and_keeps_the_older_output(limit, value, tmp_path):
    import resource

    output = tmp_path / "o.wav"
    output.write_bytes(b"older")
    done = subprocess.run(
        [sys.executable, "-m", "marstts", "speak", "Hi.", "--voice", "ada", "--output", output],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(getattr(resource, limit), (value, value)),
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.startswith("marstts: ") and output.read_bytes() == b"older"
