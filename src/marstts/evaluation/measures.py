"""What is reported: every score as a statistic over sentences, so that one bootstrap serves all.

Upstream: `scores.TakeScore`.  Downstream: `report`, `comparison`.

A measure takes from each take a few numbers, and makes of all takes' numbers one score: a ratio of sums (errors over
words, a mean over a count) or the equal error rate. A measure some take of a system lacks is not averaged over the
rest: the system has no such score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import comb

import numpy as np
from numpy.typing import NDArray

from marstts.evaluation.intervals import Interval, Statistic, bootstrap, ratio
from marstts.evaluation.metrics.identity import telling_apart
from marstts.evaluation.metrics.length import Verdict
from marstts.evaluation.scores import TakeScore, WordScore, WordTest

Numbers = tuple[float, ...]
NOTHING: Numbers = (0.0, 0.0)
"""A take a measure says nothing about, and rightly so: no melody to follow, nothing to be timed."""


class Better(str, Enum):
    """Which way a score is better."""

    LOWER = "↓"
    HIGHER = "↑"
    NEITHER = ""

    def beats(self, difference: float) -> bool:
        """Whether a score that is higher by `difference` is better."""
        return difference < 0 if self is Better.LOWER else difference > 0


@dataclass(frozen=True)
class Measure:
    """One column."""

    key: str
    title: str
    better: Better
    numbers: Callable[[TakeScore], Numbers | None]
    """Of one take; None where it was not judged by this."""

    digits: int = 3
    statistic: Statistic = field(default=ratio)
    in_table_one: bool = False
    told_by_style: bool = False
    """Whether it has a table by style, as those of the first table have."""

    @property
    def heading(self) -> str:
        return f"{self.title} {self.better.value}".strip()

    def of(self, rows: Sequence[TakeScore]) -> NDArray[np.float64] | None:
        """(N, K) numbers of all rows; None where some were not judged by this."""
        found = [self.numbers(row) for row in rows]
        known = [numbers for numbers in found if numbers is not None]
        return np.array(known, dtype=np.float64) if known and len(known) == len(rows) else None

    def evaluate(self, rows: Sequence[TakeScore]) -> Interval | None:
        """The score of all rows and its interval; None where it is unknown."""
        numbers = self.of(rows)
        return None if numbers is None else bootstrap(numbers, self.statistic)


def equal_error_rate_of(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """(..., N, 2) similarities of the real recording, and of the take, to the reference -> (...) per cent."""
    return telling_apart(numbers[..., 0], numbers[..., 1])


def words(of: Callable[[WordScore], Numbers]) -> Callable[[TakeScore], Numbers | None]:
    return lambda row: None if row.words is None else of(row.words)


def word_test(of: Callable[[WordTest], Numbers]) -> Callable[[TakeScore], Numbers | None]:
    return lambda row: None if row.word_test is None else of(row.word_test)


def mean(value: Callable[[TakeScore], float | None]) -> Callable[[TakeScore], Numbers | None]:
    """A plain mean over takes; a take whose value is None says nothing."""

    def of(row: TakeScore) -> Numbers:
        found = value(row)
        return NOTHING if found is None else (found, 1.0)

    return of


WORD_MEASURES = (
    Measure("wer", "WER", Better.LOWER, words(lambda w: (w.word_errors, w.words)), in_table_one=True),
    Measure(
        "cer", "CER", Better.LOWER, words(lambda w: (w.character_errors, w.characters)), in_table_one=True
    ),
    Measure("repeats", "takes that repeat", Better.LOWER, words(lambda w: (w.repeats, 1.0)), 2),
    Measure("cut_short", "takes cut short", Better.LOWER, words(lambda w: (w.cut_short, 1.0)), 2),
    Measure(
        "word_choice",
        "word choice",
        Better.HIGHER,
        word_test(lambda w: (w.right_choices, w.choices)),
    ),
    Measure("word_faults", "takes with a word fault", Better.LOWER, word_test(lambda w: (w.word_fault, 1.0)), 2),
)  # fmt: skip

PLAUSIBLE_LENGTH = (Verdict.PLAUSIBLE, Verdict.TOO_SHORT)
OTHERS_IN_LINE = 9
"""Other people's references beside one's own in a line of ten."""


def is_odd(row: TakeScore) -> bool:
    """Whether there is no speech, or over twice as much as there should be, or a loop or a skip is heard."""
    misread = row.words is not None and (row.words.repeats or row.words.cut_short)
    return row.verdict not in PLAUSIBLE_LENGTH or misread


READING_MEASURES = (
    Measure("odd", "odd takes", Better.LOWER, lambda r: (is_odd(r), 1.0), 2, told_by_style=True),
    Measure(
        "length",
        "length / source",
        Better.NEITHER,
        mean(lambda r: r.seconds / r.source_seconds if r.source_seconds and r.verdict.has_speech else None),
        2,
    ),
    Measure(
        "style",
        "style right",
        Better.HIGHER,
        mean(lambda r: None if r.style_is_right is None else float(r.style_is_right)),
        2,
        told_by_style=True,
    ),
    Measure("pitch", "pitch follows", Better.HIGHER, lambda r: prosody_numbers(r, "pitch_correlation"), 2),
    Measure("energy", "energy follows", Better.HIGHER, lambda r: prosody_numbers(r, "energy_correlation"), 2),
    Measure(
        "real_time_factor",
        "RTF",
        Better.LOWER,
        lambda r: NOTHING if r.compute_seconds is None else (r.compute_seconds, r.seconds),
    ),
)


def prosody_numbers(row: TakeScore, name: str) -> Numbers | None:
    if row.prosody is None:
        return None
    value = getattr(row.prosody, name)
    return NOTHING if value is None else (value, 1.0)


def voice_measures(name: str) -> list[Measure]:
    """The columns of one speaker encoder."""

    def similarities(row: TakeScore) -> Numbers | None:
        voice = row.voices.get(name)
        return None if voice is None or voice.source_similarity is None else (voice.source_similarity, voice.similarity)

    def similarity(row: TakeScore) -> Numbers | None:
        return (row.voices[name].similarity, 1.0) if name in row.voices else None

    def nearer(row: TakeScore) -> Numbers | None:
        return (row.voices[name].nearer, row.voices[name].pairs) if name in row.voices else None

    def first_of_ten(row: TakeScore) -> Numbers | None:
        """The chance that the own reference is the nearest in a line with nine others, over all lines there are."""
        voice = row.voices.get(name)
        if voice is None or voice.pairs < OTHERS_IN_LINE:
            return None
        return comb(voice.nearer, OTHERS_IN_LINE) / comb(voice.pairs, OTHERS_IN_LINE), 1.0

    return [
        Measure(f"eer_{name}", f"EER %, {name}", Better.HIGHER, similarities, 1, equal_error_rate_of, True),
        Measure(f"similarity_{name}", f"SIM, {name}", Better.HIGHER, similarity, in_table_one=True),
        Measure(f"nearer_{name}", f"own speaker, {name}", Better.HIGHER, nearer),
        Measure(f"first_{name}", f"first of ten, {name}", Better.HIGHER, first_of_ten, 2),
    ]


MAIN_SCALES = ("utmos", "dnsmos_ovrl", "plcmos")
"""Quality scales that stand in the first table."""


def quality_measure(scale: str) -> Measure:
    """The column of one scale of quality."""
    title = scale.replace("_", " ").upper()

    def score(row: TakeScore) -> Numbers | None:
        return (row.quality[scale], 1.0) if scale in row.quality else None

    return Measure(scale, title, Better.HIGHER, score, 2, in_table_one=scale in MAIN_SCALES)


def measures_of(scores: Sequence[TakeScore]) -> list[Measure]:
    """Every column some take was judged by, in the order of tables."""
    voices = dict.fromkeys(name for score in scores for name in score.voices)
    scales = dict.fromkeys(scale for score in scores for scale in score.quality)
    candidates = [
        *WORD_MEASURES,
        *(measure for name in voices for measure in voice_measures(name)),
        *(quality_measure(scale) for scale in scales),
        *READING_MEASURES,
    ]
    return [m for m in candidates if any((n := m.numbers(score)) is not None and n != NOTHING for score in scores)]
