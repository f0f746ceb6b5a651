"""The trials of each listener and their order: a function of the test, the seed and the listener's number.

Upstream: names of systems and sentences from `stimuli`.  Downstream: `service`.

Two Latin squares. The first assigns systems to sentences: over as many listeners as there are systems, each of their
sentences is played from every system, and no listener gets a sentence twice (repeats excepted). The second, a Williams
square, gives the order of the systems: each is at each position, and before each other one, equally often. Attention
checks and repeats are spread evenly among the ratings at random positions; examples that span the scale come first.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from marstts.errors import ConfigError
from marstts_listening_test.config import ListeningTestConfig, Question

MAX_PER_SYSTEM = 8
"""Default number of sentences of each system: a session should not outlast attention."""


class TrialKind(str, Enum):
    """Purpose of a trial. All look the same on the page, examples excepted."""

    EXAMPLE = "example"
    """Calibration: shows how far the scale reaches. The answer is stored and not used."""
    RATING = "rating"
    ATTENTION_CHECK = "attention-check"
    REPEAT = "repeat"
    """A rating asked for again; it is used for consistency only."""


class Anchor(str, Enum):
    """Recordings whose answer is known; they take the place of a system."""

    CLEAN = "(clean)"
    """A recording as it is."""
    MIDDLING = "(middling)"
    """The same with some noise on the speech; an example, never an attention check."""
    DEGRADED = "(degraded)"
    """The same under noise modulated by the speech."""
    SAME = "(same)"
    """The reference itself: one person."""
    OTHER = "(other)"
    """The reference with a shorter vocal tract and higher F0: two persons."""


EXAMPLES = {
    Question.NATURALNESS: (Anchor.CLEAN, Anchor.DEGRADED, Anchor.MIDDLING),
    Question.SIMILARITY: (Anchor.SAME, Anchor.OTHER),
}
ATTENTION_CHECKS = {
    Question.NATURALNESS: (Anchor.CLEAN, Anchor.DEGRADED),
    Question.SIMILARITY: (Anchor.SAME, Anchor.OTHER),
}

SIDES = ("A", "B")
"""Systems of a preference test: the folder that comes first in a trial."""


def other_side(side: str) -> str:
    """B for A, A for B."""
    return SIDES[1 - SIDES.index(side)]


@dataclass(frozen=True)
class ListeningTrial:
    """One question about one recording."""

    question: Question
    kind: TrialKind
    system: str
    """A system's name, or the value of an `Anchor`."""
    sentence: str


@dataclass(frozen=True)
class Design:
    """All that determines the sessions of a test."""

    systems: Sequence[str]
    sentences: Sequence[str]
    recordings: Sequence[str]
    """Names of clean recordings, for the anchors of naturalness."""
    questions: Sequence[Question]
    per_system: int
    attention_checks: int
    repeats: int
    seed: int


def make_design(config: ListeningTestConfig, sentences: Sequence[str], recordings: Sequence[str]) -> Design:
    """The design of a test; ConfigError where there are too few sentences for it."""
    most = len(sentences) // len(config.systems)
    if most == 0:
        raise ConfigError(
            f"{len(config.systems)} systems need at least as many sentences, so that no listener gets one twice; there "
            f"are {len(sentences)}"
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
            f"repeats is {config.repeats}; of {num_ratings} ratings at most {num_ratings // 2} can be repeated; "
            "lower it, or give more sentences"
        )
    return Design(
        systems=tuple(config.systems), sentences=tuple(sentences), recordings=tuple(recordings),
        questions=config.questions, per_system=per_system, attention_checks=config.attention_checks,
        repeats=config.repeats, seed=config.seed,
    )  # fmt: skip


def plan_session(design: Design, number: int) -> list[ListeningTrial]:
    """All trials of listener `number` (from 0), part by part."""
    return [trial for question in design.questions for trial in plan_part(design, question, number)]


def plan_part(design: Design, question: Question, number: int) -> list[ListeningTrial]:
    """The trials of one question: examples, then ratings with attention checks and repeats among them."""
    rng = random.Random(f"{design.seed} {question.value} {number}")
    sources = design.recordings if question is Question.NATURALNESS else design.sentences
    ratings = [
        ListeningTrial(question, TrialKind.RATING, system, sentence)
        for system, sentence in order_ratings(design, number, rng)
    ]
    examples = [
        ListeningTrial(question, TrialKind.EXAMPLE, anchor.value, rng.choice(sources)) for anchor in EXAMPLES[question]
    ]
    checks = [
        ListeningTrial(question, TrialKind.ATTENTION_CHECK, anchor.value, rng.choice(sources))
        for anchor in ATTENTION_CHECKS[question]
        for _ in range(design.attention_checks)
    ]
    return examples + interleave(ratings, checks, design.repeats, rng)


def order_ratings(design: Design, number: int, rng: random.Random) -> list[tuple[str, str]]:
    """(system, sentence) in the order of their trials."""
    count = len(design.systems)
    assigned = {
        system: [sentence for name, sentence in assign_systems(design, number) if name == system]
        for system in design.systems
    }
    for sentences in assigned.values():
        rng.shuffle(sentences)
    square = williams_square(count)
    return [
        (design.systems[index], assigned[design.systems[index]][turn])
        for turn in range(design.per_system)
        for index in square[(number + turn) % len(square)]
    ]


def assign_systems(design: Design, number: int) -> list[tuple[str, str]]:
    """(system, sentence) of a listener: a row of the first Latin square, over this group's sentences."""
    count = len(design.systems)
    group, row = divmod(number, count)
    shuffled = list(design.sentences)
    random.Random(f"{design.seed} sentences").shuffle(shuffled)
    size = design.per_system * count
    block = [shuffled[(group * size + index) % len(shuffled)] for index in range(size)]
    return [(design.systems[(index + row) % count], sentence) for index, sentence in enumerate(block)]


def williams_square(count: int) -> list[list[int]]:
    """Rows of 0 … count - 1 in which each stands in each column, and right before each other one, equally often.

    `count` rows where it is even, twice as many where it is odd. Williams, 1949.
    """
    zigzag = [column // 2 if column % 2 == 0 else count - (column + 1) // 2 for column in range(count)]
    rows = [[(value + shift) % count for value in zigzag] for shift in range(count)]
    return rows if count % 2 == 0 else rows + [row[::-1] for row in rows]


def interleave(
    ratings: Sequence[ListeningTrial], checks: Sequence[ListeningTrial], repeats: int, rng: random.Random
) -> list[ListeningTrial]:
    """Ratings in order, one check at random in each of equal segments, repeats a third of the part later."""
    length = len(ratings)
    placed = [(float(position), trial) for position, trial in enumerate(ratings)]
    shuffled = rng.sample(list(checks), len(checks))
    segment = length / max(1, len(checks))
    placed += [((index + rng.random()) * segment, check) for index, check in enumerate(shuffled)]
    for position in rng.sample(range(length // 2), repeats):
        rating = ratings[position]
        repeat = ListeningTrial(rating.question, TrialKind.REPEAT, rating.system, rating.sentence)
        placed.append((rng.uniform(position + length / 3, length), repeat))
    return [trial for _, trial in sorted(placed, key=lambda item: item[0])]
