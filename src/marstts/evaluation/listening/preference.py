"""Which of two checkpoints is better? The same sentences from both, blind, for developers.

Upstream: two folders of takes.  Downstream: `host`; `marstts listen ab`, which prints the result.

Each sentence comes once, its sides in random order, each folder first half of the time. Answers without a difference
are counted and left out of the test: under "no difference" each of the others is a coin's toss, so the sign test is
the binomial one, and the interval of the share that prefers B is Clopper's and Pearson's.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from marstts.errors import DataError
from marstts.evaluation.intervals import COVERAGE, Interval
from marstts.evaluation.listening.config import Question
from marstts.evaluation.listening.design import Kind, Trial
from marstts.evaluation.listening.stimuli import Role, Stimuli, Terms, find_stimuli

A, B = "A", "B"
MAX_SECONDS = 60.0
LOUDNESS_LUFS = -23.0
FIRST_IS_BETTER, SECOND_IS_BETTER = 1, 2
"""Digits of the scale; the third is no difference."""


@dataclass(frozen=True)
class Preference:
    """How often one was better."""

    a_better: int
    b_better: int
    no_difference: int
    share_b: Interval | None
    """Of the answers with a difference, those for B; None where there are none."""
    p_value: float | None
    """Of at least this much imbalance if there were no difference, both sides; None likewise."""

    def describe(self, a: str, b: str) -> str:
        """In words."""
        counts = f"{b} better: {self.b_better}, {a} better: {self.a_better}, no difference: {self.no_difference}."
        if self.share_b is None or self.p_value is None:
            return f"{counts} No difference was heard."
        verdict = "a difference" if self.p_value < 1 - COVERAGE else "within chance"
        return (
            f"{counts} {b} is preferred in {self.share_b.format(2)} of the answers with a difference "
            f"(95 % interval); sign test p = {self.p_value:.3g}: {verdict}."
        )


def judge_preference(a_better: int, b_better: int, no_difference: int) -> Preference:
    """The sign test of the counts, and the exact interval of B's share."""
    from scipy import stats  # half a second of imports that the first page need not wait for

    decided = a_better + b_better
    if decided == 0:
        return Preference(a_better, b_better, no_difference, None, None)
    test = stats.binomtest(b_better, decided)
    bounds = test.proportion_ci(COVERAGE, method="exact")
    share = Interval(b_better / decided, float(bounds.low), float(bounds.high))
    return Preference(a_better, b_better, no_difference, share, float(test.pvalue))


def count_preferences(trials: Sequence[Trial], choices: Sequence[int]) -> Preference:
    """The result of a session; a trial's system says which folder came first."""
    counts = {A: 0, B: 0, "": 0}
    for trial, choice in zip(trials, choices, strict=True):
        order = (trial.system, other(trial.system), "")
        counts[order[choice - FIRST_IS_BETTER]] += 1
    return judge_preference(counts[A], counts[B], counts[""])


def other(side: str) -> str:
    return B if side == A else A


@dataclass(frozen=True)
class PreferenceSheet:
    """Implements `host.Sheet` for one developer."""

    stimuli: Stimuli
    limit: int | None
    """Sentences at most."""
    seed: int
    title: str = "Which one is better?"
    contact: str = ""
    headphones: bool = False
    max_listeners: int = 1000
    """Of one developer, who may begin anew."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"preference {self.stimuli.digest} {self.limit} {self.seed}".encode()).hexdigest()

    def plan(self, number: int) -> list[Trial]:
        rng = random.Random(f"{self.seed} {number}")
        sentences = self.stimuli.sentences
        chosen = rng.sample(sentences, min(len(sentences), self.limit or len(sentences)))
        first = [(A, B)[index % 2] for index in range(len(chosen))]
        rng.shuffle(first)
        return [Trial(Question.PREFERENCE, Kind.RATING, side, name) for side, name in zip(first, chosen, strict=True)]

    def path(self, trial: Trial, role: Role) -> Path:
        side = trial.system if role is Role.FIRST else other(trial.system)
        return self.stimuli.systems[side][trial.sentence]

    def trial_seconds(self, trial: Trial) -> float:
        return sum(self.stimuli.seconds[self.path(trial, role)] for role in (Role.FIRST, Role.SECOND))

    def encode(self, trial: Trial, role: Role) -> bytes:
        return self.stimuli.encode_file(self.path(trial, role))

    def volume_sample(self) -> bytes | None:
        return None

    def result(self, trials: Sequence[Trial], choices: Sequence[int]) -> dict[str, Any]:
        """The counts and the test, which a developer may see at once."""
        preference = count_preferences(trials, choices)
        return {**asdict(preference), "sentence": preference.describe(A, B)}


def open_preference(
    folder_a: Path, folder_b: Path, *, limit: int | None, seed: int, sample_rate: int | None
) -> PreferenceSheet:
    """Check both folders; DataError naming all that is wrong with them."""
    if folder_a.resolve() == folder_b.resolve():
        raise DataError(f"{folder_a}: expected two folders to compare, but this one was named twice")
    terms = Terms(sample_rate, MAX_SECONDS, LOUDNESS_LUFS)
    return PreferenceSheet(find_stimuli({A: folder_a, B: folder_b}, None, None, terms), limit, seed)
