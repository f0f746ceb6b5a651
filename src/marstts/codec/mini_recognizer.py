"""Features of a frozen speech recognizer, which the mini codec's encoder reads in addition to spectra, in NumPy.

Upstream: samples, and the graph of Whisper's encoder (arXiv:2212.04356).  Downstream: `codec.mini`.
A recognizer knows which words were spoken; with its features the codes keep them. Only encoding runs it: codes are
decoded without. The features are the outputs of the encoder's second layer and of its last normalization, side by side.
`codec.mini_whisper` is the encoder in PyTorch.
Shapes: N samples at 16 kHz · F spectral frames (100 Hz) · T positions (50 Hz) · C features (twice Whisper's width).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from marstts.audio import spectral

RATE, FFT_SIZE, HOP, NUM_MELS = 16000, 400, 160, 80
"""Of Whisper's spectra."""

POSITION_SAMPLES = 2 * HOP
POSITION_RATE = RATE / POSITION_SAMPLES
"""Positions of a second."""

LAYER = 2
"""The layer whose output is read in addition to the last normalization's."""

POWER_FLOOR, LOG_RANGE = 1e-10, 8.0
"""Smallest power, and the largest distance of a window's log-mels (powers of ten) from their maximum."""

WINDOW_SECONDS, MARGIN_SECONDS = 25, 1
"""Longest window, and what is read on either side of it; Whisper reads at most 30 s."""


def lowpass_taps(ratio: float, half: int = 12) -> NDArray[np.float32]:
    """(2 half + 1,) a windowed sinc that passes `ratio` of the spectrum, less a margin for its slope."""
    positions = np.arange(-half, half + 1)
    taps = np.sinc(positions * min(1.0, 0.93 * ratio)) * np.hanning(2 * half + 3)[1:-1]
    return (taps / taps.sum()).astype(np.float32)


def resample(samples: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """(N,) -> (N 16000 / sample_rate,): a low pass and linear interpolation, with which codecs are trained."""
    if sample_rate == RATE:
        return samples
    size = round(len(samples) * RATE / sample_rate)
    times = (np.arange(size) + 0.5) * (len(samples) / size) - 0.5
    taps = lowpass_taps(RATE / sample_rate)
    filtered = np.convolve(samples, taps)[len(taps) // 2 :][: len(samples)]
    return np.interp(times, np.arange(len(samples)), filtered).astype(np.float32)


@lru_cache(maxsize=1)
def mel_filters() -> NDArray[np.float32]:
    """(80, 201) Whisper's filters: Slaney's mel scale, linear below 1 kHz, and triangles of equal area."""
    mels = np.linspace(0.0, 15 + np.log(RATE / 2 / 1000) * 27 / np.log(6.4), NUM_MELS + 2)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (mels - 15)))
    areas = spectral.triangles(edges, RATE, FFT_SIZE) * (2 / (edges[2:] - edges[:-2]))[:, None]
    return np.asarray(areas, dtype=np.float32)


def log_mel(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """(N,), N at least one frame -> (80, N // 160), scaled as Whisper scales it."""
    powers = spectral.magnitude_spectrogram(samples, FFT_SIZE, HOP)[:, :-1] ** 2
    mels = np.log10(np.maximum(spectral.bands(mel_filters(), powers), POWER_FLOOR))
    return np.asarray((np.maximum(mels, mels.max() - LOG_RANGE) + 4) / 4, dtype=np.float32)


def read_features(
    samples: NDArray[np.float32], run: Callable[[NDArray[np.float32]], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """samples (N,) -> (T, C), in windows of equal length; `run` maps log-mels (80, F) to features (F / 2, C)."""
    samples = np.pad(samples, (0, max(0, FFT_SIZE - len(samples))))
    positions = -(-(len(samples) // HOP) // 2)
    windows = -(-positions // round(WINDOW_SECONDS * POSITION_RATE))
    edges = np.linspace(0, positions, windows + 1).astype(int)
    margin, parts = round(MARGIN_SECONDS * POSITION_RATE), []
    for first, last in pairwise(edges):
        begin, end = max(0, first - margin), min(positions, last + margin)
        stop = end * POSITION_SAMPLES if end < positions else len(samples)
        features = run(log_mel(samples[begin * POSITION_SAMPLES : stop]))
        parts.append(features[first - begin : last - begin])
    return np.concatenate(parts)


def at_latents(features: NDArray[np.float32], latents: int, latent_seconds: float) -> NDArray[np.float32]:
    """(T, C) -> (latents, C), interpolated linearly to the middle of every latent."""
    times = (np.arange(latents) + 0.5) * latent_seconds * POSITION_RATE - 0.5
    times = np.clip(times, 0, len(features) - 1)
    below = np.minimum(times.astype(int), max(0, len(features) - 2))
    share = (times - below).astype(np.float32)[:, None]
    return features[below] * (1 - share) + features[np.minimum(below + 1, len(features) - 1)] * share
