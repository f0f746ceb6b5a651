"""A linear model of how well a speech model reads a word in some letters, fitted to what was measured of other words.

Upstream: measurements of `respellings.py`, and the letter-to-sound model, whose graphones (runs of letters with their
phones) are the features.  Downstream: `respellings.py`, which has only the most promising spellings of a word spoken.
On words that it was not fitted to, predictions and means of two to eight takes have a correlation of 0.75, and of 0.47
between the spellings of a word (28,000 spellings of 12,000 words).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from marstts.text.pronunciation.letters_to_sounds import (
    END,
    ID_BITS,
    START,
    GraphoneModel,
    graphones_by_letters,
    packaged_model,
)

Graphones = tuple[tuple[str, tuple[str, ...]], ...]
"""A word as pairs of letters and phones; either may be empty in sequences of the letter-to-sound model."""

BEAM, ALIGNED_BEAM = 40, 4
"""Partial sequences that are kept where letters are searched for phones, and where both are given."""

LONGEST_PHONES, LONGEST_LETTERS = 3, 2
"""Phones and letters of a graphone at most."""

LONGEST_RUN = 4
"""Letters of the runs that are features."""

MIN_COUNT = 3
"""Spellings that a feature is in at least."""

PENALTY = 60.0
"""Of the squared weights, as a number of takes: best of 3 to 250 on words kept aside."""

ITERATIONS = 200


@dataclass(frozen=True)
class Partial:
    """The beginning of a sequence of graphones."""

    log_prob: float = 0.0
    history: int = START
    numbers: tuple[int, ...] = ()


def plain(phones: Sequence[str]) -> tuple[str, ...]:
    """Phones without stress."""
    return tuple(phone.rstrip("012") for phone in phones)


def letters_of(graphones: Graphones) -> str:
    """The word in letters."""
    return "".join(letters for letters, _ in graphones)


def sequences(phones: Sequence[str]) -> list[Graphones]:
    """The likeliest sequences of graphones with these phones, in each spelling once; one in a row may be silent."""
    model, by_phones = packaged_model(), graphones_by_phones()
    reached: list[list[Partial]] = [[] for _ in range(len(phones) + 1)]
    reached[0] = [Partial()]
    for place, partials in enumerate(reached):
        best = likeliest(partials, BEAM)
        reached[place] = best = likeliest(best + longer(model, best, by_phones.get((), ())), BEAM)
        for size in range(1, min(LONGEST_PHONES, len(phones) - place) + 1):
            reached[place + size] += longer(model, best, by_phones.get(tuple(phones[place : place + size]), ()))
    found: dict[str, Graphones] = {}
    for partial in likeliest([ended(model, each) for each in reached[-1]], len(reached[-1])):
        graphones = pairs(model, partial)
        found.setdefault(letters_of(graphones), graphones)
    return list(found.values())


@cache
def aligned(letters: str, phones: tuple[str, ...]) -> Graphones | None:
    """The likeliest sequence of graphones with these letters and phones, whatever their stress; None without one."""
    model, sounds = packaged_model(), plain(phones)
    by_letters = graphones_by_letters(model)
    reached: dict[tuple[int, int], list[Partial]] = {(0, 0): [Partial()]}
    for read in range(len(letters)):
        for said in range(len(sounds) + 1):
            best = likeliest(reached.get((read, said), ()), ALIGNED_BEAM)
            for size in range(1, min(LONGEST_LETTERS, len(letters) - read) + 1) if best else ():
                for number in by_letters.get(letters[read : read + size], ()):
                    its = plain(model.phones[number])
                    if sounds[said : said + len(its)] == its:
                        reached.setdefault((read + size, said + len(its)), []).extend(longer(model, best, [number]))
    whole = reached.get((len(letters), len(sounds)))
    return pairs(model, max(whole, key=lambda each: ended(model, each).log_prob)) if whole else None


def likeliest(partials: Sequence[Partial], most: int) -> list[Partial]:
    """The partial sequences with the highest log-probability, in this order."""
    return sorted(partials, key=lambda each: (-each.log_prob, each.numbers))[:most]


def longer(model: GraphoneModel, partials: Sequence[Partial], numbers: Sequence[int]) -> list[Partial]:
    """Each of the partial sequences with each of the graphones more."""
    if not numbers:
        return []
    mask = (1 << ID_BITS * (model.order - 1)) - 1
    return [
        Partial(each.log_prob + model.score(known, number), (each.history << ID_BITS | number) & mask,
                (*each.numbers, number))
        for each, known in [(each, model.following(each.history)) for each in partials]
        for number in numbers
    ]  # fmt: skip


def ended(model: GraphoneModel, partial: Partial) -> Partial:
    """The sequence with the end of the word."""
    log_prob = partial.log_prob + model.score(model.following(partial.history), END)
    return Partial(log_prob, partial.history, partial.numbers)


def pairs(model: GraphoneModel, partial: Partial) -> Graphones:
    """The graphones of a sequence."""
    return tuple((model.letters[number], plain(model.phones[number])) for number in partial.numbers)


@cache
def graphones_by_phones() -> dict[tuple[str, ...], list[int]]:
    """The numbers of the graphones with these phones."""
    found: dict[tuple[str, ...], list[int]] = defaultdict(list)
    model = packaged_model()
    for number, (letters, phones) in enumerate(zip(model.letters, model.phones, strict=True)):
        if letters:
            found[phones].append(number)
    return dict(found)


@dataclass(frozen=True)
class Example:
    """A word in some letters that was measured."""

    graphones: Graphones
    goodness: float
    takes: int


@dataclass(frozen=True)
class ReadingModel:
    """Predicts goodness of pronunciation."""

    mean: float
    weights: dict[str, float]

    def predict(self, graphones: Graphones) -> float:
        """Goodness in nats of a phone (`words.pronunciation.goodness`), but not bounded by 0."""
        return self.mean + sum(self.weights.get(feature, 0.0) for feature in features(graphones))


def features(graphones: Graphones) -> Iterator[str]:
    """Each graphone alone and between its neighbours' letters and phones; runs of letters."""
    names = [f"{letters}:{'.'.join(phones)}" for letters, phones in graphones]
    around = [("^", ""), *((letters, ".".join(phones)) for letters, phones in graphones), ("$", "")]
    for name, (before, _), (after, said_after) in zip(names, around, around[2:], strict=False):
        yield name
        yield f"{before}<{name}"
        yield f"{name}>{after}"
        yield f"{before}<{name}>{after}"
        yield f"{name.partition(':')[2]}>>{said_after}"
    word = f"^{letters_of(graphones)}$"
    for size in range(2, LONGEST_RUN + 1):
        yield from (word[start : start + size] for start in range(len(word) - size + 1))


