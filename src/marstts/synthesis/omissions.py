"""Words that a take leaves out: suspected by attention and sound, confirmed by the model itself.

Upstream: the path of a take's attention (`attention_path`), `word_evidence`, an engine that scores patches.
Downstream: `flaws`.
A word that was not said is one that the patches around its place do not need: they are more probable when the model
cannot attend to the word. A word that was said is needed, so its patches become improbable without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from marstts.synthesis.attention_path import PathSearch, SentencePlaces

SUSPICIOUS = -1.0
"""Log odds, see `word_evidence`: words above it are confirmed or refuted by the engine."""

MAX_SUSPECTS = 2
"""So many words of a take at most, the most suspicious first, until one is confirmed."""

CERTAIN = 1.5
"""Log odds that decide alone, where no engine can confirm them."""

MIN_EVIDENCE = 0.0
"""Nats that patches gain when a suspicious word is hidden, plus its log odds: 7 of 1,000 sound takes have more."""

MIN_GAIN_OF_ALL = 1.0
"""The same where every word is asked about, suspicious or not."""

STEPS_AROUND = 1
"""Patches before and after a suspected word that are scored, too."""


class OmissionCheck(str, Enum):
    """Extent of the check: the words that the engine scores."""

    SUSPECTS = "suspects"
    """Words that are suspicious by attention and sound."""

    ALL_WORDS = "all words"
    """Every word: the most thorough, and the slowest."""


HiddenGain = Callable[[int, tuple[int, int]], float]
"""(place of a word, first patch and last + 1) -> nats that these patches gain when the word is hidden."""

Suspicions = Callable[[], NDArray[np.float64]]
"""Log odds for each word of the sentence that it was left out, see `word_evidence`."""


def omitted_words(
    search: PathSearch,
    path: NDArray[np.int64],
    gain: HiddenGain | None,
    suspicions: Suspicions | None,
    check: OmissionCheck,
) -> Iterator[tuple[int, int]]:
    """Yield places of words that were not said, and the step where they should have been.

    `gain` is None where no engine can tell, `suspicions` where the model has no calibration.
    """
    words = search.places.words
    if gain is not None and check is OmissionCheck.ALL_WORDS:
        yield from ((word, step_of(path, word)) for word in words if is_unneeded(word, path, gain, MIN_GAIN_OF_ALL))
    elif suspicions is not None:
        odds = suspicions()
        suspects = [index for index in np.argsort(-odds, kind="stable")[:MAX_SUSPECTS] if odds[index] > SUSPICIOUS]
        if gain is None:
            found = [words[index] for index in np.flatnonzero(odds > CERTAIN)]
        else:
            likely = (
                words[index] for index in suspects if is_unneeded(words[index], path, gain, MIN_EVIDENCE - odds[index])
            )
            found = list(islice(likely, 1))
        yield from ((word, step_of(path, word)) for word in found)


def is_unneeded(word: int, path: NDArray[np.int64], gain: HiddenGain, least: float) -> bool:
    """Return True where the patches around a word's place gain more than `least` nats when it is hidden."""
    span = hidden_span(word, path)
    return span[0] < span[1] and gain(word, span) > least


def hidden_span(word: int, path: NDArray[np.int64]) -> tuple[int, int]:
    """First patch and last + 1 that are scored for a word: those of its place, and some around them."""
    after, start = np.flatnonzero(path > word), step_of(path, word)
    last = max(int(after[0]) if len(after) else len(path), start + 1) + STEPS_AROUND
    return max(1, start - STEPS_AROUND), min(len(path), last)


def step_of(path: NDArray[np.int64], place: int) -> int:
    """The first step at the place or after it; the last one where there is none."""
    steps = np.flatnonzero(path >= place)
    return int(steps[0]) if len(steps) else len(path) - 1


def word_tokens(places: SentencePlaces, index: int) -> tuple[int, int]:
    """First token and last + 1 of a word with the space before it."""
    place, spans = places.places[index], places.spans
    found = np.flatnonzero((spans[:, 0] >= max(0, place.start - 1)) & (spans[:, 0] < place.end))
    return (int(found[0]), int(found[-1]) + 1) if len(found) else (0, 0)
