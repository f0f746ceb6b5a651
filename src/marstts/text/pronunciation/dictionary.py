"""The pronunciation table of the package: CMUdict, and what misaki's dictionary has beyond it.

Upstream: `data/words.xz`, written by `recipes/pronunciations/table.py`.  Downstream: `words`.
The table is one string of sorted lines that is searched as it is, so that opening it costs its decompression only.
"""

from __future__ import annotations

import lzma
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

MAX_TABLE_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Pronunciation:
    """An entry of the table."""

    phones: tuple[str, ...]
    """ARPAbet with stress."""

    depends_on_context: bool = False
    """A heteronym, such as "record": the phones are those of its most frequent use."""


def look_up(word: str) -> Pronunciation | None:
    """The entry of a word in any case; None where the table has none."""
    if not word.isascii() or "\n" in word or "\t" in word:
        return None
    lines, wanted = _table(), b"\n" + word.lower().encode() + b"\t"

    def line_at(place: int) -> bytes:
        """The beginning of the line that has this place."""
        start = lines.rfind(b"\n", 0, place + 1)
        return lines[start : start + len(wanted)]

    start = bisect_left(range(len(lines)), wanted, key=line_at)
    if not lines.startswith(wanted, start):
        return None
    entry = lines[lines.index(b"\t", start) + 1 : lines.index(b"\n", start + 1)].decode()
    return Pronunciation(tuple(entry.rstrip("*").split()), entry.endswith("*"))


def entries() -> Iterator[tuple[str, tuple[str, ...]]]:
    """All words of the table and their phones, in alphabetical order."""
    for line in _table().decode().splitlines()[1:]:
        word, _, phones = line.partition("\t")
        yield word, tuple(phones.rstrip("*").split())


@cache
def _table() -> bytes:
    packed = files(__package__).joinpath("data", "words.xz").read_bytes()
    return b"\n" + lzma.LZMADecompressor().decompress(packed, MAX_TABLE_BYTES)
