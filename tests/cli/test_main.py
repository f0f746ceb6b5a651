"""The front door: what it lists, what it imports, and how it reports what goes wrong."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

import marstts
from marstts.cli.main import DOORS, Door, app
from marstts.errors import DataError, require

RUN = CliRunner()


@pytest.fixture
def knock(monkeypatch: pytest.MonkeyPatch):
    """Adds a command to the front door whose module the test writes."""

    def add(name: str, **attributes: object) -> None:
        module = ModuleType(f"marstts.cli.{name}")
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(DOORS, name, Door(name, "door", "A door of this test.", extra="train"))

    return add


def test_help_lists_every_command_without_importing_any(monkeypatch: pytest.MonkeyPatch):
    for module in [name for name in sys.modules if name.startswith("marstts.cli.") and name != "marstts.cli.main"]:
        monkeypatch.delitem(sys.modules, module)  # put back afterwards: other tests hold them already
    result = RUN.invoke(app, ["--help"])
    assert result.exit_code == 0
    for name, door in DOORS.items():
        assert name in result.stdout and door.help.split()[0] in result.stdout
    assert not [name for name in sys.modules if name.startswith("marstts.cli.") and name != "marstts.cli.main"]


@pytest.mark.parametrize("name", DOORS)
def test_every_door_opens(name: str):
    pytest.importorskip("torch")
    result = RUN.invoke(app, [name, "--help"])
    assert result.exit_code == 0 and f" {name} " in result.stdout


def test_version_is_printed():
    assert RUN.invoke(app, ["--version"]).stdout.strip() == f"marstts {marstts.__version__}"


def test_an_unknown_command_is_refused():
    assert RUN.invoke(app, ["sing"]).exit_code == 2


def test_a_door_may_be_a_function(knock):
    def door(count: int = 1) -> None:
        """Count something."""
        typer.echo(f"counted {count}")

    knock("count", door=door)
    assert RUN.invoke(app, ["count", "--count", "3"]).stdout.strip() == "counted 3"
    assert "Count something" in RUN.invoke(app, ["count", "--help"]).stdout


def test_a_door_may_be_an_app_of_a_single_command(knock):
    door = typer.Typer()
    door.command("studio")(lambda: typer.echo("built"))
    knock("build", door=door)
    assert RUN.invoke(app, ["build", "studio"]).stdout.strip() == "built"


def test_errors_for_people_are_one_sentence_and_exit_code_2(knock):
    def door() -> None:
        raise DataError("utterances.jsonl: no such manifest")

    knock("fail", door=door)
    result = RUN.invoke(app, ["fail"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "marstts: utterances.jsonl: no such manifest\n"


def test_bugs_keep_their_traceback(knock):
    def door() -> None:
        raise ZeroDivisionError

    knock("crash", door=door)
    assert isinstance(RUN.invoke(app, ["crash"]).exception, ZeroDivisionError)


def test_a_missing_extra_is_one_sentence_that_says_what_to_install(knock, monkeypatch: pytest.MonkeyPatch, tmp_path):
    (tmp_path / "needs_extra.py").write_text("import a_package_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("marstts.cli.__path__", [str(tmp_path), *sys.modules["marstts.cli"].__path__])
    monkeypatch.setitem(DOORS, "needs", Door("needs_extra", "door", "Needs.", extra="train"))
    result = RUN.invoke(app, ["needs"])
    assert result.exit_code == 2
    assert "a_package_nobody_has" in result.stderr and "pip install 'marstts[train]'" in result.stderr
    assert result.stderr.count("\n") == 1

    knock("late", door=lambda: require("another_package_nobody_has", "eval"))
    assert "pip install 'marstts[eval]'" in RUN.invoke(app, ["late"]).stderr
