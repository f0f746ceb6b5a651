"""The command `marstts`: its sub-commands, each imported only when it is called.

Upstream: the shell.  Downstream: the sibling modules, one per command. Importing this module imports none of them, so
speaking needs no PyTorch and `--help` is quick. Errors for users end here: one sentence, exit code 2.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import marstts
from marstts.cli.commands import all_commands, hide_types_of_flags
from marstts.cli.terminal import configure_logging, say, silence_libraries
from marstts.errors import MarsError, MissingExtraError
from marstts.io.reading import DISK_ERRNOS, describe_os_error, printable_name, printable_text

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
"""No command uses plugins of pydantic; looking for some reads the metadata of every installed package."""

RESOURCE_ERRNOS = DISK_ERRNOS | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
"""Numbers of errors that come from what the machine has, whatever was done."""

MAX_SENTENCE = 4000
"""Characters of an error that are printed."""

HELP = "--help"

COMMANDS = all_commands()


class CommandGroup(TyperGroup):
    """A group of commands that ends an error for users as one sentence, with exit code 2."""

    program = "marstts"
    """Name before the sentence."""

    def main(self, *arguments: Any, **settings: Any) -> Any:
        escape_what_streams_cannot_encode()
        return super().main(*arguments, **settings)

    def invoke(self, ctx: Any) -> Any:
        replace_closed_streams()
        try:
            with ended_by_sigterm():
                return self.run(ctx)
        except Terminated as error:
            say(f"{self.program}: ended by SIGTERM", err=True)
            raise typer.Exit(code=128 + signal.SIGTERM) from error
        except MarsError as error:
            say(f"{self.program}: {printable_text(str(error), MAX_SENTENCE)}", err=True)
            raise typer.Exit(code=2) from error
        except (OSError, MemoryError) as error:
            if (sentence := describe_system_error(error)) is None:
                raise
            say(f"{self.program}: {sentence}", err=True)
            raise typer.Exit(code=2) from error

    def run(self, ctx: Any) -> Any:
        """Run the command that was named."""
        return super().invoke(ctx)


class LazyGroup(CommandGroup):
    """The group of all sub-commands. Listing them imports none; calling one imports its module."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=command.help) for name, command in COMMANDS.items()}
        hide_types_of_flags(self)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, placeholder if name is None else open_command(name, rest), rest

    def run(self, ctx: Any) -> Any:
        """Run the command; packages that it imports only when they are needed may be missing as well."""
        try:
            return super().run(ctx)
        except ModuleNotFoundError as error:
            if (command := COMMANDS.get(ctx.invoked_subcommand or "")) is not None:
                command.raise_if_extra_is_missing(ctx.invoked_subcommand, error)
            raise


class Terminated(KeyboardInterrupt):
    """SIGTERM came: the command ends as by Ctrl-C, so that it removes its temporary files."""


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Raise Terminated in the body where SIGTERM comes; forked processes die of it as before."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    process = os.getpid()

    def end(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() != process:
            os.kill(os.getpid(), number)
        raise Terminated

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def describe_system_error(error: OSError | MemoryError) -> str | None:
    """One sentence where a file, or what the machine has, ended the command; None where it is another error."""
    if isinstance(error, MemoryError):
        return "there is not enough memory for this; give less at once, or a machine with more"
    if error.filename is not None and not isinstance(error.filename, int):
        return f"{printable_name(error.filename)}: cannot be used: {describe_os_error(error)}"
    if error.errno in RESOURCE_ERRNOS:
        return f"the command cannot continue: {describe_os_error(error)}"
    return None


def escape_what_streams_cannot_encode() -> None:
    """Let a console or pipe with an old encoding show characters that it lacks as escapes, instead of ending."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def replace_closed_streams() -> None:
    """Open the null device where standard input, output or error is closed.

    Otherwise the next file that is opened would take its place, and messages of libraries would be written into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def open_command(name: str, arguments: Sequence[str]) -> Any:
    """The command itself; with `--help`, where its extra is not installed, a command that shows its description."""
    try:
        return COMMANDS[name].open(name)
    except MissingExtraError as error:
        if HELP not in arguments:
            raise
        text = f"{COMMANDS[name].help}\n\nThe options are listed once the package is installed: {error}"
        return TyperCommand(name, help=text, rich_markup_mode=None)  # markup would swallow the extra's brackets


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False)


def print_version(is_given: bool) -> None:
    """Print the version and exit, where the option is given."""
    if is_given:
        say(f"marstts {marstts.__version__}")
        raise typer.Exit()


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Voice-cloning speech synthesis with MARS6: speak, train, evaluate."""
    configure_logging()
    silence_libraries()
