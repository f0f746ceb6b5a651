"""Zip files of others, opened with a bound on their table of contents.

Upstream: untrusted files.  Downstream: `weights.torch_archive`, `text.books.epub`.
Python's `zipfile` is the only reader of these bytes: what one reader checks and another one uses may differ.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from marstts.errors import FileError, MarsError
from marstts.io.reading import open_regular, printable_name

CORRUPT = (
    zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, NotImplementedError, ValueError, struct.error,
    LookupError, OverflowError,
)  # fmt: skip
"""Exceptions that `zipfile` raises for corrupt files."""

CHUNK_BYTES = 2**20


class _BoundedFile:
    """A file that is never read in larger pieces than `max_bytes`: `zipfile` reads the table of contents as one."""

    def __init__(self, file: BinaryIO, max_bytes: int, complaint: MarsError) -> None:
        self._file, self._max, self._complaint = file, max_bytes, complaint
        self.seek, self.tell, self.seekable, self.close = file.seek, file.tell, file.seekable, file.close

    def read(self, size: int = -1) -> bytes:
        if size > self._max:
            raise self._complaint
        content = self._file.read(size if size >= 0 else self._max + 1)
        if len(content) > self._max:
            raise self._complaint
        return content


@contextmanager
def open_zip(
    path: Path, max_bytes: int, max_directory_bytes: int, kind: type[MarsError] = FileError
) -> Iterator[zipfile.ZipFile]:
    """An open zip file of at most `max_bytes`, with a table of contents of at most `max_directory_bytes`.

    Raises `kind` where it has more, and an exception of `CORRUPT` where it is no zip file.
    """
    complaint = kind(f"{printable_name(path)}: a zip file with too many parts")
    with open_regular(path, max_bytes, kind) as file:
        bounded = _BoundedFile(file, max(max_directory_bytes, CHUNK_BYTES), complaint)
        with zipfile.ZipFile(cast(BinaryIO, bounded)) as archive:
            yield archive


def read_part(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, max_bytes: int) -> bytearray:
    """The bytes of a part, at most `max_bytes` and one more; an exception of `CORRUPT` where they are not its own."""
    content = bytearray()
    with archive.open(entry) as file:
        while len(content) <= max_bytes and (more := file.read(min(CHUNK_BYTES, max_bytes + 1 - len(content)))):
            content += more
    return content
