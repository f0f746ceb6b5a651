"""Preference between two checkpoints: the same sentences from both, blind, for developers.

Upstream: two folders of takes.  Downstream: `service`; `marstts-listening-test ab`, which prints the result.

Each sentence comes once, its sides in random order, each folder first half of the time. Answers "no difference" are
counted and excluded from the test. Without a difference each of the others is equally likely to name A or B, so the
sign test is the binomial one. The interval of the fraction that prefers B is Clopper's and Pearson's.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from marstts.errors import DataError
from marstts.io.reading import printable_name
from marstts_lab.metrics.intervals import COVERAGE, Interval
from marstts_listening_test.config import Question
from marstts_listening_test.design import SIDES, ListeningTrial, TrialKind, other_side
from marstts_listening_test.stimuli import AudioRequirements, Stimuli, find_stimuli

A, B = SIDES
MAX_SECONDS = 60.0
LOUDNESS_LUFS = -23.0
FIRST_IS_BETTER, SECOND_IS_BETTER = 1, 2
"""Digits of the scale; the third is no difference."""


@dataclass(frozen=True)
class PreferenceResult:
    """Counts of a preference test, and its sign test."""

    a_better: int
    b_better: int
    no_difference: int
    b_fraction: Interval | None
    """Fraction of the answers with a difference that prefer B; None where there are none."""
    p_value: float | None
    """Probability of at least this imbalance without a difference, two-sided; None likewise."""

    def describe(self, a: str, b: str) -> str:
        """The result as sentences."""
        counts = f"{b} better: {self.b_better}, {a} better: {self.a_better}, no difference: {self.no_difference}."
        if self.b_fraction is None or self.p_value is None:
            return f"{counts} No difference was found."
        conclusion = "significant" if self.p_value < 1 - COVERAGE else "not significant"
        return (
            f"{counts} {b} is preferred in {self.b_fraction.format(2)} of the answers with a difference "
            f"(95 % interval); sign test p = {self.p_value:.3g}: {conclusion}."
        )


def sign_test(a_better: int, b_better: int, no_difference: int) -> PreferenceResult:
    """The sign test of the counts, and the exact interval of B's fraction."""
    from scipy import stats  # half a second of imports that the first page need not wait for

    decided = a_better + b_better
    if decided == 0:
        return PreferenceResult(a_better, b_better, no_difference, None, None)
    test = stats.binomtest(b_better, decided)
    bounds = test.proportion_ci(COVERAGE, method="exact")
    fraction = Interval(b_better / decided, float(bounds.low), float(bounds.high))
    return PreferenceResult(a_better, b_better, no_difference, fraction, float(test.pvalue))


def count_preferences(trials: Sequence[ListeningTrial], choices: Sequence[int]) -> PreferenceResult:
    """The result of a session; a trial's system is the folder that came first."""
    counts = {A: 0, B: 0, "": 0}
    for trial, choice in zip(trials, choices, strict=True):
        order = (trial.system, other_side(trial.system), "")
        counts[order[choice - FIRST_IS_BETTER]] += 1
    return sign_test(counts[A], counts[B], counts[""])


@dataclass(frozen=True)
class PreferencePlan:
    """A `service.TestPlan` for one developer."""

    stimuli: Stimuli
    limit: int | None
    """Sentences at most."""
    seed: int
    title: str = "Which one is better?"
    contact: str = ""
    headphones: bool = False
    max_listeners: int = 1000
    """Sessions of one developer, who may start again."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"preference {self.stimuli.digest} {self.limit} {self.seed}".encode()).hexdigest()

    def plan(self, number: int) -> list[ListeningTrial]:
        rng = random.Random(f"{self.seed} {number}")
        sentences = self.stimuli.sentences
        chosen = rng.sample(sentences, min(len(sentences), self.limit or len(sentences)))
        first = [SIDES[index % 2] for index in range(len(chosen))]
        rng.shuffle(first)
        return [
            ListeningTrial(Question.PREFERENCE, TrialKind.RATING, side, name)
            for side, name in zip(first, chosen, strict=True)
        ]

    def volume_sample(self) -> bytes | None:
        return None

    def result(self, trials: Sequence[ListeningTrial], choices: Sequence[int]) -> dict[str, Any]:
        """The counts and the test, which a developer may see at once."""
        result = count_preferences(trials, choices)
        return {**asdict(result), "sentence": result.describe(A, B)}


def open_preference_plan(
    folder_a: Path, folder_b: Path, *, limit: int | None, seed: int, sample_rate: int | None
) -> PreferencePlan:
    """Check both folders; DataError naming everything that is wrong with them."""
    if folder_a.resolve() == folder_b.resolve():
        raise DataError(f"{printable_name(folder_a)}: expected two folders to compare, but this one was given twice")
    requirements = AudioRequirements(sample_rate, MAX_SECONDS, LOUDNESS_LUFS)
    return PreferencePlan(find_stimuli({A: folder_a, B: folder_b}, None, None, requirements), limit, seed)