def fit(examples: Sequence[Example]) -> ReadingModel:
    """Ridge regression, each spelling as often as it was spoken, by conjugate gradients; of none, all are alike."""
    if not examples:
        return ReadingModel(0.0, {})
    counts = Counter(feature for each in examples for feature in set(features(each.graphones)))
    numbers = {feature: number for number, feature in enumerate(f for f, count in counts.items() if count >= MIN_COUNT)}
    found = [[numbers[f] for f in features(each.graphones) if f in numbers] for each in examples]
    rows = np.repeat(np.arange(len(found)), [len(each) for each in found])
    columns = np.array([number for each in found for number in each], dtype=np.int64)
    takes = np.array([each.takes for each in examples], dtype=np.float64)
    goodness = np.array([each.goodness for each in examples])
    mean = float(np.average(goodness, weights=takes))

    def by_feature(values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(examples,) -> (features,), each example as often as it was spoken."""
        return np.bincount(columns, (takes * values)[rows], len(numbers)).astype(np.float64)

    def product(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The matrix of the normal equations by weights (features,)."""
        predicted = np.bincount(rows, weights[columns], len(found)).astype(np.float64)
        return by_feature(predicted) + PENALTY * weights

    weights = np.zeros(len(numbers))
    residual = by_feature(goodness - mean)
    direction, size = residual.copy(), residual @ residual
    smallest = 1e-10 * size
    for _ in range(ITERATIONS):
        if size <= smallest:
            break
        moved = product(direction)
        step = size / (direction @ moved)
        weights += step * direction
        residual -= step * moved
        size, before = residual @ residual, size
        direction = residual + size / before * direction
    return ReadingModel(mean, {feature: float(weights[number]) for feature, number in numbers.items()})
