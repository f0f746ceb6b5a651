"""Degrees of style: how high, lively, voiced, bright and fast a recording is, beside its speaker's ordinary manner.

Upstream: recordings and their texts.  Downstream: `training.speaker`, whose style encoder learns to tell them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from marstts.spectral import hann

DEGREES = ("pitch", "melody", "voicing", "brightness", "rate")
"""Median pitch (octaves), its spread, share of voiced frames, level above 1.5 kHz (dB), characters per second (log)."""

TOLD = (*DEGREES, "height")
"""What a style encoder learns to tell: DEGREES beside the speaker's ordinary manner, and the pitch as it is. Nobody can
hear in one recording how high that is for its speaker; how high it is can be heard, and a clone should be as high."""

PITCH_HZ = (60.0, 450.0)
PITCH_WINDOW, PITCH_FRAMES = 2048, 40
"""Samples per frame, and about how many frames of a recording are enough to measure."""
VOICED = 0.55
"""Height of the autocorrelation's peak from which a frame counts as voiced."""


def relative(
    measured: NDArray[np.float64], speakers: NDArray[np.str_], ordinary: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """measured (n, 5) of n recordings minus their speaker's in ordinary style, at unit deviation; nan = unknown."""
    differences = np.empty_like(measured)
    for speaker in np.unique(speakers):
        own = speakers == speaker
        base = own & ordinary if (own & ordinary).any() else own
        differences[own] = measured[own] - nan_mean(measured[base])
    deviation = np.sqrt(nan_mean(differences**2))
    return (differences / np.where(deviation > 0, deviation, 1.0)).astype(np.float32).clip(-4, 4)


def height(measured: NDArray[np.float64]) -> NDArray[np.float32]:
    """measured (n, 5) -> (n, 1) the pitch beside everyone's, at unit deviation; nan = unknown."""
    octaves = measured[:, :1] - nan_mean(measured[:, :1])
    deviation = math.sqrt(nan_mean(octaves**2)[0])
    return (octaves / (deviation or 1.0)).astype(np.float32).clip(-4, 4)


def nan_mean(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, k) -> (k,) means of what is not nan; 0 where everything is."""
    there = ~np.isnan(rows)
    return np.where(there, rows, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)


def measure(samples: NDArray[np.float32], text: str, sample_rate: int) -> tuple[float, ...]:
    """The five DEGREES of one recording (N,); pitch and melody are nan where hardly anything is voiced."""
    size, hop = PITCH_WINDOW, PITCH_WINDOW // 2
    padded = np.pad(samples, (0, max(0, size - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop]
    energy = (frames**2).sum(axis=1)
    loud = energy > 1e-3 * energy.max()
    seconds = max(1, int(loud.sum())) * hop / sample_rate
    chosen = np.flatnonzero(loud)
    chosen = chosen[:: max(1, len(chosen) // PITCH_FRAMES)]
    power = np.abs(np.fft.rfft(frames[chosen] * hann(size), axis=1)) ** 2
    pitches, voiced = pitch(power, sample_rate)
    share = float(voiced.mean()) if len(voiced) else 0.0
    octaves = np.log2(pitches[voiced]) if share > 0.15 else np.array([np.nan])
    low, middle, high = np.quantile(octaves, (0.15, 0.5, 0.85))
    edge = int(1500 / sample_rate * size)
    total = power.sum(axis=0) + 1e-9
    brightness = 10 * math.log10(total[edge:].sum() / total[:edge].sum())
    return float(middle), float(high - low), share, brightness, math.log(max(1, len(text)) / seconds)


def pitch(power: NDArray[np.float32], sample_rate: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """power spectra (T, F) -> fundamental frequency (T,) by autocorrelation below 2 kHz, and whether it is voiced."""
    top = int(2000 / sample_rate * PITCH_WINDOW)
    lowpassed = np.where(np.arange(power.shape[1]) < top, power, np.float32(0.0))
    autocorrelation = np.fft.irfft(lowpassed, n=PITCH_WINDOW, axis=1)
    shortest, longest = (int(sample_rate / hertz) for hertz in PITCH_HZ[::-1])
    fading = np.fft.irfft(np.abs(np.fft.rfft(hann(PITCH_WINDOW), n=2 * PITCH_WINDOW)) ** 2)  # of the window itself
    lags = autocorrelation[:, shortest:longest] / (fading[shortest:longest] / fading[0])
    lags = lags * np.linspace(1.0, 0.8, longest - shortest)  # two periods repeat as well as one does; prefer one
    best = lags.argmax(axis=1)
    strength = lags[np.arange(len(lags)), best] / np.maximum(autocorrelation[:, 0], 1e-9)
    return sample_rate / (shortest + best), strength > VOICED
