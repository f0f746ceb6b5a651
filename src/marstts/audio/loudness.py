"""Loudness after ITU-R BS.1770-4, in NumPy: decides whether a take is audible.

Upstream: samples.  Downstream: `audio`.  It gives the figures of the package pyloudnorm (a test compares them), which
brings SciPy: importing that takes longer than loading a model and speaking the first words, and more memory.
Filters after R. Bristow-Johnson's audio EQ cookbook.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float64]

BLOCK_SECONDS, STEP_SECONDS = 0.4, 0.1
"""Loudness is measured in blocks of this length, one beginning so long after the other."""

ABSOLUTE_GATE, RELATIVE_GATE = -70.0, -10.0
"""LUFS, and LU below the loudness of what passes the first gate: quieter blocks do not count."""

OFFSET = -0.691
"""LUFS of a block whose mean square is 1."""

SHELF_DB, SHELF_Q, SHELF_HZ = 4.0, math.sqrt(0.5), 1500.0
HIGH_PASS_Q, HIGH_PASS_HZ = 0.5, 38.0
"""The K-weighting's filters: a shelf for the acoustics of the head, and a high-pass."""

FFT_SIZE, RINGING_SECONDS = 5 << 13, 0.15
"""Samples of a Fourier transform at up to `MAX_RATE_OF_SIZE`, so few that a cache holds them; and how long the filters
ring, down to 1e-14 of their input."""

MAX_RATE_OF_SIZE = 96_000


def integrated_loudness(samples: Samples, sample_rate: int) -> float:
    """LUFS of samples (N,), N at least one block; -inf where no block passes the gates."""
    powers = block_powers(k_weight(samples, sample_rate), sample_rate)
    loud = powers[lufs(powers) >= ABSOLUTE_GATE]
    if not len(loud):
        return -math.inf
    loud = loud[lufs(loud) > lufs(loud.mean()) + RELATIVE_GATE]
    return float(lufs(loud.mean()))


def lufs(power: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
    """Mean squares of weighted samples -> LUFS."""
    return OFFSET + 10.0 * np.log10(np.maximum(power, 1e-30))


def block_powers(weighted: Samples, sample_rate: int) -> NDArray[np.float64]:
    """weighted (N,) -> mean squares of overlapping blocks."""
    count = round((len(weighted) / sample_rate - BLOCK_SECONDS) / STEP_SECONDS) + 1
    starts = STEP_SECONDS * np.arange(count)
    squares = np.concatenate([[0.0], np.cumsum(weighted**2)])
    first, last = ((seconds * sample_rate + 1e-6).astype(np.int64) for seconds in (starts, starts + BLOCK_SECONDS))
    return (squares[np.minimum(last, len(weighted))] - squares[first]) / (BLOCK_SECONDS * sample_rate)


def k_weight(samples: Samples, sample_rate: int) -> Samples:
    """samples (N,) -> (N,) K-weighted, piece by piece."""
    ringing = round(RINGING_SECONDS * sample_rate)
    size = FFT_SIZE * -(-sample_rate // MAX_RATE_OF_SIZE)
    piece = size - ringing
    weighted = np.zeros(len(samples) + ringing)
    for start in range(0, len(samples), piece):
        part = samples[start : start + piece]
        spectrum = np.fft.rfft(part, size) * response(size, sample_rate)
        filtered = np.fft.irfft(spectrum, size)[: len(part) + ringing]
        weighted[start : start + len(filtered)] += filtered
    return weighted[: len(samples)]


@cache
def response(size: int, sample_rate: int) -> NDArray[np.complex128]:
    """(size // 2 + 1,) gains of the K-weighting at the frequencies of a Fourier transform."""
    delay = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size)
    gains = np.ones(len(delay), np.complex128)
    for above, below in (high_shelf(sample_rate), high_pass(sample_rate)):
        gains *= np.polyval(above[::-1], delay) / np.polyval(below[::-1], delay)
    return gains


def high_shelf(sample_rate: int) -> tuple[list[float], list[float]]:
    """Coefficients (b, a) of the filter that lifts what lies above SHELF_HZ by SHELF_DB."""
    lift = 10.0 ** (SHELF_DB / 40.0)
    cosine, slope = biquad_params(SHELF_HZ, SHELF_Q, sample_rate)
    more, less, width = lift + 1.0, lift - 1.0, 2.0 * math.sqrt(lift) * slope
    above = [more + less * cosine + width, -2.0 * (less + more * cosine), more + less * cosine - width]
    below = [more - less * cosine + width, 2.0 * (less - more * cosine), more - less * cosine - width]
    return [lift * value for value in above], below


def high_pass(sample_rate: int) -> tuple[list[float], list[float]]:
    """Coefficients (b, a) of the filter that takes away what lies below HIGH_PASS_HZ."""
    cosine, slope = biquad_params(HIGH_PASS_HZ, HIGH_PASS_Q, sample_rate)
    rise = (1.0 + cosine) / 2.0
    return [rise, -2.0 * rise, rise], [1.0 + slope, -2.0 * cosine, 1.0 - slope]


def biquad_params(frequency: float, q: float, sample_rate: int) -> tuple[float, float]:
    """Center frequency and slope of a biquad, as in the cookbook: cos w0 and alpha."""
    turn = 2.0 * math.pi * frequency / sample_rate
    return math.cos(turn), math.sin(turn) / (2.0 * q)
