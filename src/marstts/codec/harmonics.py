"""The sources of speech that a codec's decoder filters: pulses at its F0, and noise.

Upstream: F0 for each spectral frame.  Downstream: `codec.mini`; `codec.mini_model` makes the same in PyTorch.
All harmonics below the Nyquist frequency have the same amplitude; their sum is computed in closed form (the Dirichlet
kernel). The idea is that of neural source-filter models (arXiv:1904.12088) and of DDSP (arXiv:2001.04643). Phase is
counted in cycles, so that it can be passed from one window of an utterance to the next.
Shapes: F frames · N samples.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from marstts.audio import spectral
from marstts.codec.base import noise_of

MAX_NYQUIST_RATIO = 0.98
"""Bound of the harmonics' frequencies, relative to the Nyquist frequency."""


def interpolate_f0(f0: NDArray[np.floating], hop: int) -> NDArray[np.float64]:
    """F0 (F,) at the centers of frames -> (F * hop,) at samples: linear between, constant at both ends."""
    centers = (np.arange(len(f0)) + 0.5) * hop - 0.5
    return np.interp(np.arange(len(f0) * hop), centers, f0)


def phase(f0: NDArray[np.float64], sample_rate: int, before: float) -> NDArray[np.float64]:
    """Phase in cycles, (N,), modulo 1, from F0 in hertz at each sample; `before`: the phase before the first sample."""
    cycles: NDArray[np.float64] = before + np.cumsum(f0 / sample_rate)
    return cycles - np.floor(cycles)  # as `% 1.0`, but three times as fast


def pulse_train(f0: NDArray[np.float64], cycles: NDArray[np.float64], sample_rate: int) -> NDArray[np.float32]:
    """Pulses of unit power at whole cycles, from F0 in hertz and phase in cycles at each sample, (N,)."""
    num_harmonics = np.floor(MAX_NYQUIST_RATIO * sample_rate / 2 / f0)
    half = np.pi * cycles
    denominator = np.sin(half)
    on_pulse = np.abs(denominator) < 1e-6
    kernel = np.sin((2 * num_harmonics + 1) * half) / np.where(on_pulse, 1.0, denominator)
    total = np.where(on_pulse, 2 * num_harmonics + 1, kernel) - 1  # twice the sum of the cosines
    return (total / np.sqrt(2 * num_harmonics)).astype(np.float32)


# The noise source of the mini codec, as short-time spectra that its decoder then filters.
# All utterances have the same noise, whose place is in the utterance, so each patch of it is transformed once for
# all. Shapes: F spectral frames · N samples.

KEPT_PATCHES = 256
"""Patches whose spectra are kept, 33 kB each."""


@lru_cache(maxsize=KEPT_PATCHES)
def noise_spectra(patch: int, size: int, around: tuple[bool, bool], fft_size: int, hop: int) -> NDArray[np.complex64]:
    """Spectra of one patch of noise, (fft_size / 2 + 1, size / hop); `around`: is there noise before, and after it?"""
    numbers = range(patch - around[0], patch + around[1] + 1)
    first = around[0] * size // hop
    noise = np.concatenate([noise_of((0,), number, size) for number in numbers])
    return spectra_of(noise, slice(first, first + size // hop), fft_size, hop)


def spectra_of(samples: NDArray[np.float32], chosen: slice, fft_size: int, hop: int) -> NDArray[np.complex64]:
    """(N,), silence around it -> (fft_size / 2 + 1, F) of the chosen frames."""
    padded = np.pad(samples, (fft_size - hop) // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, fft_size)[::hop][chosen]
    return np.fft.rfft(frames * spectral.hann(fft_size), axis=-1).T.astype(np.complex64)
