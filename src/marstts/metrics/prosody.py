"""Prosody: correlation of a take's F0 contour with that of the ground-truth recording of its text.

Upstream: takes and ground-truth recordings.  Downstream: `panel`, `annotations`.

Both are cut into frames of 10 ms and aligned by dynamic time warping of their mel spectra (librosa), so that tempo and
pauses do not count. The correlation of log F0 (WORLD's DIO and StoneMask) is over frames voiced in both. 1 is the same
contour, 0 an unrelated one; another reading by the same speaker is in between.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform, resample, trim_silence
from marstts.audio.spectral import log_mel
from marstts.errors import require

SAMPLE_RATE = 16000
HOP_SECONDS = 0.01
HOP = round(SAMPLE_RATE * HOP_SECONDS)
F0_FLOOR, F0_CEILING = 55.0, 600.0
"""Search range in Hz."""

MIN_VOICED = 10
"""Voiced frames below which the ground truth has no F0 contour to compare with: a whisper, or a word."""

MEL_FLOOR = 1e-3


@dataclass(frozen=True, eq=False)
class Contours:
    """Mels and F0 of a recording every 10 ms, T frames, silent edges trimmed."""

    mels: NDArray[np.float32]
    """(40, T) log magnitudes."""

    log_f0: NDArray[np.float64]
    """(T,), NaN where unvoiced."""


def contours(waveform: Waveform) -> Contours:
    """Contours of a recording that is neither empty nor silent."""
    samples = trim_silence(resample(waveform, SAMPLE_RATE), below_peak_db=40.0).samples
    samples = samples / max(float(np.abs(samples).max()), 1e-9)
    f0 = track_f0(samples, SAMPLE_RATE)
    mels = np.maximum(
        log_mel(samples.astype(np.float32), SAMPLE_RATE, fft_size=512, hop=HOP, num_mels=40), np.log(MEL_FLOOR)
    )
    frames = min(mels.shape[1], len(f0))
    with np.errstate(divide="ignore", invalid="ignore"):
        log_f0 = np.where(f0 > 0, np.log(f0), np.nan)
    return Contours(mels[:, :frames], log_f0[:frames])


def track_f0(samples: NDArray[np.floating], sample_rate: int) -> NDArray[np.float64]:
    """F0 of samples (N,) in Hz every 10 ms, the first value at the first sample; 0 where unvoiced."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports pkg_resources, which warns
        pyworld = require("pyworld", "eval")
    signal = np.ascontiguousarray(samples, dtype=np.float64)
    rough, times = pyworld.dio(
        signal, sample_rate, f0_floor=F0_FLOOR, f0_ceil=F0_CEILING, frame_period=1000 * HOP_SECONDS
    )
    return np.asarray(pyworld.stonemask(signal, rough, times, sample_rate))


def correlate(take: Contours, ground_truth: Contours) -> float | None:
    """Pearson's correlation of both F0 contours; None where the ground truth has none to compare with.

    0 where the take is unvoiced there, or one of the two is constant.
    """
    if np.isfinite(ground_truth.log_f0).sum() < MIN_VOICED:
        return None
    path = require("librosa", "eval").sequence.dtw(take.mels, ground_truth.mels, metric="euclidean")[1]
    of_take, of_truth = take.log_f0[path[:, 0]], ground_truth.log_f0[path[:, 1]]
    both = np.isfinite(of_take) & np.isfinite(of_truth)
    first, second = of_take[both], of_truth[both]
    if len(first) < MIN_VOICED or first.std() < 1e-9 or second.std() < 1e-9:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])
