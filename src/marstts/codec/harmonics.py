"""The sound that a voice begins with: pulses at the pitch of the speech, which a codec's decoder then shapes.

Upstream: a pitch for each spectral frame.  Downstream: `codec.mini`; `codec.mini_model` makes the same in PyTorch.
All harmonics below the Nyquist frequency, equally loud, in closed form (the Dirichlet kernel). The idea is that of
neural source-filter models (arXiv:1904.12088) and of DDSP (arXiv:2001.04643); phases are counted in cycles, so that
they can be carried from one stretch of an utterance to the next.
Shapes: F frames · N samples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

HIGHEST_SHARE = 0.98
"""Of the Nyquist frequency: the highest harmonic lies below it."""


def spread(pitch: NDArray[np.floating], hop: int) -> NDArray[np.float64]:
    """pitch (F,) at the centres of frames -> (F * hop,) at samples: straight lines between, level at both ends."""
    centres = (np.arange(len(pitch)) + 0.5) * hop - 0.5
    return np.interp(np.arange(len(pitch) * hop), centres, pitch)


def count_cycles(pitch: NDArray[np.float64], sample_rate: int, before: float) -> NDArray[np.float64]:
    """Cycles, (N,), since the utterance began, modulo 1; `before` is their number before the first of these samples."""
    cycles: NDArray[np.float64] = (before + np.cumsum(pitch / sample_rate)) % 1.0
    return cycles


def pulse_train(pitch: NDArray[np.float64], cycles: NDArray[np.float64], sample_rate: int) -> NDArray[np.float32]:
    """Pulses of unit power where the cycles are whole, from the pitch in Hertz and the cycles at each sample, (N,)."""
    count = np.floor(HIGHEST_SHARE * sample_rate / 2 / pitch)
    half = np.pi * cycles
    below = np.sin(half)
    on_pulse = np.abs(below) < 1e-6
    kernel = np.sin((2 * count + 1) * half) / np.where(on_pulse, 1.0, below)
    total = np.where(on_pulse, 2 * count + 1, kernel) - 1  # twice the sum of the cosines
    return (total / np.sqrt(2 * count)).astype(np.float32)
