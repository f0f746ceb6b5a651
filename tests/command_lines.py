"""Command lines written in scripts and documents, parsed as `marstts` parses them, without running them."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from marstts.cli.main import app


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
