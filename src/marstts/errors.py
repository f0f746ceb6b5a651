"""Exceptions for users, each carrying one sentence: what was expected, what came, what to do.

    MarsError
    ├── AudioError        a recording cannot be read, or is unfit for its purpose
    ├── TextError         there is nothing in the text that can be spoken
    ├── ConfigError       a configuration has unknown, missing or impossible values
    ├── CheckpointError   a model folder or file is incomplete, malformed or of another kind
    ├── VoiceError        a voice file is malformed, or was made for another model
    ├── DataError         a manifest, corpus or shard is not what it claims to be
    ├── FileError         a file cannot be read or written: missing, no regular file, too large, the disk is full
    ├── BenchmarkError    a measurement could not be taken
    └── MissingExtraError a feature needs packages that are not installed

Entry points (command line, server) print the sentence and exit with code 2; other exceptions keep their traceback.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec
from types import ModuleType


def escaped(text: str) -> str:
    """`text` with every character that is not printable as its escape; lines and tabs stay.

    Strings of files from others may hold codes that a terminal obeys.
    """
    if text.isprintable():
        return text
    return "".join(each if each in "\n\t" else escaped_character(each) for each in text)


def escaped_character(character: str) -> str:
    """A printable character itself; any other one as its escape."""
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # how Python carries a byte that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


class MarsError(Exception):
    """Base of every error whose message is meant for the user; what it quotes of files is escaped."""

    def __str__(self) -> str:
        return escaped(super().__str__())


class AudioError(MarsError):
    """A recording cannot be read, or is unfit for its purpose."""


class IncompleteAudioError(AudioError):
    """A recording ends before its headers say, or is corrupt from some place on; what comes before can be read."""


class TextError(MarsError):
    """There is nothing in the text that can be spoken."""


class ConfigError(MarsError):
    """A configuration has unknown, missing or impossible values."""


class CheckpointError(MarsError):
    """A model folder or file is incomplete, malformed or of another kind."""


class VoiceError(MarsError):
    """A voice file is malformed, or was made for another model."""


class DataError(MarsError):
    """A manifest, corpus or shard is not what it claims to be."""


class FileError(MarsError):
    """A file or folder cannot be read, written or locked."""


class BenchmarkError(MarsError):
    """A measurement could not be taken."""


class MissingExtraError(MarsError):
    """A feature needs packages that are not installed."""


def require(package: str, extra: str) -> ModuleType:
    """Import `package`; raises MissingExtraError naming the `pip install` that installs it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(
            f"this needs the package {package!r}, which is not installed: pip install 'marstts[{extra}]'"
        ) from error


def check_installed(packages: Iterable[str], extra: str) -> None:
    """Raise MissingExtraError where a package is not installed, without importing any: for checks before long work."""
    missing = [package for package in packages if not is_installed(package)]
    if missing:
        names, is_one = ", ".join(map(repr, missing)), len(missing) == 1
        raise MissingExtraError(
            f"this needs the {'package' if is_one else 'packages'} {names}, which {'is' if is_one else 'are'} not "
            f"installed: pip install 'marstts[{extra}]'"
        )


def is_installed(package: str) -> bool:
    """Whether a package can be found."""
    try:
        return find_spec(package) is not None
    except (ModuleNotFoundError, ValueError):  # blocked, or without a spec
        return False


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name most similar to `name` as a question after a semicolon; empty where none is similar."""
    similar = get_close_matches(name, list(known), n=1)
    return f"; did you mean {similar[0]!r}?" if similar else ""
