"""The noise source of the mini codec, as short-time spectra that its decoder then filters.

Upstream: `base.noise_of`.  Downstream: `codec.mini`. All utterances have the same noise, whose place is in the
utterance, so each patch of it is transformed once for all.
Shapes: F spectral frames · N samples.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from marstts.audio import spectral
from marstts.codec.base import noise_of

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
