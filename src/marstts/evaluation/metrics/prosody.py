"""Is it read as the speaker read it? Pitch and energy of a take beside those of the real recording of its text.

Upstream: takes and source recordings.  Downstream: `judges`.

Both are cut into frames of 10 ms and laid along each other by dynamic time warping of their mel spectra (librosa), so
that neither tempo nor pauses count. The correlation of log pitch (WORLD's DIO and StoneMask) is over frames voiced in
both, that of log energy over all. 1 is the same melody, 0 is none; another reading by the same person is in between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform, resample, trim_silence
from marstts.errors import require
from marstts.spectral import log_mel

SAMPLE_RATE = 16000
HOP_SECONDS = 0.01
HOP = round(SAMPLE_RATE * HOP_SECONDS)
PITCH_FLOOR, PITCH_CEILING = 55.0, 600.0
MIN_VOICED = 10
"""Frames voiced in the source below which there is no melody to follow: a whisper, or a word."""

MEL_FLOOR = 1e-3


@dataclass(frozen=True, eq=False)
class Contours:
    """What a recording does every 10 ms, T frames, its silent edges trimmed."""

    mels: NDArray[np.float32]
    """(40, T) log magnitudes."""

    log_pitch: NDArray[np.float64]
    """(T,), NaN where unvoiced."""

    log_energy: NDArray[np.float64]
    """(T,)"""


@dataclass(frozen=True)
class Correlations:
    """Of a take with its source; None where the source has no melody (or no dynamics) to compare with."""

    pitch: float | None
    energy: float | None


def contours(waveform: Waveform) -> Contours:
    """Mels, pitch and energy of a recording that is neither empty nor silent."""
    samples = trim_silence(resample(waveform, SAMPLE_RATE), below_peak_db=40.0).samples
    samples = samples / max(float(np.abs(samples).max()), 1e-9)
    pitch = track_pitch(samples, SAMPLE_RATE)
    mels = np.maximum(
        log_mel(samples.astype(np.float32), SAMPLE_RATE, fft_size=512, hop=HOP, num_mels=40), np.log(MEL_FLOOR)
    )
    frames = min(mels.shape[1], len(pitch))
    with np.errstate(divide="ignore", invalid="ignore"):
        log_pitch = np.where(pitch > 0, np.log(pitch), np.nan)
    energy = np.log(np.exp(2 * mels.astype(np.float64)).mean(axis=0))
    return Contours(mels[:, :frames], log_pitch[:frames], energy[:frames])


def track_pitch(samples: NDArray[np.floating], sample_rate: int) -> NDArray[np.float64]:
    """samples (N,) -> Hertz every 10 ms, the first of them at the first sample; 0 where unvoiced."""
    pyworld = require("pyworld", "eval")
    signal = np.ascontiguousarray(samples, dtype=np.float64)
    rough, times = pyworld.dio(
        signal, sample_rate, f0_floor=PITCH_FLOOR, f0_ceil=PITCH_CEILING, frame_period=1000 * HOP_SECONDS
    )
    return np.asarray(pyworld.stonemask(signal, rough, times, sample_rate))


def correlate(take: Contours, source: Contours) -> Correlations:
    """The take's contours with the source's; a take without pitch where the source has some follows it not at all."""
    path = require("librosa", "eval").sequence.dtw(take.mels, source.mels, metric="euclidean")[1]
    of_take, of_source = path[:, 0], path[:, 1]
    energy = correlation(take.log_energy[of_take], source.log_energy[of_source])
    if np.isfinite(source.log_pitch).sum() < MIN_VOICED:
        return Correlations(None, energy)
    both = np.isfinite(take.log_pitch[of_take]) & np.isfinite(source.log_pitch[of_source])
    pitch = correlation(take.log_pitch[of_take][both], source.log_pitch[of_source][both])
    return Correlations(0.0 if pitch is None else pitch, energy)


def correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float | None:
    """Pearson's; None where fewer than MIN_VOICED frames, or no movement, leave nothing to correlate."""
    if len(first) < MIN_VOICED or first.std() < 1e-9 or second.std() < 1e-9:
        return None
    return float(np.corrcoef(first, second)[0, 1])
