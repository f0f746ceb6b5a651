"""Length check: is there speech in a take, and is it about as long as the ground truth or as reading the text takes?

Upstream: takes and ground-truth recordings.  Downstream: `panel`. Finds what word scores miss: babble after the
sentence, endless repetition, takes that stop early.
"""

from __future__ import annotations

import re
import string
from enum import Enum

import numpy as np

from marstts.audio import Waveform
from marstts_lab.metrics.words import plain_words

TOO_LONG, TOO_SHORT = 2.0, 0.5
"""Bounds of the length of a take, as multiples of the expected length."""

EMPTY_SECONDS = 0.1
SILENT_RMS = 1e-3
"""-60 dBFS over the whole take."""


class LengthStatus(str, Enum):
    """Outcome of the length check."""

    PLAUSIBLE = "plausible"
    TOO_LONG = "too long"
    TOO_SHORT = "too short"
    EMPTY = "empty"
    SILENT = "silent"
    MISSING = "missing"

    @property
    def has_speech(self) -> bool:
        """Whether the other metrics have anything to process."""
        return self not in (LengthStatus.EMPTY, LengthStatus.SILENT, LengthStatus.MISSING)


CHARACTERS_PER_SECOND = 17.0
EDGE_SECONDS = 0.4
COMMA_SECONDS = 0.2
SENTENCE_SECONDS = 0.4
"""Reading speed and pauses where there is no ground truth: fitted to the voices of the synthetic corpus."""

COMMAS = re.compile(r"[,;:](?!\d)")
SENTENCE_ENDS = re.compile(r"[.!?]+(?!\d)")
"""Punctuation where readers pause; not the marks of numbers, as in `1,000` and `3.5`."""


def expected_seconds(text: str) -> float:
    """Approximate seconds that reading `text` takes; numbers and signs count as the words they are read as."""
    between_words = text.strip(string.punctuation + string.whitespace)
    pauses = COMMA_SECONDS * len(COMMAS.findall(between_words)) + SENTENCE_SECONDS * len(
        SENTENCE_ENDS.findall(between_words)
    )
    return EDGE_SECONDS + len(" ".join(plain_words(text))) / CHARACTERS_PER_SECOND + pauses


def check_length(take: Waveform | None, expected_seconds: float) -> LengthStatus:
    """Status of a take (None: there is none) whose expected length is `expected_seconds`."""
    if take is None:
        return LengthStatus.MISSING
    if take.seconds < EMPTY_SECONDS:
        return LengthStatus.EMPTY
    if not np.sqrt(np.mean(np.square(take.samples, dtype=np.float64))) > SILENT_RMS:  # also where samples are NaN
        return LengthStatus.SILENT
    if take.seconds > TOO_LONG * expected_seconds:
        return LengthStatus.TOO_LONG
    if take.seconds < TOO_SHORT * expected_seconds:
        return LengthStatus.TOO_SHORT
    return LengthStatus.PLAUSIBLE
