"""Is a take there at all, and is it about as long as the real recording of the same text?

Upstream: takes and source recordings.  Downstream: `judges`. Catches what word scores miss: babble after the sentence,
repetitions, takes that break off.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from marstts.audio import Waveform
from marstts.evaluation.metrics.words import plain_words

TOO_LONG, TOO_SHORT = 2.0, 0.5
"""Bounds of the length of a take, in lengths of its source."""

EMPTY_SECONDS = 0.1
SILENT_RMS = 1e-3
"""-60 dBFS over the whole take."""


class Verdict(str, Enum):
    """What the length of a take says about it."""

    PLAUSIBLE = "plausible"
    TOO_LONG = "too long"
    TOO_SHORT = "too short"
    EMPTY = "empty"
    SILENT = "silent"
    MISSING = "missing"

    @property
    def has_speech(self) -> bool:
        """Whether there is anything for the other judges to listen to."""
        return self not in (Verdict.EMPTY, Verdict.SILENT, Verdict.MISSING)


CHARACTERS_PER_SECOND = 17.0
EDGE_SECONDS = 0.4
"""How long texts take where there is no recording of them: fitted to readers of the studio corpus."""


def usual_seconds(text: str) -> float:
    """How long reading `text` takes, roughly: numbers and signs as long as the words they are read as."""
    return EDGE_SECONDS + len(" ".join(plain_words(text))) / CHARACTERS_PER_SECOND


def judge_length(take: Waveform | None, expected_seconds: float) -> Verdict:
    """The verdict on a take (None where there is none) that should last `expected_seconds`, as its source does."""
    if take is None:
        return Verdict.MISSING
    if take.seconds < EMPTY_SECONDS:
        return Verdict.EMPTY
    if not np.sqrt(np.mean(np.square(take.samples, dtype=np.float64))) > SILENT_RMS:  # samples that are NaN, too
        return Verdict.SILENT
    if take.seconds > TOO_LONG * expected_seconds:
        return Verdict.TOO_LONG
    if take.seconds < TOO_SHORT * expected_seconds:
        return Verdict.TOO_SHORT
    return Verdict.PLAUSIBLE
