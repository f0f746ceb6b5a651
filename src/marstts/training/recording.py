"""Waveforms as bad recordings of themselves: microphones, narrow lines, rooms and noise, for training the codec.

Upstream: segments of clean recordings and a generator.  Downstream: `training.codec`, which keeps what it hears.
`training.distortion` does the same to mel magnitudes, for encoders that need no waveform.
Shapes: N samples of one segment.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts.config import Config


class RecordingConfig(Config):
    """How training segments are recorded; shares are drawn independently of each other."""

    equaliser_db: float = Field(3.0, ge=0)
    """Standard deviation of each of four smooth equaliser terms."""

    noise_share: float = Field(0.2, ge=0, le=1)
    noise_db: tuple[float, float] = (15.0, 40.0)
    """Signal-to-noise ratios, drawn uniformly; the noise has a random tilt."""

    narrow_share: float = Field(0.25, ge=0, le=1)
    narrow_hz: tuple[float, float] = (3400.0, 9000.0)
    """Upper band limits, drawn uniformly in their logarithm."""

    room_share: float = Field(0.2, ge=0, le=1)
    room_seconds: tuple[float, float] = (0.15, 0.6)
    """Reverberation times (60 dB)."""


def record(
    samples: NDArray[np.float32], sample_rate: int, config: RecordingConfig, rng: np.random.Generator
) -> NDArray[np.float32]:
    """(N,) -> (N,): the same speech through another microphone, room and line."""
    size = len(samples)
    spectrum = np.fft.rfft(samples, 2 * size)  # twice as long, so that a room does not echo into the beginning
    frequencies = np.fft.rfftfreq(2 * size, 1 / sample_rate)
    mel = np.log1p(frequencies / 700) / np.log1p(sample_rate / 2 / 700)
    terms = rng.normal(0.0, config.equaliser_db, 4)
    gain_db = sum(term * np.cos(np.pi * number * mel) for number, term in enumerate(terms, start=1))
    spectrum = spectrum * 10 ** (gain_db / 20)
    if rng.uniform() < config.room_share:
        spectrum = spectrum * np.fft.rfft(impulse_response(size, sample_rate, config, rng), 2 * size)
    recorded = np.fft.irfft(spectrum, 2 * size)[:size]
    if rng.uniform() < config.noise_share:
        recorded = recorded + noise(recorded, mel[::2], config, rng)
    if rng.uniform() < config.narrow_share:
        limit = np.exp(rng.uniform(*np.log(config.narrow_hz)))
        slope = np.clip((limit * 1.05 - frequencies[::2]) / (limit * 0.1), 0.0, 1.0)
        recorded = np.fft.irfft(np.fft.rfft(recorded) * slope[: size // 2 + 1], size)
    return recorded.astype(np.float32)


def impulse_response(
    size: int, sample_rate: int, config: RecordingConfig, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(N,): the direct sound, and a diffuse tail of 6 to 20 dB less energy that falls by 60 dB in the drawn time."""
    times = np.arange(size) / sample_rate
    tail = rng.standard_normal(size) * 10 ** (-3 * times / rng.uniform(*config.room_seconds))
    tail *= 10 ** (-rng.uniform(6, 20) / 20) / np.sqrt((tail**2).sum())
    tail[0] = 1.0
    return np.asarray(tail)


def noise(
    samples: NDArray[np.floating], mel: NDArray[np.float64], config: RecordingConfig, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(N,) noise, of a level relative to the samples, whose spectrum tilts by -6 to 30 dB over the mel scale (F,)."""
    spectrum = np.fft.rfft(rng.standard_normal(len(samples)))
    tilted = np.fft.irfft(spectrum * 10 ** (-rng.uniform(-6, 30) * mel[: len(spectrum)] / 20), len(samples))
    level = np.sqrt((samples**2).mean()) * 10 ** (-rng.uniform(*config.noise_db) / 20)
    return np.asarray(tilted * level / np.sqrt((tilted**2).mean()))
