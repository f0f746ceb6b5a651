"""Cutting silence off both ends of a waveform, as the release does.

Upstream: the vocoder.  Downstream: `tts`.  The corrected profile uses `audio.trim_silence`, which pads the edges
with silence; the release pads them with a reflection, as here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FRAME, HOP = 2048, 512
SMALLEST_RMS = 1e-5


def audible_span(samples: NDArray[np.float32], top_db: float) -> tuple[int, int]:
    """First and last sample (exclusive) of the frames that are at most `top_db` below the loudest; samples (N,).

    All of it where there are too few samples to reflect: the published code fails there.
    """
    if len(samples) <= FRAME // 2:
        return 0, len(samples)
    padded = np.pad(samples.astype(np.float64), FRAME // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP]
    loudness = 20 * np.log10(np.maximum(np.sqrt((frames**2).mean(axis=1)), SMALLEST_RMS))
    audible = np.flatnonzero(loudness > loudness.max() - top_db)
    return int(audible[0]) * HOP, min(len(samples), (int(audible[-1]) + 1) * HOP)
