"""Toy speaker encoders in NumPy: statistics of the log-mel spectrogram, for fast tests of the whole pipeline.

Upstream: a reference `Waveform`.  Downstream: `voice.Voice`.  Not from the paper.

Identity is the mean spectrum, independent of loudness; style is loudness and its variation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform, resample
from marstts.audio.spectral import log_mel
from marstts.errors import AudioError

SAMPLE_RATE = 16_000
FFT_SIZE, HOP, NUM_MELS = 512, 160, 40
GROUPS = 5

AUDIBLE_BELOW_PEAK = 6.0
"""Threshold in nepers (52 dB); quieter frames are pauses, and are ignored."""


class ToySpeakerEncoder:
    """`kind` "identity" or "style"; `size` E is free, so that tests can make all sizes different."""

    def __init__(self, kind: str, size: int) -> None:
        self.kind = kind
        self.size = size
        self.name = f"toy-{kind}-{size}"

    def embed(self, waveform: Waveform) -> NDArray[np.float32]:
        """The embedding, (E,) float32 of unit length."""
        samples = resample(waveform, SAMPLE_RATE).samples
        if len(samples) == 0:
            raise AudioError("the toy speaker encoder was given no samples")
        mels = log_mel(samples, SAMPLE_RATE, fft_size=FFT_SIZE, hop=HOP, num_mels=NUM_MELS)
        energy = mels.mean(axis=0)
        audible = mels[:, energy >= energy.max() - AUDIBLE_BELOW_PEAK]  # (NUM_MELS, T), T >= 1
        statistics = _mean_spectrum(audible) if self.kind == "identity" else _loudness_statistics(audible)
        embedding = _project(statistics, self.size)
        return (embedding / max(float(np.linalg.norm(embedding)), 1e-8)).astype(np.float32)


def _mean_spectrum(mels: NDArray[np.float32]) -> NDArray[np.float32]:
    """(NUM_MELS, T) -> (NUM_MELS,) mean spectrum, minus its mean: the same at any gain."""
    spectrum = mels.mean(axis=1)
    return spectrum - spectrum.mean()


def _loudness_statistics(mels: NDArray[np.float32]) -> NDArray[np.float32]:
    """(NUM_MELS, T) -> (3 + GROUPS,): loudness, its deviation and rate of change, energy ratios of bands."""
    magnitudes = np.exp(mels)
    loudness = np.log(magnitudes.mean(axis=0))
    speed = np.abs(np.diff(loudness)).mean() if len(loudness) > 1 else 0.0
    groups = magnitudes.reshape(GROUPS, -1).mean(axis=1) / magnitudes.mean() / GROUPS
    return np.concatenate([[0.2 * loudness.mean(), loudness.std(), 5.0 * speed], groups]).astype(np.float32)


def _project(statistics: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """(N,) -> (size,): a cosine transform, so that any size keeps the broad shape."""
    positions = (np.arange(len(statistics)) + 0.5) / len(statistics)
    return (np.cos(np.pi * np.outer(np.arange(size), positions)) @ statistics).astype(np.float32)
