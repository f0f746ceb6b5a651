"""Augmentation of spectra: reverberation, noise, microphones, band limits, and vocal-tract-length perturbation (VTLP).

Upstream: log-mels of clean recordings, and a generator.  Downstream: `task`; encoders become invariant to it.
Mel magnitudes are augmented, which costs a fraction of what samples would.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from marstts.audio.spectral import LOG_FLOOR, mel_filterbank
from marstts.io.config import Config
from marstts.speaker.mini import MiniEncoderConfig
from marstts_lab.training.bounds import PositiveRange, Probability, Range

# B batch · M mel bands · F frequencies · T frames


class AugmentationConfig(Config):
    """Augmentation of training crops; probabilities are per crop."""

    eq_std_db: float = Field(2.5, ge=0, le=100)
    """Standard deviation of each of four smooth equalizer terms."""

    noise_probability: Probability = 0.6
    snr_db: Range = (15.0, 40.0)
    """Signal-to-noise ratios drawn uniformly."""

    reverb_probability: Probability = 0.3
    rt60_seconds: PositiveRange = (0.15, 0.6)
    """Reverberation times (60 dB) drawn uniformly."""

    band_limit_probability: Probability = 0.35
    band_limit_hz: PositiveRange = (3500.0, 8500.0)
    """Upper band limits, drawn uniformly on the mel scale."""


@lru_cache(maxsize=16)
def vtlp_filterbank(model: MiniEncoderConfig, factor: float) -> NDArray[np.float32]:
    """(M, F) filters that raise all frequencies of a voice, F0 and formants, by a factor (VTLP)."""
    plain = mel_filterbank(model.sample_rate, model.fft_size, model.num_mels)
    top = plain.shape[1] - 1
    positions = np.arange(top + 1) * factor  # the energy of bin k moves to bin k * factor
    below = np.minimum(positions.astype(int), top - 1)
    fraction = np.clip(positions - below, 0.0, 1.0)
    moved = plain[:, below] * (1 - fraction) + plain[:, below + 1] * fraction
    return np.where(positions <= top, moved, 0.0).astype(np.float32)


def augment_mel(
    log_mel: Tensor, model: MiniEncoderConfig, config: AugmentationConfig, generator: torch.Generator
) -> Tensor:
    """The same speech with another microphone, room, noise and bandwidth; log-mels (B, M, T) -> (B, M, T)."""
    mels = torch.exp(log_mel) * equalizer(log_mel, config, generator)
    mels = add_reverb(mels, model.sample_rate / model.hop, config, generator)
    mels = add_noise(mels, config, generator)
    return torch.log((mels * band_limit(mels, model, config, generator)).clamp(min=LOG_FLOOR))


def uniform(batch: Tensor, low: float, high: float, generator: torch.Generator) -> Tensor:
    """(B, 1, 1) numbers, one for each row of the batch."""
    drawn = torch.rand(len(batch), 1, 1, generator=generator, device=batch.device)
    return low + (high - low) * drawn


def decibels(values: Tensor) -> Tensor:
    """Factors of magnitude of `values` in dB."""
    return 10.0 ** (values / 20.0)


def bands(mels: Tensor) -> Tensor:
    """(1, M, 1) positions of the bands on the mel scale, 0 to 1."""
    return torch.linspace(0.0, 1.0, mels.shape[1], device=mels.device)[None, :, None]


def equalizer(mels: Tensor, config: AugmentationConfig, generator: torch.Generator) -> Tensor:
    """(B, M, 1) smooth gains: four cosine terms over the mel scale."""
    terms = torch.arange(1, 5, device=mels.device)
    drawn = torch.randn(len(mels), 1, 4, generator=generator, device=mels.device)
    curve = (drawn * torch.cos(math.pi * terms * bands(mels))).sum(dim=2, keepdim=True)
    return decibels(config.eq_std_db * curve)


def add_reverb(mels: Tensor, frame_rate: float, config: AugmentationConfig, generator: torch.Generator) -> Tensor:
    """Add a diffuse tail to some rows: power decays by 60 dB in the reverberation time (RT60)."""
    seconds = uniform(mels, *config.rt60_seconds, generator)
    loudness = uniform(mels, -20.0, -6.0, generator)  # of the tail's first frame, dB
    present = uniform(mels, 0.0, 1.0, generator) < config.reverb_probability
    frames = mels.shape[2]
    times = torch.arange(frames, device=mels.device)[None, None, :] / frame_rate
    tail = present * decibels(loudness - 60.0 * times / seconds) ** 2  # power of the echo of one frame
    tail[:, :, 0] = 1.0
    size = 2 * frames  # so that reverberation does not wrap around
    smeared = torch.fft.irfft(torch.fft.rfft(mels**2, size) * torch.fft.rfft(tail, size), size)[:, :, :frames]
    return smeared.clamp(min=0.0).sqrt()


def add_noise(mels: Tensor, config: AugmentationConfig, generator: torch.Generator) -> Tensor:
    """Add noise of a random tilt over the mel scale to some rows."""
    level = (mels**2).mean(dim=(1, 2), keepdim=True).sqrt() * decibels(-uniform(mels, *config.snr_db, generator))
    shape = decibels(-uniform(mels, -6.0, 30.0, generator) * bands(mels))
    shape = shape / (shape**2).mean(dim=1, keepdim=True).sqrt()
    present = uniform(mels, 0.0, 1.0, generator) < config.noise_probability
    drawn = 1.0 + 0.3 * torch.randn(mels.shape, generator=generator, device=mels.device)
    return torch.sqrt(mels**2 + present * (level * shape * drawn) ** 2)


def band_limit(
    mels: Tensor, model: MiniEncoderConfig, config: AugmentationConfig, generator: torch.Generator
) -> Tensor:
    """(B, M, 1) gains that limit the band of some rows at a random frequency."""
    low, high = (mel_position(hertz, model.sample_rate) for hertz in config.band_limit_hz)
    limit = uniform(mels, low, high, generator)
    present = uniform(mels, 0.0, 1.0, generator) < config.band_limit_probability
    above = torch.sigmoid((bands(mels) - limit) * 2 * mels.shape[1])
    return 1.0 - present * above * (1.0 - 1e-4)


def mel_position(hertz: float, sample_rate: int) -> float:
    """The position of a frequency on the mel scale: 0 Hz is 0, half the sample rate is 1."""
    return math.log1p(hertz / 700.0) / math.log1p(sample_rate / 2 / 700.0)
