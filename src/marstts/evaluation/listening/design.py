"""Who hears what, and in which order: a function of the test, the seed and the listener's number.

Upstream: names of systems and sentences from `stimuli`.  Downstream: `host`, `turk`.

Two Latin squares. The first says which system speaks a sentence: over as many listeners as there are systems every one
of their sentences is heard from every system, and no listener hears a sentence twice (but for repeats). The second, a
Williams square, says in which order the systems come: each stands in each place, and before each other one, equally
often. Among these lie traps and repeats, evenly spread at random places; examples that span the scale come first.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from marstts.errors import ConfigError
from marstts.evaluation.listening.config import ListeningTestConfig, Question

MAX_PER_SYSTEM = 8
"""Sentences of each system where nobody says how many: a session should not outlast attention."""


class Kind(str, Enum):
    """Why a listener hears something. All look the same on the page, but for examples."""

    EXAMPLE = "example"
    """Calibration: shows how far the scale reaches; its answer is kept, and counts for nothing."""
    RATING = "rating"
    TRAP = "trap"
    REPEAT = "repeat"
    """A rating asked for again; it counts for consistency only."""


class Anchor(str, Enum):
    """Recordings whose answer is known, in the place of a system."""

    CLEAN = "(clean)"
    """A person, as recorded."""
    MIDDLING = "(middling)"
    """The same with some noise on the speech; an example, never a trap."""
    DEGRADED = "(degraded)"
    """The same, buried in noise that moves with the speech."""
    SAME = "(same)"
    """The reference itself: one person."""
    OTHER = "(other)"
    """The reference with another throat: two people."""


EXAMPLES = {
    Question.NATURALNESS: (Anchor.CLEAN, Anchor.DEGRADED, Anchor.MIDDLING),
    Question.SIMILARITY: (Anchor.SAME, Anchor.OTHER),
}
TRAPS = {
    Question.NATURALNESS: (Anchor.CLEAN, Anchor.DEGRADED),
    Question.SIMILARITY: (Anchor.SAME, Anchor.OTHER),
}


@dataclass(frozen=True)
class Trial:
    """One question about one recording."""

    question: Question
    kind: Kind
    system: str
    """Who speaks: a system's name, or the value of an `Anchor`."""
    sentence: str


@dataclass(frozen=True)
class Design:
    """All that decides the sessions of a test."""

    systems: Sequence[str]
    sentences: Sequence[str]
    recordings: Sequence[str]
    """Names of clean recordings, for the anchors of naturalness."""
    questions: Sequence[Question]
    per_system: int
    traps: int
    repeats: int
    seed: int


def make_design(config: ListeningTestConfig, sentences: Sequence[str], recordings: Sequence[str]) -> Design:
    """The design of a test; ConfigError where there are too few sentences for it."""
    most = len(sentences) // len(config.systems)
    if most == 0:
        raise ConfigError(
            f"{len(config.systems)} systems need at least as many sentences, so that nobody hears one twice; there are "
            f"{len(sentences)}"
        )
    per_system = config.per_system or min(most, MAX_PER_SYSTEM)
    if per_system > most:
        raise ConfigError(
            f"per_system is {per_system}; with {len(sentences)} sentences and {len(config.systems)} systems it is at "
            f"most {most}"
        )
    num_ratings = per_system * len(config.systems)
    if config.repeats > num_ratings // 2:
        raise ConfigError(
            f"repeats is {config.repeats}; of {num_ratings} ratings at most {num_ratings // 2} can recur; "
            "lower it, or give more sentences"
        )
    return Design(
        systems=tuple(config.systems), sentences=tuple(sentences), recordings=tuple(recordings),
        questions=config.questions, per_system=per_system, traps=config.traps, repeats=config.repeats,
        seed=config.seed,
    )  # fmt: skip


def plan_session(design: Design, number: int) -> list[Trial]:
    """All that listener `number` (from 0) is asked, part by part."""
    return [trial for question in design.questions for trial in plan_part(design, question, number)]


def plan_part(design: Design, question: Question, number: int) -> list[Trial]:
    """The trials of one question: examples, then ratings with traps and repeats among them."""
    rng = random.Random(f"{design.seed} {question.value} {number}")
    sources = design.recordings if question is Question.NATURALNESS else design.sentences
    ratings = [Trial(question, Kind.RATING, *spoken) for spoken in order_ratings(design, number, rng)]
    examples = [Trial(question, Kind.EXAMPLE, anchor.value, rng.choice(sources)) for anchor in EXAMPLES[question]]
    traps = [
        Trial(question, Kind.TRAP, anchor.value, rng.choice(sources))
        for anchor in TRAPS[question]
        for _ in range(design.traps)
    ]
    return examples + spread(ratings, traps, design.repeats, rng)


def order_ratings(design: Design, number: int, rng: random.Random) -> list[tuple[str, str]]:
    """(system, sentence) in the order they are heard."""
    count = len(design.systems)
    heard = {system: [sentence for name, sentence in assign(design, number) if name == system]
             for system in design.systems}  # fmt: skip
    for sentences in heard.values():
        rng.shuffle(sentences)
    square = williams_square(count)
    return [
        (design.systems[index], heard[design.systems[index]][turn])
        for turn in range(design.per_system)
        for index in square[(number + turn) % len(square)]
    ]


def assign(design: Design, number: int) -> list[tuple[str, str]]:
    """(system, sentence) pairs of a listener: a row of a cyclic Latin square over the listener group's sentences."""
    count = len(design.systems)
    group, row = divmod(number, count)
    shuffled = list(design.sentences)
    random.Random(f"{design.seed} sentences").shuffle(shuffled)
    size = design.per_system * count
    block = [shuffled[(group * size + place) % len(shuffled)] for place in range(size)]
    return [(design.systems[(place + row) % count], sentence) for place, sentence in enumerate(block)]


def williams_square(count: int) -> list[list[int]]:
    """Rows of 0 … count - 1 in which each stands in each column, and right before each other one, equally often.

    `count` rows where it is even, twice as many where it is odd. Williams, 1949.
    """
    zigzag = [place // 2 if place % 2 == 0 else count - (place + 1) // 2 for place in range(count)]
    rows = [[(value + shift) % count for value in zigzag] for shift in range(count)]
    return rows if count % 2 == 0 else rows + [row[::-1] for row in rows]


def spread(ratings: Sequence[Trial], traps: Sequence[Trial], repeats: int, rng: random.Random) -> list[Trial]:
    """Ratings in their order, a trap somewhere in each of as many equal stretches, repeats a third of them later."""
    length = len(ratings)
    placed = [(float(place), trial) for place, trial in enumerate(ratings)]
    shuffled = rng.sample(list(traps), len(traps))
    stretch = length / max(1, len(traps))
    placed += [((place + rng.random()) * stretch, trap) for place, trap in enumerate(shuffled)]
    for place in rng.sample(range(length // 2), repeats):
        again = Trial(ratings[place].question, Kind.REPEAT, ratings[place].system, ratings[place].sentence)
        placed.append((rng.uniform(place + length / 3, length), again))
    return [trial for _, trial in sorted(placed, key=lambda item: item[0])]
