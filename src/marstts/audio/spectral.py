"""Short-time spectra in NumPy: features of the codec and the speaker encoders without PyTorch.

Upstream: samples.  Downstream: `codec.mini`, `speaker.mini`, metrics.
The PyTorch models compute the same features in training; a test compares both. By default frame t is centered on sample
`t * hop`, the signal padded by reflection, Hann window, as in `torch.stft(center=True)`. With a padding of
`(fft_size - hop) // 2` frame t is centered on sample `(t + 1/2) * hop`, and N samples make exactly N / hop frames.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

LOG_FLOOR = 1e-5
"""Smallest magnitude; keeps the logarithm finite."""


@lru_cache(maxsize=8)
def hann(size: int) -> NDArray[np.float32]:
    """(size,) periodic Hann window."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)).astype(np.float32)


@lru_cache(maxsize=8)
def mel_filterbank(sample_rate: int, fft_size: int, num_mels: int) -> NDArray[np.float32]:
    """(num_mels, fft_size // 2 + 1) triangles, peaks at 1, evenly spaced on the HTK mel scale from 0 Hz to Nyquist."""
    top = 2595.0 * np.log10(1.0 + sample_rate / 2 / 700.0)
    edges = 700.0 * (10.0 ** (np.linspace(0.0, top, num_mels + 2) / 2595.0) - 1.0)
    return triangles(edges, sample_rate, fft_size).astype(np.float32)


def triangles(edges: NDArray[np.float64], sample_rate: int, fft_size: int) -> NDArray[np.float64]:
    """Edges (M + 2,) in hertz -> (M, fft_size // 2 + 1): triangle m rises from edge m to m + 1, and falls to m + 2."""
    frequencies = np.linspace(0.0, sample_rate / 2, fft_size // 2 + 1)
    rising = (frequencies[None, :] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequencies[None, :]) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0.0, np.minimum(rising, falling))


def bands(filterbank: NDArray[np.float32], spectrum: NDArray[np.float32]) -> NDArray[np.float32]:
    """filterbank (M, F), spectrum (F, T) -> (M, T), the sum of each filter."""
    summed = np.empty((len(filterbank), spectrum.shape[1]), np.float32)
    for row, weights in zip(summed, filterbank, strict=True):
        inside = np.flatnonzero(weights)  # no matrix product: BLAS adds in an order that depends on its threads
        row[:] = (weights[inside, None] * spectrum[inside]).sum(axis=0)
    return summed


def magnitude_spectrogram(
    samples: NDArray[np.float32], fft_size: int, hop: int, padding: int | None = None
) -> NDArray[np.float32]:
    """samples (N,) -> (fft_size // 2 + 1, T), where T = N // hop + 1 for the default padding of fft_size // 2."""
    padding = fft_size // 2 if padding is None else padding
    padded = np.pad(samples, padding, mode="reflect" if len(samples) > padding else "constant")
    frames = np.lib.stride_tricks.sliding_window_view(padded, fft_size)[::hop]
    return np.abs(np.fft.rfft(frames * hann(fft_size), axis=-1)).T.astype(np.float32)


def log_mel(
    samples: NDArray[np.float32],
    sample_rate: int,
    *,
    fft_size: int,
    hop: int,
    num_mels: int,
    padding: int | None = None,
) -> NDArray[np.float32]:
    """samples (N,) -> (num_mels, T), natural logarithm of mel magnitudes; T as in `magnitude_spectrogram`."""
    mels = bands(
        mel_filterbank(sample_rate, fft_size, num_mels), magnitude_spectrogram(samples, fft_size, hop, padding)
    )
    return np.log(np.maximum(mels, LOG_FLOOR))


def overlap_add(
    spectra: NDArray[np.complex64], fft_size: int, hop: int, padding: int | None = None
) -> NDArray[np.float32]:
    """Inverse of the STFT: spectra (fft_size // 2 + 1, T) -> samples ((T - 1) * hop + fft_size - 2 * padding,)."""
    padding = fft_size // 2 if padding is None else padding
    frames = np.fft.irfft(spectra.T, n=fft_size, axis=-1) * hann(fft_size)
    length = (len(frames) - 1) * hop + fft_size
    samples, weight = np.zeros(length, np.float32), np.zeros(length, np.float32)
    square = hann(fft_size) ** 2
    for index, frame in enumerate(frames):
        samples[index * hop : index * hop + fft_size] += frame
        weight[index * hop : index * hop + fft_size] += square
    inside = slice(padding, length - padding)
    return (samples[inside] / np.maximum(weight[inside], 1e-8)).astype(np.float32)
