"""The letter-to-sound model: the phones of a word that no dictionary has.

Upstream: `data/letters_to_sounds.npz`, written by `recipes/pronunciations/train.py`.  Downstream: `words`.
A joint-sequence model (M. Bisani and H. Ney, "Joint-sequence models for grapheme-to-phoneme conversion", 2008): a word
is a sequence of graphones, pairs of one or two letters with no to three phones, and an n-gram model with Kneser-Ney
smoothing says which sequence is likely. A beam search reads a word in some milliseconds, in plain Python: a browser
that runs this has no NumPy.
"""

from __future__ import annotations

import sys
import zipfile
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from itertools import accumulate
from struct import unpack

MAX_LETTERS = 30
"""Longer words are left to the model's letters."""

BEAM = 24
"""Best partial sequences that are kept at each letter."""

ID_BITS = 10
"""Bits of a graphone's number in the key of an n-gram; 0 = before the word, 1 = its end."""

START, END = 0, 1

NO_BACKOFF = 128
"""Stored where an n-gram has the back-off weight 1."""

UNKNOWN = -30.0
"""Log probability of a graphone that no word has."""


Following = tuple[int, int, int, Sequence[int], Sequence[int], int]
"""N-grams of one order that begin with a history: the first and last + 1 of the keys, the key without its graphone, all
keys, their log probabilities, and the back-off of longer histories."""


@dataclass(frozen=True, eq=False)
class GraphoneModel:
    """Graphones, and back-off n-grams of them in the order of their keys."""

    letters: tuple[str, ...]
    """Letters of each graphone, from number 0 on; empty for the start and the end of a word."""

    phones: tuple[tuple[str, ...], ...]

    keys: tuple[Sequence[int], ...]
    """By order n from 1: (N,) sorted, the numbers of n graphones with `ID_BITS` each, the last one lowest."""

    log_probs: tuple[Sequence[int], ...]
    """(N,) by order: natural logarithms, negative, in steps of `scale`."""

    backoffs: tuple[Sequence[int], ...]
    """The same, plus `NO_BACKOFF`; those of the highest order are all that."""

    scale: float

    @property
    def order(self) -> int:
        """Length of the longest n-grams."""
        return len(self.keys)

    def following(self, history: int) -> list[Following]:
        """What may follow a history, the key of the `order` - 1 graphones before, from the highest order down."""
        found, steps = [], 0
        for order in range(self.order, 0, -1):
            history &= (1 << ID_BITS * (order - 1)) - 1
            keys, first = self.keys[order - 1], history << ID_BITS
            start = bisect_left(keys, first)
            end = bisect_left(keys, first + (1 << ID_BITS), start)
            if start < end:
                found.append((start, end, first, keys, self.log_probs[order - 1], steps))
            if order > 1:
                keys = self.keys[order - 2]
                place = bisect_left(keys, history)
                if place < len(keys) and keys[place] == history:
                    steps += self.backoffs[order - 2][place] - NO_BACKOFF
        return found

    def score(self, following: list[Following], graphone: int) -> float:
        """Log probability of a graphone."""
        for start, end, first, keys, log_probs, steps in following:
            place = bisect_left(keys, first | graphone, start, end)
            if place < end and keys[place] == first | graphone:
                return -self.scale * (steps + log_probs[place])
        return UNKNOWN


@lru_cache(maxsize=1024)
def guess(word: str) -> tuple[str, ...] | None:
    """The most likely phones of a word of letters and apostrophes, in any case; None where the model has no reading."""
    word = word.lower()
    if not 0 < len(word) <= MAX_LETTERS:
        return None
    return search(packaged_model(), word)


def search(model: GraphoneModel, word: str, beam: int = BEAM) -> tuple[str, ...] | None:
    """The phones of the best sequence of graphones that spells `word`; None where none does."""
    mask = (1 << ID_BITS * (model.order - 1)) - 1
    by_letters = graphones_by_letters(model)
    # by letters read so far: log probability, history, and the graphones of each kept sequence
    reached: list[list[tuple[float, int, tuple[int, ...]]]] = [[] for _ in range(len(word) + 1)]
    reached[0] = [(0.0, START, ())]
    for place in range(len(word)):
        best = sorted(reached[place], key=lambda each: -each[0])[:beam]
        known = [model.following(history) for _, history, _ in best]
        for size in range(1, min(2, len(word) - place) + 1):
            for number in by_letters.get(word[place : place + size], ()):
                reached[place + size] += (
                    (log_prob + model.score(following, number), (history << ID_BITS | number) & mask, (*path, number))
                    for (log_prob, history, path), following in zip(best, known, strict=True)
                )
    if not reached[-1]:
        return None
    _, _, sequence = max(reached[-1], key=lambda each: each[0] + model.score(model.following(each[1]), END))
    return tuple(phone for number in sequence for phone in model.phones[number]) or None


@cache
def graphones_by_letters(model: GraphoneModel) -> dict[str, list[int]]:
    """The numbers of the graphones that spell each run of letters."""
    found: dict[str, list[int]] = {}
    for number, letters in enumerate(model.letters):
        if letters:
            found.setdefault(letters, []).append(number)
    return found


@cache
def packaged_model() -> GraphoneModel:
    """The model of the package."""
    return read_model(files(__package__).joinpath("data", "letters_to_sounds.npz"))


def read_model(path: object) -> GraphoneModel:
    """The model in a file of `recipes/pronunciations/train.py`."""
    with path.open("rb") as file, zipfile.ZipFile(file) as stored:  # type: ignore[attr-defined]
        columns = {name.removesuffix(".npy"): read_column(stored.read(name)) for name in stored.namelist()}
    rows = [row.split("\t") for row in bytes(columns["graphones"]).decode("ascii").split("\n")]
    orders = range(1, 1 + sum(name.startswith("gaps") for name in columns))
    return GraphoneModel(
        tuple(row[0] for row in rows),
        tuple(tuple(row[1].split()) for row in rows),
        tuple(array("Q", accumulate(columns[f"gaps{order}"])) for order in orders),
        tuple(columns[f"log_probs{order}"] for order in orders),
        tuple(columns[f"backoffs{order}"] for order in orders),
        float(columns["scale"][0]),
    )


def read_column(content: bytes) -> array:
    """The numbers of a .npy file (version 1) of at most one axis: bytes, whole numbers of 64 bits or single floats."""
    (length,) = unpack("<H", content[8:10])
    header = content[10 : 10 + length].decode("latin-1")
    kind = next(code for dtype, code in (("|u1", "B"), ("<u8", "Q"), ("<f4", "f")) if repr(dtype) in header)
    column = array(kind, content[10 + length :])
    if sys.byteorder == "big":
        column.byteswap()
    return column
