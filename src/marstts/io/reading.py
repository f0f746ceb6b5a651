"""Readers of files from users: regular files of a bounded size, text, JSON of bounded depth; errors as sentences.

Upstream: untrusted files.  Downstream: every module that reads.
Folders, pipes, devices, loops of links and files beyond the bound are refused in one sentence, before anything is
allocated for them.
"""

from __future__ import annotations

import codecs
import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from marstts.errors import FileError, MarsError, escaped_character

LARGE_EXPONENT = re.compile(r"[eE]\+?\d{3}")
"""Text without which no number is infinite."""

CHUNK_BYTES = 2**20
"""Bytes read at once where a file has more than the system says."""


def open_regular(path: Path | str, max_bytes: int, kind: type[MarsError] = FileError) -> BinaryIO:
    """A regular file of at most `max_bytes`, open for reading; never waits.

    Raises `kind` where it is missing, a folder, pipe or device, too large, or cannot be opened.
    """
    name = printable_name(path)
    try:
        _check_regular(os.stat(path), name, max_bytes, kind)
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        file = os.fdopen(descriptor, "rb")
    except FileNotFoundError as error:
        raise kind(f"{name}: no such file") from error
    except OSError as error:
        raise kind(f"{name}: cannot be read: {describe_os_error(error)}") from error
    except ValueError as error:  # a name with a zero byte
        raise kind(f"{name}: no file can have this name") from error
    try:
        _check_regular(os.fstat(descriptor), name, max_bytes, kind)  # what was opened, not what was there before
    except MarsError:
        file.close()
        raise
    return file


