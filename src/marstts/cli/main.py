"""The command `marstts`: a list of doors, each opened only when it is walked through.

Upstream: the shell.  Downstream: the sibling modules, one per command. Importing this module imports none of them, so
speaking needs no PyTorch and `--help` is quick. Errors meant for people end here: one sentence, exit code 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import marstts
from marstts.errors import MarsError, MissingExtraError


@dataclass(frozen=True)
class Door:
    """One sub-command: where it lives and what to say of it before it is imported."""

    module: str
    """Module in `marstts.cli`."""

    attribute: str
    """The function, or the typer app of several commands, in that module."""

    help: str

    extra: str | None = None
    """What to install besides the light package."""

    def open(self, name: str) -> Any:
        """The command itself, freshly imported; raises MissingExtraError where its extra is not installed."""
        try:
            found = getattr(import_module(f"marstts.cli.{self.module}"), self.attribute)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if self.extra is None or package in ("", "marstts"):
                raise
            raise MissingExtraError(
                f"`marstts {name}` needs the package {package!r}, which is not installed: "
                f"pip install 'marstts[{self.extra}]'"
            ) from error
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        single = typer.Typer(add_completion=False)
        single.command(name)(found)
        return typer.main.get_command(single)


DOORS = {
    "speak": Door("speak", "speak", "Speak a text in the voice of a recording."),
    "voice": Door("voice", "app", "Make voice files from recordings, and look into them."),
    "prepare": Door("prepare", "app", "Prepare a corpus for training.", extra="studio"),
    "tokenize": Door("tokenize", "tokenize", "Turn a corpus into shards of codes and embeddings.", extra="train"),
    "plan": Door("plan", "plan", "Reckon what a training will take.", extra="train"),
    "train": Door("train", "app", "Train a codec, speaker encoders or a MARS6.", extra="train"),
    "mine": Door("mine", "mine", "Let a model speak, to find where it fails.", extra="eval"),
    "rank": Door("rank", "rank", "Turn mined takes into preference pairs.", extra="eval"),
    "tune": Door("tune", "tune", "Tune a model by preference pairs.", extra="train"),
    "export": Door("export", "export", "Bundle a trained MARS6 with all it speaks with.", extra="train"),
    "optimise": Door("export", "optimise", "Make a model speak faster, in integers.", extra="train"),
    "convert": Door("convert", "convert", "Turn the authors' checkpoint into a model.", extra="released"),
    "benchmark": Door("benchmark", "benchmark", "Measure speed, latency and memory on this machine."),
    "evaluate": Door("evaluate", "evaluate", "Judge speech beside real recordings.", extra="eval"),
    "listen": Door("listen", "app", "Let people judge speech: a page for listeners.", extra="listen"),
    "report": Door("report", "report", "Put judged systems side by side.", extra="eval"),
}


class DoorGroup(TyperGroup):
    """The group of all doors. What it lists are signs; the command behind a sign is imported when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(DOORS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return TyperCommand(cmd_name, help=DOORS[cmd_name].help) if cmd_name in DOORS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, sign, rest = super().resolve_command(ctx, args)
        return name, sign if name is None else DOORS[name].open(name), rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MarsError as error:
            typer.echo(f"marstts: {error}", err=True)
            raise typer.Exit(code=2) from error


app = typer.Typer(cls=DoorGroup, no_args_is_help=True, pretty_exceptions_enable=False)


def print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"marstts {marstts.__version__}")
        raise typer.Exit()


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """MARS6 voice-cloning speech synthesis: speak, and everything that makes a model speak."""
