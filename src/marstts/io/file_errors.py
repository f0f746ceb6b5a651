"""Errors about files: printable names, and the system's errors as sentences.

Upstream: operating-system errors.  Downstream: `files`, `reading`, and every module that prints the name of a file.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from marstts.errors import FileError, MarsError

MAX_NAME = 200
"""Characters of a name that are printed."""

PROBLEMS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than the system allows",
    errno.EROFS: "the disk is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EIO: "the disk reports an input/output error",
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "part of the path is a file, not a folder",
    errno.EISDIR: "this is a folder",
    errno.EEXIST: "a file of this name is in the way",
    errno.ELOOP: "its symbolic links form a loop",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ENXIO: "no process reads from this pipe",
    errno.EMFILE: "too many files are open",
    errno.ENFILE: "too many files are open",
    errno.ENOMEM: "there is not enough memory",
    errno.EAGAIN: "the system has too many processes or too little memory",
}

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
        text = "".join(map(_printable_character, text))
    return text if len(text) <= limit else f"{text[: limit // 2]}…{text[-(limit // 2) :]}"


def _printable_character(character: str) -> str:
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # how Python carries a byte that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


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
        return PROBLEMS[int(found[1])]
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
