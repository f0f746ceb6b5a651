"""Losses and scores of the speaker encoders.

Upstream: embeddings.  Downstream: `task`.
Additive angular margin after arXiv:1801.07698; gradient reversal after arXiv:1505.07818.
Shapes: B batch · E embedding size · C classes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from marstts.audio.spectral import hann


class Prototypes(nn.Module):
    """One direction per class; embeddings (B, E) -> cosines (B, C)."""

    def __init__(self, size: int, classes: int) -> None:
        super().__init__()
        self.directions = nn.Parameter(torch.randn(classes, size) * 0.1)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Cosines of the embeddings with all directions."""
        return embeddings @ F.normalize(self.directions, dim=1).T


class StyleHead(nn.Module):
    """Outputs on top of style embeddings: style classes, style attributes, and the speaker (the adversary)."""

    def __init__(self, size: int, styles: int, speakers: int, attributes: int) -> None:
        super().__init__()
        self.styles = Prototypes(size, styles)
        self.attributes = nn.Linear(size, attributes)
        self.speakers = nn.Sequential(nn.Linear(size, 128), nn.ReLU(), nn.Linear(128, speakers))


class ReverseGradient(torch.autograd.Function):
    """The identity, whose gradient is negated and weighted."""

    @staticmethod
    def forward(context: Any, values: Tensor, weight: float) -> Tensor:
        context.weight = weight
        return values.view_as(values)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -context.weight * gradients[0], None


def angular_margin(cosines: Tensor, classes: Tensor, margin: float) -> Tensor:
    """cosines (B, C) with `margin` radians added to the angle of each row's true class (B,)."""
    is_true = F.one_hot(classes, cosines.shape[1]).bool()
    clamped = cosines.clamp(-1 + 1e-6, 1 - 1e-6)
    moved = torch.cos((torch.acos(clamped) + margin).clamp(max=math.pi))
    return torch.where(is_true, moved, cosines)


def masked_distance(predicted: Tensor, target: Tensor) -> Tensor:
    """Mean smooth L1 distance where `target` is a number."""
    known = ~torch.isnan(target)
    return F.smooth_l1_loss(predicted[known], target[known])


def accuracy(scores: Tensor, classes: Tensor) -> Tensor:
    """Ratio of rows (B, C) with the highest score at their class (B,)."""
    return (scores.argmax(dim=1) == classes).float().mean()


def correlation(predicted: NDArray[np.float32], target: NDArray[np.float32]) -> float:
    """Pearson correlation where `target` is a number; 0 where one of both is constant."""
    known = ~np.isnan(target)
    predicted, target = predicted[known], target[known]
    if len(predicted) < 2 or not predicted.std() or not target.std():
        return 0.0
    return float(np.corrcoef(predicted, target)[0, 1])


# Style attributes of a recording: F0 level and range, voicing, spectral tilt and speaking rate.

ATTRIBUTES = ("f0", "f0_range", "voicing", "spectral_tilt", "rate")
"""Median F0 (octaves), its range (octaves), ratio of voiced frames, level above 1.5 kHz relative to the rest (dB), and
characters per second (log)."""

TARGETS = (*ATTRIBUTES, "f0_level")
"""Regression targets of the style encoder: ATTRIBUTES relative to the speaker's neutral style, and the F0 level.
One recording does not reveal how high its F0 is for the speaker. It reveals the level, which a clone should have."""

F0_HZ = (60.0, 450.0)
F0_WINDOW, F0_FRAMES = 2048, 40
"""Samples per frame, and about how many frames of a recording are measured."""
VOICED = 0.55
"""Peak of the autocorrelation from which a frame counts as voiced."""

MIN_VOICING = 0.15


def relative_to_speaker(
    measured: NDArray[np.float64], speakers: NDArray[np.str_], neutral: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """measured (n, 5) of n recordings minus their speaker's mean in neutral style, at unit deviation; nan = unknown."""
    differences = np.empty_like(measured)
    for speaker in np.unique(speakers):
        same = speakers == speaker
        base = same & neutral if (same & neutral).any() else same
        differences[same] = measured[same] - nan_mean(measured[base])
    deviation = np.sqrt(nan_mean(differences**2))
    return (differences / np.where(deviation > 0, deviation, 1.0)).astype(np.float32).clip(-4, 4)


def f0_level(measured: NDArray[np.float64]) -> NDArray[np.float32]:
    """measured (n, 5) -> (n, 1) F0 relative to the mean of all recordings, at unit deviation; nan = unknown."""
    octaves = measured[:, :1] - nan_mean(measured[:, :1])
    deviation = math.sqrt(nan_mean(octaves**2)[0])
    return (octaves / (deviation or 1.0)).astype(np.float32).clip(-4, 4)


def nan_mean(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, k) -> (k,) means of the values that are not nan; 0 where all are nan."""
    known = ~np.isnan(rows)
    return np.where(known, rows, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)


def measure_attributes(samples: NDArray[np.float32], text: str, sample_rate: int) -> tuple[float, ...]:
    """The five ATTRIBUTES of one recording (N,); F0 and its range are nan with 15% voiced frames or less."""
    size, hop = F0_WINDOW, F0_WINDOW // 2
    padded = np.pad(samples, (0, max(0, size - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop]
    energy = (frames**2).sum(axis=1)
    loud = energy > 1e-3 * energy.max()
    seconds = max(1, int(loud.sum())) * hop / sample_rate
    chosen = np.flatnonzero(loud)
    chosen = chosen[:: max(1, len(chosen) // F0_FRAMES)]
    power = np.abs(np.fft.rfft(frames[chosen] * hann(size), axis=1)) ** 2
    f0, voiced = track_f0(power, sample_rate)
    voicing = float(voiced.mean()) if len(voiced) else 0.0
    octaves = np.log2(f0[voiced]) if voicing > MIN_VOICING else np.array([np.nan])
    low, middle, high = np.quantile(octaves, (0.15, 0.5, 0.85))
    edge = int(1500 / sample_rate * size)
    total = power.sum(axis=0) + 1e-9
    tilt = 10 * math.log10(total[edge:].sum() / total[:edge].sum())
    return float(middle), float(high - low), voicing, tilt, math.log(max(1, len(text)) / seconds)


def track_f0(power: NDArray[np.float32], sample_rate: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """power spectra (T, F) -> fundamental frequency (T,) by autocorrelation below 2 kHz, and whether it is voiced."""
    top = int(2000 / sample_rate * F0_WINDOW)
    lowpassed = np.where(np.arange(power.shape[1]) < top, power, np.float32(0.0))
    autocorrelation = np.fft.irfft(lowpassed, n=F0_WINDOW, axis=1)
    shortest, longest = (int(sample_rate / hertz) for hertz in F0_HZ[::-1])
    fading = np.fft.irfft(np.abs(np.fft.rfft(hann(F0_WINDOW), n=2 * F0_WINDOW)) ** 2)  # of the window itself
    lags = autocorrelation[:, shortest:longest] / (fading[shortest:longest] / fading[0])
    lags = lags * np.linspace(1.0, 0.8, longest - shortest)  # two periods repeat as well as one; prefer one
    best = lags.argmax(axis=1)
    strength = lags[np.arange(len(lags)), best] / np.maximum(autocorrelation[:, 0], 1e-9)
    return sample_rate / (shortest + best), strength > VOICED
