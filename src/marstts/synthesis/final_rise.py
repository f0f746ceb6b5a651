"""The course of the pitch at the end of a take: whether a question rises.

Upstream: F0 of the take's codec.  Downstream: `model_session`, whose questions are asked again where they stay level.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MIN_RISE = 1.0
"""Semitones; an end that rises by less is level."""

LAST_SECONDS, BEFORE_SECONDS = 0.12, (0.45, 0.2)
"""The spans that are compared, in seconds before the end."""


def final_rise(hertz: NDArray[np.float32], rate: float, end: float) -> float:
    """Semitones by which the last 0.12 s before `end` lie above 0.45 to 0.2 s before it.

    hertz (F,): F0 of frames, `rate` of them in a second; `end` in seconds. 0 where there is too little before the end.
    """

    def median_of(begin: float, until: float) -> float:
        span = hertz[max(round((end - begin) * rate), 0) : max(round((end - until) * rate), 0)]
        return float(np.median(span)) if len(span) else 0.0

    last, before = median_of(LAST_SECONDS, 0.0), median_of(*BEFORE_SECONDS)
    return 12.0 * float(np.log2(last / before)) if min(last, before) > 0 else 0.0
