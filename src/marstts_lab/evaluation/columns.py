"""Columns of the reports: each score as a statistic over sentences, so that one bootstrap serves all.

Upstream: `metrics.scores.TakeScore`.  Downstream: `report`, `summary`.

A column takes a few numbers from each take and computes one score of the numbers of all takes: a ratio of sums (errors
over words, a mean over a count) or the spoof EER. A column that some take of a system lacks is not averaged over the
others: the system has no such score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from marstts_lab.metrics.identity import spoof_eer
from marstts_lab.metrics.intervals import Interval, Statistic, bootstrap, ratio
from marstts_lab.metrics.length import LengthStatus
from marstts_lab.metrics.scores import TakeScore, WordScore

Values = tuple[float, ...]
NOT_APPLICABLE: Values = (0.0, 0.0)
"""Numbers of a take that a column rightly leaves out: nothing to compare with, nothing to time."""


GROUPS = ("words", "speaker", "quality", "reading")


class Better(str, Enum):
    """Direction in which a score improves."""

    LOWER = "↓"
    HIGHER = "↑"
    NEITHER = ""


@dataclass(frozen=True)
class Metric:
    """One column."""

    key: str
    title: str
    better: Better
    values: Callable[[TakeScore], Values | None]
    """Numbers of one take; None where it was not scored by this metric."""

    digits: int = 3
    statistic: Statistic = field(default=ratio)
    in_main_table: bool = False
    group: str = "reading"
    """One of GROUPS: columns of a group stand in one table."""

    per_style: bool = False
    """Whether the column has a table by style, as all columns of the main table have."""

    @property
    def heading(self) -> str:
        """Title with the direction."""
        return f"{self.title} {self.better.value}".strip()

    def matrix(self, rows: Sequence[TakeScore]) -> NDArray[np.float64] | None:
        """(N, K) numbers of all rows; None where some row was not scored by this metric."""
        found = [self.values(row) for row in rows]
        known = [values for values in found if values is not None]
        return np.array(known, dtype=np.float64) if known and len(known) == len(rows) else None

    def evaluate(self, rows: Sequence[TakeScore]) -> Interval | None:
        """The score of all rows and its interval; None where it is undefined."""
        matrix = self.matrix(rows)
        return None if matrix is None else bootstrap(matrix, self.statistic)


def spoof_eer_of(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """(..., N, 2) similarities of the ground truth, and of the take, to the reference -> (...) percent."""
    return spoof_eer(matrix[..., 0], matrix[..., 1])


def words(of: Callable[[WordScore], Values]) -> Callable[[TakeScore], Values | None]:
    """Numbers of a take's word score."""
    return lambda row: None if row.words is None else of(row.words)


def mean(value: Callable[[TakeScore], float | None]) -> Callable[[TakeScore], Values | None]:
    """Numbers of a plain mean over takes; a take whose value is None is left out."""

    def of(row: TakeScore) -> Values:
        found = value(row)
        return NOT_APPLICABLE if found is None else (found, 1.0)

    return of


WORD_COLUMNS = (
    Metric("wer", "WER", Better.LOWER, words(lambda w: (w.word_errors, w.words)), in_main_table=True),
    Metric("cer", "CER", Better.LOWER, words(lambda w: (w.character_errors, w.characters)), in_main_table=True),
    Metric(
        "repetition_rate",
        "repetition rate",
        Better.LOWER,
        words(lambda w: (w.has_repetition, 1.0)),
        2,
        group="words",
    ),
    Metric("truncation_rate", "truncation rate", Better.LOWER, words(lambda w: (w.truncated, 1.0)), 2, group="words"),
)

PLAUSIBLE_LENGTH = (LengthStatus.PLAUSIBLE, LengthStatus.TOO_SHORT)


def is_failure(row: TakeScore) -> bool:
    """Whether there is no speech, more than twice the expected length, a repetition or a truncation."""
    misread = row.words is not None and (row.words.has_repetition or row.words.truncated)
    return row.length_status not in PLAUSIBLE_LENGTH or misread


def duration_ratio(row: TakeScore) -> float | None:
    """Length over the ground truth's; None where one of the two is missing."""
    known = row.ground_truth_seconds and row.length_status.has_speech
    return row.seconds / row.ground_truth_seconds if known and row.ground_truth_seconds else None


OTHER_COLUMNS = (
    Metric("failure_rate", "failure rate", Better.LOWER, lambda r: (is_failure(r), 1.0), 2, per_style=True),
    Metric("duration_ratio", "duration ratio", Better.NEITHER, mean(duration_ratio), 2),
    Metric(
        "real_time_factor",
        "RTF",
        Better.LOWER,
        lambda r: NOT_APPLICABLE if r.compute_seconds is None else (r.compute_seconds, r.seconds),
    ),
)


def voice_columns(name: str) -> list[Metric]:
    """The columns of one speaker encoder."""

    def similarities(row: TakeScore) -> Values | None:
        voice = row.voices.get(name)
        if voice is None or voice.ground_truth_similarity is None:
            return None
        return voice.ground_truth_similarity, voice.similarity

    def similarity(row: TakeScore) -> Values | None:
        return (row.voices[name].similarity, 1.0) if name in row.voices else None

    def is_nearest(row: TakeScore) -> Values | None:
        voice = row.voices.get(name)
        return None if voice is None or voice.is_nearest is None else (float(voice.is_nearest), 1.0)

    spoof, accuracy = f"spoof EER %, {name}", f"speaker ID accuracy, {name}"
    return [
        Metric(f"spoof_eer_{name}", spoof, Better.HIGHER, similarities, 1, spoof_eer_of, in_main_table=True),
        Metric(f"similarity_{name}", f"SIM, {name}", Better.HIGHER, similarity, in_main_table=True),
        Metric(f"speaker_id_accuracy_{name}", accuracy, Better.HIGHER, is_nearest, 2, group="speaker"),
    ]


MAIN_SCALES = ("distillmos", "utmos", "dnsmos_ovrl")
"""Quality scales of the main table."""


def quality_column(scale: str) -> Metric:
    """The column of one quality scale."""
    title = scale.replace("_", " ").upper()

    def score(row: TakeScore) -> Values | None:
        return (row.quality[scale], 1.0) if scale in row.quality else None

    return Metric(scale, title, Better.HIGHER, score, 2, in_main_table=scale in MAIN_SCALES, group="quality")


def columns_of(scores: Sequence[TakeScore]) -> list[Metric]:
    """All columns that some take has numbers for, in the order of the tables."""
    voices = dict.fromkeys(name for score in scores for name in score.voices)
    scales = dict.fromkeys(scale for score in scores for scale in score.quality)
    candidates = [
        *WORD_COLUMNS,
        *(column for name in voices for column in voice_columns(name)),
        *(quality_column(scale) for scale in scales),
        *OTHER_COLUMNS,
    ]
    return [
        c for c in candidates if any((v := c.values(score)) is not None and v != NOT_APPLICABLE for score in scores)
    ]
