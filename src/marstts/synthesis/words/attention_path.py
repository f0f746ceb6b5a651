"""The most likely path of a take through its text, from attention: which word each decoding step says.

Upstream: attention of the aligned heads (`generation.engine.AttentionEngine`), `audible_steps`.  Downstream:
`word_times`, `flaws`.
A Viterbi search over the places of a sentence: its start, its words, the marks between them, its end. A path stays or
moves on for nothing; to pass over a word or to go back has a price, so that only attention which insists on it does.
So has a duration that is unusual for the letters of a word, and attention counts only where something is audible.
Guided attention (arXiv:1710.08969) makes heads monotonic; the search is the usual one of hidden semi-Markov models.
Shapes: T steps of a take · S text tokens · K places of the sentence · D durations · F frames of a step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from marstts.synthesis.words.audible_steps import FRAMES_PER_STEP

MIN_ATTENTION = 1e-2
"""Less attention than this counts as this much: a single step that looks elsewhere is not evidence."""

BACKWARD_PRICE = 5.0
"""Nats for going back, as much as one step of attention that is entirely elsewhere."""

SKIP_PRICE = 3.0
"""Nats for passing over a word."""

SHORT_SKIP_PRICE = 2.0
"""Nats for passing over a word of `SHORT_WORD` letters at most, which may share a step with its neighbors."""

LAST_SKIP_PRICE = 4.0
"""Nats more for passing over the last word: attention often leaves it early."""

SHORT_WORD = 3

SILENT_WORD_PRICE = 1.0
"""Nats for a silent step in a word: the closure of a "t" lasts about one."""

AUDIBLE_PAUSE_PRICE, AUDIBLE_END_PRICE = 1.75, 1.0
"""Nats for an audible step before or between the words, and for one after the last, where breath is common."""

END_GAIN = 16.0
"""Attention to what follows the last word counts this many times: a sixteenth of it there is rare while a word is said,
and usual after the last."""

MAX_DURATION = 16
"""Durations that are told apart, in steps: 1.4 s."""

USUAL_STEPS_PER_LETTER, STEPS_BEFORE_PAUSE, WEAK_WORD_FACTOR = 0.7, 2.0, 0.65
"""Usual duration of a word in steps: so many for each letter, and so many more before a mark. Words of `SHORT_WORD`
letters at most are articles and the like, which are shorter by this factor, and so are `WEAK_WORDS`."""

WEAK_WORDS = frozenset((
    "that", "this", "than", "then", "them", "they", "their", "there", "these", "those", "with", "from", "into",
    "upon", "have", "been", "were", "will", "would", "could", "should", "must", "does", "your", "some", "such",
    "very", "when", "what", "which", "where", "because", "also", "each", "only",
))  # fmt: skip
"""Longer words that are rarely stressed."""

DURATION_SPREAD = 0.4
"""Standard deviation of the logarithm of durations."""

MAX_DURATION_PRICE = 6.0
"""Nats at most for an unusual duration: attention that insists on one is followed."""

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

    def attention_of(self, steps: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Attention (T, K) to each place, from that to the tokens (S or more,) of each step.

        It is summed in double precision, so that a step has the same sums whichever steps come with it.
        """
        known = np.stack([step[: len(self.spans)] for step in steps]).astype(np.float64)
        return (known @ self.membership.astype(np.float64)).astype(np.float32)

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
        skip[list(self.words[-1:])] += LAST_SKIP_PRICE
        passed = np.concatenate([[0.0], skip.cumsum()])  # of all places before
        between = passed[None, :-1] - passed[1:, None]  # from row to column: places strictly between
        index = np.arange(len(self.places))
        prices = np.where(index[None] > index[:, None], between, BACKWARD_PRICE)
        np.fill_diagonal(prices, 0.0)
        return prices.astype(np.float32)

    @cached_property
    def prices_of_arrival(self) -> NDArray[np.float32]:
        """(K, K) the same, from column to row; no place is entered from itself."""
        prices = np.ascontiguousarray(self.prices.T)
        np.fill_diagonal(prices, np.inf)
        return prices

    @cached_property
    def is_word(self) -> NDArray[np.bool_]:
        """(K,) True where a place is a word."""
        return np.array([place.kind is PlaceKind.WORD for place in self.places])

    @cached_property
    def is_after_words(self) -> NDArray[np.bool_]:
        """(K,) True where a place follows the last word."""
        return np.arange(len(self.places)) > max(self.words, default=-1)

    def weigh(self, attention: NDArray[np.float32], sound: NDArray[np.float32]) -> NDArray[np.float32]:
        """Evidence (T, K) in nats, of attention (T, K) and of how audible each step is (T,), NaN where not known.

        Where nothing is audible, attention is no evidence: it often wanders back when the last word is over. No word
        is said there, and sound is rarely a pause.
        """
        is_known = ~np.isnan(sound)[:, None]
        heard = np.where(is_known, sound[:, None], 1.0)
        attention = np.where(is_known & self.is_after_words, np.minimum(attention * END_GAIN, 1.0), attention)
        audible_price = np.where(self.is_after_words, AUDIBLE_END_PRICE, AUDIBLE_PAUSE_PRICE) * is_known
        prices = np.where(self.is_word, SILENT_WORD_PRICE * (1.0 - heard), audible_price * heard)
        return (np.log(np.maximum(attention, MIN_ATTENTION)) * heard - prices).astype(np.float32)

    @cached_property
    def usual_steps(self) -> NDArray[np.float32]:
        """(K,) usual duration of each word; 0 for what is no word."""
        usual = np.array([place.num_letters * USUAL_STEPS_PER_LETTER for place in self.places], np.float32)
        usual[[self._is_weak(place) for place in self.places]] *= WEAK_WORD_FACTOR
        usual[:-1][~self.is_word[1:]] += STEPS_BEFORE_PAUSE
        return usual * self.is_word

    @cached_property
    def duration_prices(self) -> NDArray[np.float32]:
        """(K, D) nats for leaving a place after 1, 2, … D or more steps; nothing for what is no word."""
        usual = np.maximum(self.usual_steps, 1.0)[:, None]
        unusual = np.log(np.arange(1, MAX_DURATION + 1) / usual) / DURATION_SPREAD
        prices = np.minimum(0.5 * unusual**2, MAX_DURATION_PRICE) * self.is_word[:, None]
        return prices.astype(np.float32)

    def _is_weak(self, place: Place) -> bool:
        letters = filter(str.isalnum, self.sentence[place.start : place.end].lower())
        return place.num_letters <= SHORT_WORD or "".join(letters) in WEAK_WORDS

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
    """A Viterbi search that takes steps as they are made; a value.

    A state is a place and for how many steps the path has been there, so that leaving a word has the price of its
    duration: a hidden semi-Markov model.
    """

    places: SentencePlaces
    scores: NDArray[np.float32]
    """(K, D) nats of the best path that has been in each place for 1, 2, … steps; the last one is for D or more."""

    longest_entered: NDArray[np.int64]
    """(K,) the step in which the path of D or more steps entered its place."""

    attention: NDArray[np.float32]
    """(T, K) attention of the steps so far to each place."""

    audible: NDArray[np.float32]
    """(T, F) how audible the frames of the steps so far are, from 0 to 1; NaN where that is not known."""

    origins: NDArray[np.int64]
    """(T, K, 2) of the best path that enters a place in a step: the place before, and the step that it entered that."""

    latest: tuple[int, ...] = ()
    """The place where the best path was after each step, as far as was known then."""

    @classmethod
    def begin(cls, places: SentencePlaces) -> PathSearch:
        """The search before the first step: a path begins at the start or in the first word."""
        size = len(places.places)
        return cls(
            places,
            scores=np.full((size, MAX_DURATION), -np.inf, np.float32),
            longest_entered=np.zeros(size, np.int64),
            attention=np.zeros((0, size), np.float32),
            audible=np.zeros((0, FRAMES_PER_STEP), np.float32),
            origins=np.zeros((0, size, 2), np.int64),
        )

    @property
    def num_steps(self) -> int:
        """T."""
        return len(self.attention)

    def after(self, steps: Sequence[NDArray[np.float32]], audible: NDArray[np.float32] | None = None) -> PathSearch:
        """The search with more steps, attention (S or more,) to the tokens each. Many at once cost less.

        audible (T, F): how audible the frames of these steps are, from 0 to 1; None where that is not known: attention
        is all there is then, and durations have no price.
        """
        if not steps:
            return self
        attention = self.places.attention_of(steps)
        if audible is None:
            audible = np.full((len(steps), FRAMES_PER_STEP), np.nan, np.float32)
        frames = np.concatenate([self.audible, audible])
        evidence = self.places.weigh(attention, shares_of_sound(frames)[self.num_steps :])
        prices = self.places.prices_of_arrival
        durations = self.places.duration_prices * self._knows_sound_of(frames)
        rows = np.arange(len(prices))
        row_starts = rows * MAX_DURATION
        scores, entered = self.scores, self.longest_entered
        origins, latest = np.zeros((*evidence.shape, 2), np.int64), []
        for step, step_evidence in enumerate(evidence, start=self.num_steps):
            leaving = scores - durations
            durations_left = leaving.argmax(axis=1)
            since = np.where(durations_left < MAX_DURATION - 1, step - 1 - durations_left, entered)
            arrivals = leaving.take(row_starts + durations_left) - prices  # rows: the place that is reached
            before = arrivals.argmax(axis=1)
            origin = origins[step - self.num_steps]
            origin[:, 0], origin[:, 1] = before, since[before]
            later = np.empty_like(scores)
            later[:, 0] = arrivals[rows, before] if step else -self.places.prices[0]
            later[:, 1:] = scores[:, :-1]
            stays = scores[:, -1] > scores[:, -2]
            later[stays, -1] = scores[stays, -1]
            entered = np.where(stays, entered, step - MAX_DURATION + 1)
            later += step_evidence[:, None]
            scores = later
            latest.append(int(scores.argmax()) // MAX_DURATION)
        return PathSearch(
            self.places,
            scores,
            entered,
            np.concatenate([self.attention, attention]),
            frames,
            np.concatenate([self.origins, origins]),
            (*self.latest, *latest),
        )

    @property
    def knows_sound(self) -> bool:
        """Whether it is known how audible the steps are."""
        return self._knows_sound_of(self.audible)

    @staticmethod
    def _knows_sound_of(audible: NDArray[np.float32]) -> bool:
        """Whether it is known how audible all frames (T, F) are."""
        return not np.isnan(audible).any()

    @property
    def here(self) -> int:
        """The place where the best path is now."""
        return int(self.scores.argmax()) // MAX_DURATION

    @cached_property
    def path(self) -> NDArray[np.int64]:
        """(T,) place of each step on the best path."""
        path = np.zeros(self.num_steps, np.int64)
        if not len(path):
            return path
        place, duration = divmod(int(self.scores.argmax()), MAX_DURATION)
        is_longest, end = duration == MAX_DURATION - 1, len(path)
        entered = int(self.longest_entered[place]) if is_longest else end - 1 - duration
        while end:
            path[entered:end] = place
            end = entered
            place, entered = self.origins[end].tolist()[place]
        return path


def shares_of_sound(audible: NDArray[np.float32]) -> NDArray[np.float32]:
    """audible (T, F) -> (T,) how audible the frames are that a step's attention is about: half a step earlier."""
    before = audible.reshape(-1)[: -(FRAMES_PER_STEP // 2)]
    first = np.repeat(audible.reshape(-1)[:1], FRAMES_PER_STEP // 2)
    return np.concatenate([first, before]).reshape(audible.shape).mean(axis=1, dtype=np.float32)


def search_path(
    places: SentencePlaces, steps: Sequence[NDArray[np.float32]], audible: NDArray[np.float32] | None = None
) -> PathSearch:
    """The search after all steps, attention (S or more,) to the text tokens each; audible (T, F): see `after`."""
    return PathSearch.begin(places).after(steps, audible)
