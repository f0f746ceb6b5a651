"""Commands before they are imported: those that speak and serve, and those that another package registers.

Upstream: the package `marstts_lab`, if it is installed, which is found by its name: nothing in here imports it.
Downstream: `main`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer

from marstts.errors import MissingExtraError

LAB = "marstts_lab"


@dataclass(frozen=True)
class LazyCommand:
    """One sub-command: its module, and its help before that is imported."""

    module: str
    """Module in `package`."""

    attribute: str
    """The function, or the typer app of several commands, in that module."""

    help: str

    extra: str = "torch"
    """The extra of the package that it needs; what needs none may still import PyTorch for an engine."""

    package: str = "marstts.cli"

    def open(self, name: str) -> Any:
        """The command itself, freshly imported; raises MissingExtraError where its extra is not installed."""
        try:
            found = getattr(import_module(f"{self.package}.{self.module}"), self.attribute)
        except ModuleNotFoundError as error:
            self.raise_if_extra_is_missing(name, error)
            raise
        if isinstance(found, typer.Typer):
            return hide_types_of_flags(typer.main.get_group(found))
        single = typer.Typer(add_completion=False)
        single.command(name)(found)
        return hide_types_of_flags(typer.main.get_command(single))

    def raise_if_extra_is_missing(self, name: str, error: ModuleNotFoundError) -> None:
        """Raise MissingExtraError, which names the extra, where a package of it could not be imported."""
        package = (error.name or "").partition(".")[0]
        if package in ("", "marstts", "marstts_lab"):
            return
        raise MissingExtraError(
            f"`marstts {name}` needs the package {package!r}, which is not installed: "
            f"pip install 'marstts[{self.extra}]'"
        ) from error


def hide_types_of_flags(command: Any) -> Any:
    """The command, whose help shows `--json` instead of `--json <bool>`: a flag takes no value."""
    get_params = command.get_params

    def get_params_without_types(ctx: Any) -> list[Any]:
        found = list(get_params(ctx))
        for option in found:
            if getattr(option, "is_flag", False):
                option.metavar = ""
        return found

    command.get_params = get_params_without_types
    for single in getattr(command, "commands", {}).values():
        hide_types_of_flags(single)
    return command


COMMANDS = {
    "speak": LazyCommand("speak", "speak", "Speak a text in the voice of a recording."),
    "text": LazyCommand("text", "text", "Print the sentences that will be spoken, and which rule read what."),
    "voice": LazyCommand("voice", "app", "Create, list, inspect, rename and delete voices."),
    "convert": LazyCommand("convert", "convert", "Convert a published checkpoint to a bundle.", extra="released"),
    "doctor": LazyCommand(
        "doctor", "doctor", "Examine a model before it is used, or a machine before a recipe.", extra="released"
    ),
    "serve": LazyCommand("serve", "serve", "Serve speech over HTTP.", extra="serve"),
    "web": LazyCommand("web", "web", "Write a static site that speaks in the browser."),
}


def all_commands() -> Mapping[str, LazyCommand]:
    """The commands of this package, and those of the lab where it is installed, which import none of what they run."""
    if find_spec(LAB) is None:
        return COMMANDS
    registered: Mapping[str, LazyCommand] = import_module(f"{LAB}.cli.commands").COMMANDS
    return {**COMMANDS, **registered}
