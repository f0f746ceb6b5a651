"""Augmentation of waveforms: microphones, band limits, reverberation and noise, for codec training.

Upstream: segments of clean recordings and a generator.  Downstream: `segments`; the codec is trained to reproduce the
augmented waveform. `training.speaker.augmentation` does the same to mel magnitudes, for encoders that need no waveform.
Shapes: N samples of one segment.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts.io.config import Config
from marstts_lab.training.bounds import PositiveRange, Probability, Range


class AugmentationConfig(Config):
    """Augmentation of training segments; its parts are drawn independently of each other."""

    eq_std_db: float = Field(3.0, ge=0, le=100)
    """Standard deviation of each of four smooth equalizer terms."""

    noise_probability: Probability = 0.2
    snr_db: Range = (15.0, 40.0)
    """Signal-to-noise ratios, drawn uniformly; the noise has a random tilt."""

    band_limit_probability: Probability = 0.25
    band_limit_hz: PositiveRange = (3400.0, 9000.0)
    """Upper band limits, drawn uniformly in their logarithm."""

    reverb_probability: Probability = 0.2
    rt60_seconds: PositiveRange = (0.15, 0.6)
    """Reverberation times (60 dB)."""


def augment_waveform(
    samples: NDArray[np.float32], sample_rate: int, config: AugmentationConfig, rng: np.random.Generator
) -> NDArray[np.float32]:
    """(N,) -> (N,): the same speech with another microphone, room, noise and bandwidth."""
    size = len(samples)
    spectrum = np.fft.rfft(samples, 2 * size)  # twice as long, so that reverberation does not wrap around
    frequencies = np.fft.rfftfreq(2 * size, 1 / sample_rate)
    mel = np.log1p(frequencies / 700) / np.log1p(sample_rate / 2 / 700)
    terms = rng.normal(0.0, config.eq_std_db, 4)
    spectrum = spectrum * 10 ** (terms @ eq_terms(2 * size, sample_rate) / 20)
    if rng.uniform() < config.reverb_probability:
        spectrum = spectrum * np.fft.rfft(impulse_response(size, sample_rate, config, rng), 2 * size)
    augmented = np.fft.irfft(spectrum, 2 * size)[:size]
    if rng.uniform() < config.noise_probability:
        augmented = augmented + noise(augmented, mel[::2], config, rng)
    if rng.uniform() < config.band_limit_probability:
        limit = np.exp(rng.uniform(*np.log(config.band_limit_hz)))
        slope = np.clip((limit * 1.05 - frequencies[::2]) / (limit * 0.1), 0.0, 1.0)
        augmented = np.fft.irfft(np.fft.rfft(augmented) * slope[: size // 2 + 1], size)
    return augmented.astype(np.float32)


@lru_cache(maxsize=2)
def eq_terms(size: int, sample_rate: int) -> NDArray[np.float64]:
    """(4, size / 2 + 1) cosines over the mel scale, of 1 to 4 half periods."""
    mel = np.log1p(np.fft.rfftfreq(size, 1 / sample_rate) / 700) / np.log1p(sample_rate / 2 / 700)
    return np.stack([np.cos(np.pi * number * mel) for number in range(1, 5)])


def impulse_response(
    size: int, sample_rate: int, config: AugmentationConfig, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(N,): the direct sound, and a diffuse tail of 6 to 20 dB less energy that falls by 60 dB in the drawn time."""
    times = np.arange(size) / sample_rate
    tail = rng.standard_normal(size) * 10 ** (-3 * times / rng.uniform(*config.rt60_seconds))
    tail *= 10 ** (-rng.uniform(6, 20) / 20) / np.sqrt((tail**2).sum())
    tail[0] = 1.0
    return np.asarray(tail)


def noise(
    samples: NDArray[np.floating], mel: NDArray[np.float64], config: AugmentationConfig, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(N,) noise, of a level relative to the samples, whose spectrum tilts by -6 to 30 dB over the mel scale (F,)."""
    spectrum = np.fft.rfft(rng.standard_normal(len(samples)))
    tilted = np.fft.irfft(spectrum * 10 ** (-rng.uniform(-6, 30) * mel[: len(spectrum)] / 20), len(samples))
    level = np.sqrt((samples**2).mean()) * 10 ** (-rng.uniform(*config.snr_db) / 20)
    return np.asarray(tilted * level / np.sqrt((tilted**2).mean()))
