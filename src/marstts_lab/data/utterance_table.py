"""Utterances in columns: millions of them in little memory, each an `Utterance` again when it is asked for.

Strings that every utterance has for itself lie in one buffer, strings that many share are numbered. That takes some 300
bytes an utterance, a fifth of what objects take.

Upstream: `data.shards`.  Downstream: `data.corpus`, which every training process holds.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from marstts_lab.data.manifest import Utterance

SEPARATE_STRINGS = ("id", "audio", "text")
SHARED_STRINGS = ("speaker", "style", "split", "license")


class Strings:
    """A growing list of strings in one buffer of UTF-8."""

    def __init__(self) -> None:
        self._content, self._ends = bytearray(), array("q", [0])

    def append(self, value: str) -> None:
        """Add a string at the end."""
        self._content += value.encode("utf-8")
        self._ends.append(len(self._content))

    def __getitem__(self, row: int) -> str:
        return self._content[self._ends[row] : self._ends[row + 1]].decode("utf-8")


class SharedStrings:
    """A growing list of strings of which many are equal: each is a number of 4 bytes."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._values: list[str] = []
        self._rows = array("i")

    def append(self, value: str) -> None:
        """Add a string at the end."""
        number = self._numbers.setdefault(value, len(self._values))
        if number == len(self._values):
            self._values.append(value)
        self._rows.append(number)

    def __getitem__(self, row: int) -> str:
        return self._values[self._rows[row]]


class Columns:
    """The columns of a table, row by row."""

    def __init__(self) -> None:
        self.strings: dict[str, Strings | SharedStrings] = {
            **{name: Strings() for name in SEPARATE_STRINGS},
            **{name: SharedStrings() for name in SHARED_STRINGS},
        }
        self.seconds, self.start, self.source_rate = array("d"), array("d"), array("i")

    def append(self, utterance: Utterance) -> None:
        """Add an utterance at the end."""
        for name, column in self.strings.items():
            column.append(getattr(utterance, name))
        self.seconds.append(utterance.seconds)
        self.start.append(math.nan if utterance.start is None else utterance.start)
        self.source_rate.append(utterance.source_rate)

    def __getitem__(self, row: int) -> Utterance:
        start = self.start[row]
        return Utterance(
            **{name: column[row] for name, column in self.strings.items()},
            seconds=self.seconds[row],
            source_rate=self.source_rate[row],
            start=None if math.isnan(start) else start,
        )


class UtteranceTable(Sequence[Utterance]):
    """A sequence of utterances, or a selection of one, which shares its columns."""

    def __init__(self, utterances: Iterable[Utterance] = ()) -> None:
        self._columns = Columns()
        for utterance in utterances:
            self._columns.append(utterance)
        self._rows: NDArray[np.int64] = np.arange(len(self._columns.seconds))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Utterance: ...
    @overload
    def __getitem__(self, index: slice) -> UtteranceTable: ...
    def __getitem__(self, index: int | slice) -> Utterance | UtteranceTable:
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        return self._columns[int(self._rows[index])]

    def select(self, rows: NDArray[np.int64]) -> UtteranceTable:
        """The utterances at these indices (N,), in this order."""
        chosen = UtteranceTable()
        chosen._columns, chosen._rows = self._columns, self._rows[rows]
        return chosen

    def strings(self, name: str) -> Iterator[str]:
        """The values of a field that holds strings (`id`, `text`, `speaker`, …), without making the utterances."""
        column: Any = self._columns.strings[name]
        return (column[row] for row in self._rows.tolist())
