"""Files of sentences: the lines of a UTF-8 text file, plain or .gz.

Upstream: files from users.  Downstream: `corpora.synthetic`, `preference.mine`, `training.mars6.tokenizer`.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from marstts.errors import DataError
from marstts.io.reading import describe_os_error, not_utf8, open_regular, printable_name

MAX_BYTES = 2**40
"""Largest file that is read, line by line."""

MAX_LINE_CHARACTERS = 2**20
"""A longer line counts as several."""

NO_GZIP = "expected a gzipped text, but it is corrupt or cut off; make the file again"


def lines_of(path: Path) -> Iterator[str]:
    """The lines with their ends; DataError where the file is missing, no regular file, corrupt or no UTF-8 text."""
    name = printable_name(path)
    with open_regular(path, MAX_BYTES, DataError):
        pass
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig") as lines:
            try:
                yield from iter(partial(lines.readline, MAX_LINE_CHARACTERS), "")
            except UnicodeDecodeError as error:
                raise not_utf8(error, name, DataError, lines) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name}: {NO_GZIP}") from error
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {describe_os_error(error)}") from error
