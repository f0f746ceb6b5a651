"""Arrays that stay on disk: those of one name in many shards, as one array whose rows are read when they are used.

Upstream: shards that `data.shards` has checked.  Downstream: `data.corpus`.
Nothing is kept in memory: files that are read often are in the system's cache, which all processes of a machine share.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.errors import DataError
from marstts.io.reading import open_regular, os_errors


@dataclass(frozen=True)
class Version:
    """A file as it was when it was checked."""

    size: int
    changed_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Version:
        """The version of a file from its metadata in the file system."""
        return cls(found.st_size, found.st_mtime_ns)


@dataclass(frozen=True)
class Stored:
    """One array in one file."""

    path: Path
    version: Version
    first_byte: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """The rows from `start` up to, not including, `stop`; DataError where the file is no longer what it was."""
        row_bytes = prod(self.shape[1:]) * self.dtype.itemsize
        with open_regular(self.path, self.version.size, DataError) as file, os_errors(self.path, "be read", DataError):
            if Version.of(os.fstat(file.fileno())) != self.version:
                raise DataError(f"{self.path}: this shard was changed while it was used; begin again")
            file.seek(self.first_byte + start * row_bytes)
            content = file.read((stop - start) * row_bytes)
        if len(content) != (stop - start) * row_bytes:
            raise DataError(f"{self.path}: this shard was cut short while it was used; tokenize again")
        return np.frombuffer(content, self.dtype).reshape(stop - start, *self.shape[1:])


class StoredArray:
    """Arrays one after another along their first axis."""

    def __init__(self, parts: Sequence[Stored]) -> None:
        """`parts` agree in type and in all axes but the first; there is at least one."""
        self._parts = tuple(parts)
        self._starts = np.cumsum([0, *(part.shape[0] for part in parts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> NDArray[Any]:
        """The rows of a slice (of step 1), or at these indices (N,)."""
        if isinstance(rows, slice):
            return self._span(*rows.indices(len(self))[:2])
        return np.concatenate([self._span(0, 0), *(self._span(row, row + 1) for row in rows.tolist())])

    def _span(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop`, which may lie in several files."""
        number = int(np.searchsorted(self._starts, start, side="right")) - 1
        pieces = []
        while start < stop:
            part, first = self._parts[number], int(self._starts[number])
            end = min(stop, first + part.shape[0])
            if start < end:
                pieces.append(part.read(start - first, end - first))
                start = end
            number += 1
        return np.concatenate(pieces) if pieces else self._empty()

    def _empty(self) -> NDArray[Any]:
        return np.zeros((0, *self._parts[0].shape[1:]), self._parts[0].dtype)
