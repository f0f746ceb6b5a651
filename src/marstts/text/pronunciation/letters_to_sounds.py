"""The letter-to-sound model: the phones of a word that no dictionary has.

Upstream: `data/letters_to_sounds.npz`, written by `recipes/pronunciations/train.py`.  Downstream: `words`.
A joint-sequence model (M. Bisani and H. Ney, "Joint-sequence models for grapheme-to-phoneme conversion", 2008): a word
is a sequence of graphones, pairs of one or two letters with no to three phones, and an n-gram model with Kneser-Ney
smoothing says which sequence is likely. A beam search reads a word in some milliseconds, with NumPy alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

MAX_LETTERS = 30
"""Longer words are left to the model's letters."""

BEAM = 24
"""Best partial sequences that are kept at each letter."""

ID_BITS = 10
"""Bits of a graphone's number in the key of an n-gram; 0 = before the word, 1 = its end."""

START, END = 0, 1


@dataclass(frozen=True, eq=False)
class GraphoneModel:
    """Graphones, and back-off n-grams of them in the order of their keys."""

    letters: tuple[str, ...]
    """Letters of each graphone, from number 0 on; empty for the start and the end of a word."""

    phones: tuple[tuple[str, ...], ...]

    keys: tuple[NDArray[np.uint64], ...]
    """By order n from 1: (N,) sorted, the numbers of n graphones with `ID_BITS` each, the last one lowest."""

    log_probs: tuple[NDArray[np.float32], ...]
    backoffs: tuple[NDArray[np.float32], ...]
    """Natural logarithms; those of the highest order are zeros."""

    @property
    def order(self) -> int:
        """Length of the longest n-grams."""
        return len(self.keys)

    def score(self, histories: NDArray[np.uint64], graphones: NDArray[np.uint64]) -> NDArray[np.float32]:
        """Log probabilities (N,) of graphones after histories (N,), the keys of the `order` - 1 graphones before."""
        total = np.zeros(len(graphones), np.float32)
        waiting = np.arange(len(graphones))
        for order in range(self.order, 0, -1):
            bits = np.uint64(ID_BITS * (order - 1))
            history = histories[waiting] & ((np.uint64(1) << bits) - np.uint64(1))
            place, found = find(self.keys[order - 1], (history << np.uint64(ID_BITS)) | graphones[waiting])
            total[waiting[found]] += self.log_probs[order - 1][place[found]]
            waiting, history = waiting[~found], history[~found]
            if order > 1 and len(waiting):
                place, found = find(self.keys[order - 2], history)
                total[waiting[found]] += self.backoffs[order - 2][place[found]]
        total[waiting] = -30.0
        return total


def find(keys: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Places (N,) of wanted keys among sorted ones, and whether each is there."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return place, keys[place] == wanted


@lru_cache(maxsize=1024)
def guess(word: str) -> tuple[str, ...] | None:
    """The most likely phones of a word of letters and apostrophes, in any case; None where the model has no reading."""
    word = word.lower()
    if not 0 < len(word) <= MAX_LETTERS:
        return None
    return search(packaged_model(), word)


def search(model: GraphoneModel, word: str, beam: int = BEAM) -> tuple[str, ...] | None:
    """The phones of the best sequence of graphones that spells `word`; None where none does."""
    mask = (np.uint64(1) << np.uint64(ID_BITS * (model.order - 1))) - np.uint64(1)
    by_letters = graphones_by_letters(model)
    # by letters read so far: log probability, history, and the graphones of each kept sequence
    reached: list[list[tuple[float, int, tuple[int, ...]]]] = [[] for _ in range(len(word) + 1)]
    reached[0] = [(0.0, START, ())]
    for place in range(len(word)):
        best = sorted(reached[place], key=lambda each: -each[0])[:beam]
        options = [
            (one, number, place + size)
            for size in (1, 2)
            for number in by_letters.get(word[place : place + size], ())
            if place + size <= len(word)
            for one in best
        ]
        if not options:
            continue
        histories = np.array([one[1] for one, _, _ in options], np.uint64)
        numbers = np.array([number for _, number, _ in options], np.uint64)
        scores = model.score(histories, numbers)
        following = ((histories << np.uint64(ID_BITS)) | numbers) & mask
        for (one, number, end), score, history in zip(options, scores.tolist(), following.tolist(), strict=True):
            reached[end].append((one[0] + score, history, (*one[2], number)))
    if not reached[-1]:
        return None
    histories = np.array([each[1] for each in reached[-1]], np.uint64)
    ends = model.score(histories, np.full(len(histories), END, np.uint64))
    sequence = max(zip(reached[-1], ends.tolist(), strict=True), key=lambda each: each[0][0] + each[1])[0][2]
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
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:  # type: ignore[attr-defined]
        rows = [row.split("\t") for row in bytes(stored["graphones"]).decode("ascii").split("\n")]
        scale = float(stored["scale"])
        orders = range(1, 1 + sum(name.startswith("gaps") for name in stored.files))
        return GraphoneModel(
            tuple(row[0] for row in rows),
            tuple(tuple(row[1].split()) for row in rows),
            tuple(np.cumsum(stored[f"gaps{order}"].astype(np.uint64), dtype=np.uint64) for order in orders),
            tuple(stored[f"log_probs{order}"].astype(np.float32) * -scale for order in orders),
            tuple((stored[f"backoffs{order}"].astype(np.float32) - 128) * -scale for order in orders),
        )
