"""The most likely path of a take through its text, from attention: which word each decoding step says.

Upstream: attention of the aligned heads (`generation.engine.AttentionEngine`).  Downstream: `word_times`, `flaws`.
A Viterbi search over the places of a sentence: its start, its words, the marks between them, its end. A path stays or
moves on for nothing; to pass over a word or to go back has a price, so that only attention which insists on it does.
Guided attention (arXiv:1710.08969) makes heads monotonic; the search is the usual one of hidden Markov models.
Shapes: T steps of a take · S text tokens · K places of the sentence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

MIN_ATTENTION = 1e-2
"""Less attention than this counts as this much: a single step that looks elsewhere is not evidence."""

BACKWARD_PRICE = 5.0
"""Nats for going back, as much as one step of attention that is entirely elsewhere."""

SKIP_PRICE = 3.0
"""Nats for passing over a word."""

SHORT_SKIP_PRICE = 1.0
"""Nats for passing over a word of `SHORT_WORD` letters at most, which may share a step with its neighbors."""

SHORT_WORD = 3

_CHUNK = re.compile(r"\S+")


class PlaceKind(str, Enum):
    """Kind of a place."""

    START = "start"
    WORD = "word"
    MARK = "mark"
    """Punctuation between words, where a reader may pause."""
    END = "end"


@dataclass(frozen=True)
class Place:
    """A stretch of a sentence that a step can attend to."""

    kind: PlaceKind
    start: int
    """First character in the sentence."""
    end: int
    """Last character + 1."""
    num_letters: int = 0


@dataclass(frozen=True, eq=False)
class SentencePlaces:
    """The places of a sentence, and which text tokens of its prompt belong to each."""

    places: tuple[Place, ...]

    membership: NDArray[np.float32]
    """(S, K) 1 where a token belongs to a place."""

    sentence: str
    spans: NDArray[np.int64]
    """(S, 2) characters of each token, -1 for tokens that are none of the sentence."""

    @classmethod
    def of(cls, sentence: str, spans: NDArray[np.int64]) -> SentencePlaces:
        """Cut `sentence`; spans (S, 2) are the characters of each token of its prompt, -1 for others."""
        places = cut_places(sentence)
        starts = np.array([place.start for place in places[1:-1]])
        is_space = [*map(str.isspace, sentence), False]  # the last one is for tokens that are none of the sentence
        firsts = [_first_letter(is_space, *span) if is_space[span[0]] else span[0] for span in spans.tolist()]
        owner = np.searchsorted(starts, firsts, side="right")  # 0 is the start
        known = np.flatnonzero(spans[:, 0] >= 0)
        first, last = (known[0], known[-1]) if len(known) else (len(spans), len(spans))
        owner[:first], owner[last + 1 :] = 0, len(places) - 1
        return cls(places, np.eye(len(places), dtype=np.float32)[owner], sentence, spans)

    @cached_property
    def words(self) -> tuple[int, ...]:
        """Indices of the places that are words."""
        return tuple(index for index, place in enumerate(self.places) if place.kind is PlaceKind.WORD)

    @cached_property
    def tokens_of_end(self) -> slice:
        """The tokens that belong to the end: the last ones."""
        size = len(self.membership)
        return slice(size - int(self.membership[:, -1].sum()), size)

    @cached_property
    def prices(self) -> NDArray[np.float32]:
        """(K, K) nats for moving from a place to another."""
        skip = np.array([self._skip_price(place) for place in self.places], np.float32)
        passed = np.concatenate([[0.0], skip.cumsum()])  # of all places before
        between = passed[None, :-1] - passed[1:, None]  # from row to column: places strictly between
        index = np.arange(len(self.places))
        prices = np.where(index[None] > index[:, None], between, BACKWARD_PRICE)
        np.fill_diagonal(prices, 0.0)
        return prices.astype(np.float32)

    @cached_property
    def prices_of_arrival(self) -> NDArray[np.float32]:
        """(K, K) the same, from column to row."""
        return np.ascontiguousarray(self.prices.T)

    @staticmethod
    def _skip_price(place: Place) -> float:
        if place.kind is PlaceKind.MARK:
            return 0.0
        return SHORT_SKIP_PRICE if place.num_letters <= SHORT_WORD else SKIP_PRICE


def cut_places(sentence: str) -> tuple[Place, ...]:
    """The start, every word with the space after it, the marks after a word as a separate place, and the end."""
    places = [Place(PlaceKind.START, 0, 0)]
    for chunk in _CHUNK.finditer(sentence):
        letters = [index for index in range(chunk.start(), chunk.end()) if sentence[index].isalnum()]
        if not letters:
            places.append(Place(PlaceKind.MARK, chunk.start(), chunk.end()))
            continue
        end = letters[-1] + 1
        places.append(Place(PlaceKind.WORD, chunk.start(), end, len(letters)))
        if end < chunk.end():
            places.append(Place(PlaceKind.MARK, end, chunk.end()))
    return (*places, Place(PlaceKind.END, len(sentence), len(sentence)))


def _first_letter(is_space: Sequence[bool], first: int, last: int) -> int:
    """The first character of a token that is no space: a token may begin with the space before its word."""
    while first < last - 1 and is_space[first]:
        first += 1
    return first


@dataclass(frozen=True, eq=False)
class PathSearch:
    """A Viterbi search that takes steps as they are made; a value."""

    places: SentencePlaces
    scores: NDArray[np.float32]
    """(K,) nats of the best path to each place."""

    attention: NDArray[np.float32]
    """(T, K) attention of the steps so far to each place."""

    origins: NDArray[np.int64]
    """(T, K) the place that the best path to each place was in before."""

    latest: tuple[int, ...] = ()
    """The place where the best path was after each step, as far as was known then."""

    @classmethod
    def begin(cls, places: SentencePlaces) -> PathSearch:
        """The search before the first step: a path begins at the start or in the first word."""
        size = len(places.places)
        return cls(places, -places.prices[0], np.zeros((0, size), np.float32), np.zeros((0, size), np.int64))

    @property
    def num_steps(self) -> int:
        """T."""
        return len(self.attention)

    def after(self, steps: Sequence[NDArray[np.float32]]) -> PathSearch:
        """The search with more steps, attention (S or more,) to the tokens each. Many at once cost less."""
        if not steps:
            return self
        known = np.stack([step[: len(self.places.spans)] for step in steps])
        attention = known @ self.places.membership
        evidence = np.log(np.maximum(attention, MIN_ATTENTION))
        prices, size = self.places.prices_of_arrival, len(self.scores)
        arrivals, row_starts = np.empty((size, size), np.float32), np.arange(size) * size
        origins, reached, scores = np.empty(evidence.shape, np.int64), np.empty_like(evidence), self.scores
        for step, came_from in enumerate(origins):
            np.subtract(scores, prices, out=arrivals)  # rows: the place that is reached
            arrivals.argmax(axis=1, out=came_from)
            scores = np.add(arrivals.take(row_starts + came_from), evidence[step], out=reached[step])
        return PathSearch(
            self.places,
            scores,
            np.concatenate([self.attention, attention]),
            np.concatenate([self.origins, origins]),
            (*self.latest, *reached.argmax(axis=1).tolist()),
        )

    @property
    def here(self) -> int:
        """The place where the best path is now."""
        return int(self.scores.argmax())

    @cached_property
    def path(self) -> NDArray[np.int64]:
        """(T,) place of each step on the best path."""
        place, places = self.here, []
        for origins in reversed(self.origins.tolist()):
            places.append(place)
            place = origins[place]
        return np.array(places[::-1], dtype=np.int64)


def search_path(places: SentencePlaces, steps: Sequence[NDArray[np.float32]]) -> PathSearch:
    """The search after all steps, attention (S or more,) to the text tokens each."""
    return PathSearch.begin(places).after(steps)