def _check_regular(found: os.stat_result, name: str, max_bytes: int, kind: type[MarsError]) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise kind(f"{name}: expected a file, but this is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise kind(f"{name}: expected a regular file, but this is a device or a pipe")
    if found.st_size > max_bytes:
        raise kind(f"{name}: expected at most {show_bytes(max_bytes)}, but the file has {show_bytes(found.st_size)}")


def read_regular_file(path: Path | str, max_bytes: int, kind: type[MarsError] = FileError) -> bytes:
    """All bytes of a regular file of at most `max_bytes`; raises `kind` as `open_regular` does."""
    with open_regular(path, max_bytes, kind) as file, os_errors(path, "be read", kind):
        content = file.read(os.fstat(file.fileno()).st_size + 1)  # memory for this file, not for the largest
        while len(content) <= max_bytes and (more := file.read(CHUNK_BYTES)):
            content += more
    if len(content) > max_bytes:  # it grew, or the system does not report its size
        raise kind(f"{printable_name(path)}: expected at most {show_bytes(max_bytes)}, but the file has more")
    return content


def read_text(path: Path | str, max_bytes: int, kind: type[MarsError] = FileError) -> str:
    """All text of a regular UTF-8 or UTF-16 file of at most `max_bytes`; raises `kind` where it is anything else.

    A byte order mark at its beginning, which some editors write, is no part of the text.
    """
    return decode_text(read_regular_file(path, max_bytes, kind), printable_name(path), kind)


def decode_text(content: bytes, name: str, kind: type[MarsError] = FileError) -> str:
    """Bytes as UTF-8 or UTF-16 text, without a byte order mark; raises `kind`, prefixed by `name`."""
    if (encoding := utf16_of(content)) is not None:
        try:
            return whole_units(content).decode(encoding).removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            raise kind(f"{name}: expected UTF-16 text, but byte {error.start} is no part of a letter") from error
    return decode_utf8(content, name, kind)


def decode_utf8(content: bytes, name: str, kind: type[MarsError] = FileError) -> str:
    """Bytes as UTF-8 text, without a byte order mark; raises `kind`, prefixed by `name`."""
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if b"\0" in content[:SAMPLE_BYTES]:
            raise binary_data(name, kind) from error
        raise not_utf8(error, name, kind) from error


def binary_data(name: str, kind: type[MarsError] = FileError) -> MarsError:
    """The exception for bytes that are no text."""
    return kind(f"{name}: expected text, but this is binary data, such as audio or a program")


SAMPLE_BYTES = 4096
"""Beginning of a file by which its encoding is found."""


def utf16_of(content: bytes) -> str | None:
    """The byte order of UTF-16 text, by its mark or its zero bytes (every other one in English); None for others."""
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if content.startswith(mark) and not content.startswith(codecs.BOM_UTF32_LE):
            return encoding
    sample = content[:SAMPLE_BYTES]
    for zeros, encoding in ((sample[1::2], "utf-16-le"), (sample[::2], "utf-16-be")):
        if len(whole_units(content)) % 2 == 0 and 2 * zeros.count(0) > len(zeros):
            characters = sample.decode(encoding, "ignore")
            if all(each >= " " or each.isspace() for each in characters):  # binary data has others
                return encoding
    return None


def whole_units(content: bytes) -> bytes:
    """UTF-16 text without the odd byte of a line end or blank that a program of another encoding has added."""
    return content[:-1] if len(content) % 2 and content[-1:] in b"\n\r \x1a\0" else content


def not_utf8(
    error: UnicodeDecodeError, name: str, kind: type[MarsError] = FileError, opened: TextIO | None = None
) -> MarsError:
    """The exception for bytes that are no UTF-8; `opened` was decoded in pieces, of which `error` has the last one."""
    try:
        before = 0 if opened is None else opened.buffer.tell() - len(error.object)
        place = f"byte {before + error.start}"
    except OSError:  # a pipe does not know how much was read from it
        place = "a byte"
    return kind(f"{name}: expected UTF-8 text, but {place} is no part of a letter; convert it to UTF-8")


def read_json(path: Path | str, max_bytes: int, kind: type[MarsError] = FileError) -> Any:
    """The value of a JSON file; errors as `parse_json`."""
    return parse_json(read_text(path, max_bytes, kind), printable_name(path), kind)


def parse_json(text: str, name: str, kind: type[MarsError] = FileError) -> Any:
    """The value of a JSON text; raises `kind`, prefixed by `name`, where it is none.

    That is also the case for more than 200 levels, whole numbers of more than 4,300 digits, half letters (lone
    surrogates), and numbers that are not finite.
    """
    from pydantic_core import from_json  # a compiled package, which reading of text does without

    try:
        value = from_json(text.encode("utf-8"), allow_inf_nan=False)
        if LARGE_EXPONENT.search(text):
            json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise kind(f"{name}: expected JSON, but {error}") from error
    return value


def parse_object(text: str, name: str, kind: type[MarsError] = FileError) -> dict[str, Any]:
    """The keys and values of a JSON object; otherwise as `parse_json`."""
    value = parse_json(text, name, kind)
    if not isinstance(value, dict):
        raise kind(f"{name}: expected a JSON object, but this is {_WORDS.get(type(value), 'something else')}")
    return value


_WORDS = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false", type(None): "null"}


# Errors about files: printable names, and the system's errors as sentences.

MAX_NAME = 200
"""Characters of a name that are printed."""

PROBLEMS = {errno.ENOSPC: "the disk is full", errno.ENXIO: "no process reads from this pipe"}
"""Sentences that are clearer than the system's."""

DISK_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
"""Error numbers for which the disk, not the caller, is the cause."""

_RUST_ERRNO = re.compile(r"os error (\d+)")
_FULL_BYTES = 64 * 2**10
"""Fewer free bytes than this count as a full disk where a library does not report why it failed."""


def printable_name(name: str | bytes | os.PathLike[str]) -> str:
    """A file name for a message: one line, escape codes and undecodable bytes escaped, the middle of long ones cut."""
    return printable_text(os.fsdecode(name), MAX_NAME)


def printable_text(text: str, limit: int = 1000) -> str:
    """Text from a file for a message: one line of at most `limit` characters and a sign of what was cut out."""
    if not text.isprintable():
        text = "".join(map(escaped_character, text))
    return text if len(text) <= limit else f"{text[: limit // 2]}…{text[-(limit // 2) :]}"


def describe_os_error(error: OSError) -> str:
    """The system's complaint, as part of a sentence."""
    known = PROBLEMS.get(error.errno or 0)
    return known or (error.strerror or type(error).__name__).lower()


def disk_problem(error: BaseException, folder: Path) -> str | None:
    """Reason why a library could not write to `folder`, if it is the disk; None where it is not.

    Libraries wrap the system's error in other exceptions, or do not report it while the disk is full.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return describe_os_error(error) if error.errno in DISK_ERRNOS else None
    found = _RUST_ERRNO.search(str(error))
    if found and int(found[1]) in DISK_ERRNOS:
        return describe_os_error(OSError(int(found[1]), os.strerror(int(found[1]))))
    with suppress(OSError):
        if isinstance(error, (OSError, RuntimeError)) and shutil.disk_usage(folder).free < _FULL_BYTES:
            return PROBLEMS[errno.ENOSPC]
    return None


@contextmanager
def os_errors(path: Path | str, doing: str = "be written", kind: type[MarsError] = FileError) -> Iterator[None]:
    """Raise `kind`, "PATH: cannot DOING: WHY", for every OSError of the body."""
    try:
        yield
    except OSError as error:
        raise kind(f"{printable_name(path)}: cannot {doing}: {describe_os_error(error)}") from error


def show_bytes(count: int) -> str:
    """A number of bytes for a message, such as 64 MiB."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"
