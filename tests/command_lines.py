"""Command lines written in scripts and documents, parsed as `marstts` parses them, without running them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from marstts.cli.main import COMMANDS, app


def parse(arguments: Sequence[str]) -> None:
    """Read the words after `marstts` up to where it would begin to work; raises a UsageError if they are wrong."""
    command = typer.main.get_command(app)
    context = command.make_context("marstts", list(arguments))
    while hasattr(command, "resolve_command"):
        words = [*getattr(context, "_protected_args", ()), *context.args]
        if not words and command.invoke_without_command:
            return
        name, command, rest = command.resolve_command(context, words)
        context = command.make_context(name, rest, parent=context)


def commands_with(option: str) -> list[str]:
    """The names of all commands that have an option, such as "voice create"."""
    found: list[str] = []

    def walk(command: Any, name: str) -> None:
        for inner, below in getattr(command, "commands", {}).items():
            walk(below, f"{name} {inner}")
        if any(option in parameter.opts for parameter in command.params):
            found.append(name)

    for name, lazy in COMMANDS.items():
        walk(lazy.open(name), name)
    return found
