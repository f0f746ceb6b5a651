"""What happens to a spectrum between mouth and file: rooms, noises, microphones, narrow lines, other throats.

Upstream: log-mels of clean recordings, and a generator.  Downstream: `training.speaker`, whose encoders must not mind.
All of it happens to mel magnitudes, where it costs a fraction of what it would on samples.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marstts.config import Config
from marstts.speaker.mini import MiniEncoderConfig
from marstts.spectral import LOG_FLOOR, mel_filterbank

# B batch · M mel bands · F frequencies · T frames


class DistortionConfig(Config):
    """What happens to a spectrum between mouth and file; shares are of the training crops."""

    equaliser_db: float = 2.5
    """Standard deviation of each of four smooth equaliser terms."""

    noise_share: float = 0.6
    noise_db: tuple[float, float] = (15.0, 40.0)
    """Signal-to-noise ratios drawn uniformly."""

    room_share: float = 0.3
    room_seconds: tuple[float, float] = (0.15, 0.6)
    """Reverberation times (60 dB) drawn uniformly."""

    narrow_share: float = 0.35
    narrow_hz: tuple[float, float] = (3500.0, 8500.0)
    """Upper band limits, drawn uniformly on the mel scale."""


@lru_cache(maxsize=16)
def warped_filterbank(model: MiniEncoderConfig, warp: float) -> NDArray[np.float32]:
    """(M, F) filters that hear a voice as if all its frequencies, pitch and resonances, were `warp` times as high."""
    ordinary = mel_filterbank(model.sample_rate, model.fft_size, model.num_mels)
    top = ordinary.shape[1] - 1
    places = np.arange(top + 1) * warp  # what lies at bin k is heard at bin k * warp
    below = np.minimum(places.astype(int), top - 1)
    share = np.clip(places - below, 0.0, 1.0)
    heard = ordinary[:, below] * (1 - share) + ordinary[:, below + 1] * share
    return np.where(places <= top, heard, 0.0).astype(np.float32)


def distort(
    log_mel: Tensor, model: MiniEncoderConfig, distortion: DistortionConfig, generator: torch.Generator
) -> Tensor:
    """The same speech through another room, microphone and line; log-mels (B, M, T) -> (B, M, T)."""
    mels = torch.exp(log_mel) * equaliser(log_mel, distortion, generator)
    mels = add_room(mels, model.sample_rate / model.hop, distortion, generator)
    mels = add_noise(mels, distortion, generator)
    return torch.log((mels * band_limit(mels, model, distortion, generator)).clamp(min=LOG_FLOOR))


def uniform(batch: Tensor, low: float, high: float, generator: torch.Generator) -> Tensor:
    """(B, 1, 1) numbers, one for each row of the batch."""
    drawn = torch.rand(len(batch), 1, 1, generator=generator, device=batch.device)
    return low + (high - low) * drawn


def decibels(values: Tensor) -> Tensor:
    """Factor of magnitude of `values` dB."""
    return 10.0 ** (values / 20.0)


def bands(mels: Tensor) -> Tensor:
    """(1, M, 1) places of the bands on the mel scale, 0 to 1."""
    return torch.linspace(0.0, 1.0, mels.shape[1], device=mels.device)[None, :, None]


def equaliser(mels: Tensor, distortion: DistortionConfig, generator: torch.Generator) -> Tensor:
    """(B, M, 1) smooth gains: four cosine terms over the mel scale."""
    terms = torch.arange(1, 5, device=mels.device)
    drawn = torch.randn(len(mels), 1, 4, generator=generator, device=mels.device)
    curve = (drawn * torch.cos(math.pi * terms * bands(mels))).sum(dim=2, keepdim=True)
    return decibels(distortion.equaliser_db * curve)


def add_room(mels: Tensor, frame_rate: float, distortion: DistortionConfig, generator: torch.Generator) -> Tensor:
    """A diffuse tail behind every sound, in some rows: power decays by 60 dB in the reverberation time."""
    seconds = uniform(mels, *distortion.room_seconds, generator)
    loudness = uniform(mels, -20.0, -6.0, generator)  # of the tail's first frame, dB
    present = uniform(mels, 0.0, 1.0, generator) < distortion.room_share
    frames = mels.shape[2]
    times = torch.arange(frames, device=mels.device)[None, None, :] / frame_rate
    tail = present * decibels(loudness - 60.0 * times / seconds) ** 2  # power of the echo of one frame
    tail[:, :, 0] = 1.0
    size = 2 * frames  # so that the end does not echo into the beginning
    smeared = torch.fft.irfft(torch.fft.rfft(mels**2, size) * torch.fft.rfft(tail, size), size)[:, :, :frames]
    return smeared.clamp(min=0.0).sqrt()


def add_noise(mels: Tensor, distortion: DistortionConfig, generator: torch.Generator) -> Tensor:
    """Noise of a random tilt over the mel scale, in some rows."""
    level = (mels**2).mean(dim=(1, 2), keepdim=True).sqrt() * decibels(-uniform(mels, *distortion.noise_db, generator))
    shape = decibels(-uniform(mels, -6.0, 30.0, generator) * bands(mels))
    shape = shape / (shape**2).mean(dim=1, keepdim=True).sqrt()
    present = uniform(mels, 0.0, 1.0, generator) < distortion.noise_share
    drawn = 1.0 + 0.3 * torch.randn(mels.shape, generator=generator, device=mels.device)
    return torch.sqrt(mels**2 + present * (level * shape * drawn) ** 2)


def band_limit(
    mels: Tensor, model: MiniEncoderConfig, distortion: DistortionConfig, generator: torch.Generator
) -> Tensor:
    """(B, M, 1) gains that end at a random frequency, in some rows."""
    low, high = (mel_place(hertz, model.sample_rate) for hertz in distortion.narrow_hz)
    limit = uniform(mels, low, high, generator)
    present = uniform(mels, 0.0, 1.0, generator) < distortion.narrow_share
    beyond = torch.sigmoid((bands(mels) - limit) * 2 * mels.shape[1])
    return 1.0 - present * beyond * (1.0 - 1e-4)


def mel_place(hertz: float, sample_rate: int) -> float:
    """Where a frequency lies on the mel scale, 0 Hz at 0 and half the sample rate at 1."""
    return math.log1p(hertz / 700.0) / math.log1p(sample_rate / 2 / 700.0)
