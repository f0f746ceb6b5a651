"""Words that a take leaves out: suspected where the text gets little attention, confirmed by the model itself.

Upstream: the path of a take's attention (`attention_path`), an engine that scores patches.  Downstream: `flaws`.
A word that was not said is one that the patches around its place do not need: they are more probable when the model
cannot attend to the word. A word that was said is needed, so its patches become improbable without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from marstts.synthesis.attention_path import PathSearch, SentencePlaces

LETTERS_BY_STEPS = {
    0.2: " '-",
    0.4: "eh",
    0.6: "giu",
    0.7: "dow",
    0.8: "abflmnrtv",
    0.9: "?!ckpsz",
    1.0: ".",
    1.1: "y",
    1.2: "j",
    1.3: "x",
    1.4: "q",
    2.3: ",",
}
"""Steps of attention that a character gets in a sound take: means of 300 takes of mini."""

STEPS_OF_LETTER = {letter: steps for steps, letters in LETTERS_BY_STEPS.items() for letter in letters}

WINDOW_LETTERS = 7
"""Characters that are looked at together in search of a word that was cut short."""

MIN_COVERAGE = 0.42
"""Share of the usual attention that every window gets in a sound take: less in 1 of 300. Decides alone where no engine
can confirm it."""

SUSPICIOUS_COVERAGE = 0.6
"""Less than this share is confirmed or refuted by the engine: so little have 2 of 10 sound takes."""

SUSPECTS_BEFORE = 2
"""Words before the window that are suspected, too: attention may be thin only after the gap."""

MIN_GAIN = 1.0
"""Nats that patches must gain when the word is hidden: words of sound takes lose some, but for 1 of 100 takes."""

STEPS_BEFORE, STEPS_AFTER = 2, 4
"""Patches before and after the suspected words that are scored, too."""


class OmissionCheck(str, Enum):
    """Extent of the check: the words that the engine scores."""

    SUSPECTS = "suspects"
    """Words around the place that got least attention, if it is suspiciously little."""

    ALL_WORDS = "all words"
    """Every word: the most thorough, and the slowest."""


HiddenGains = Callable[[Sequence[int], tuple[int, int]], Sequence[float]]
"""(places of words, first patch and last + 1) -> nats that these patches gain when each of the words is hidden."""


def omitted_words(
    search: PathSearch, path: NDArray[np.int64], gains: HiddenGains | None, check: OmissionCheck
) -> Iterator[tuple[int, int]]:
    """Yield places of words that were not said, and the step where they should have been."""
    if gains is not None and check is OmissionCheck.ALL_WORDS:
        for word in search.places.words:
            yield from confirmed([word], path, gains)
        return
    ratio, index = thinnest_word(search)
    if gains is None:
        if ratio < MIN_COVERAGE:
            yield index, step_of(path, index)
        return
    if ratio >= SUSPICIOUS_COVERAGE:
        return
    words = search.places.words
    number = words.index(index)
    suspects = words[max(0, number - SUSPECTS_BEFORE) : number + 1]
    yield from confirmed(suspects, path, gains)


def confirmed(suspects: Sequence[int], path: NDArray[np.int64], gains: HiddenGains) -> Iterator[tuple[int, int]]:
    """The word among the suspects that patches need least, if they do not need it, and its step."""
    after = np.flatnonzero(path > suspects[-1])
    last = (int(after[0]) if len(after) else len(path)) + STEPS_AFTER
    span = max(1, step_of(path, suspects[0]) - STEPS_BEFORE), min(len(path), last)
    if span[0] >= span[1]:
        return
    found = gains(suspects, span)
    best = int(np.argmax(found))
    if found[best] > MIN_GAIN:
        yield suspects[best], step_of(path, suspects[best])


def step_of(path: NDArray[np.int64], place: int) -> int:
    """The first step at the place or after it; the last one where there is none."""
    steps = np.flatnonzero(path >= place)
    return int(steps[0]) if len(steps) else len(path) - 1


def thinnest_word(search: PathSearch) -> tuple[float, int]:
    """The least share of the usual attention that a window of characters got, and the place of the word around it."""
    places = search.places
    inside = np.flatnonzero(places.spans[:, 0] >= 0)
    if not len(inside) or not places.words:
        return 1.0, 0
    usual = np.array([usual_steps(places.sentence[first:last]) for first, last in places.spans[inside]])
    coverage = search.coverage[inside]
    usual = usual * max(coverage.sum() / usual.sum(), 1e-6)  # as fast as this take
    window = np.ones(WINDOW_LETTERS)
    ratio = np.convolve(coverage, window, "same")[: len(inside)] / np.convolve(usual, window, "same")[: len(inside)]
    least = int(ratio.argmin())
    character = int(places.spans[inside[least], 0])
    first = places.words[0]
    return float(ratio[least]), max(
        word for word in places.words if places.places[word].start <= character or word == first
    )


def usual_steps(characters: str) -> float:
    """Steps of attention that a token of these characters gets in a sound take of usual pace."""
    return sum(STEPS_OF_LETTER.get(letter, 0.7) for letter in characters.lower())


def word_tokens(places: SentencePlaces, index: int) -> tuple[int, int]:
    """First token and last + 1 of a word with the space before it."""
    place, spans = places.places[index], places.spans
    found = np.flatnonzero((spans[:, 0] >= max(0, place.start - 1)) & (spans[:, 0] < place.end))
    return (int(found[0]), int(found[-1]) + 1) if len(found) else (0, 0)
