"""What callers may give as a reference: paths, waveforms, bytes of files, and arrays with a sample rate.

Upstream: callers of `Synthesizer.clone`.  Downstream: `clone`.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marstts.audio import Waveform
from marstts.errors import AudioError

Reference = Waveform | Path | str | bytes | bytearray | NDArray[Any] | tuple[ArrayLike, int] | tuple[int, ArrayLike]
"""A recording of a voice; a pair is an array and its sample rate, in either order."""

MAX_CHANNELS = 32


def as_reference(reference: Any, sample_rate: int | None = None) -> Waveform | Path | str | io.BytesIO:
    """The reference as `clone` takes it; AudioError for anything else.

    Arrays are (N,), (N, channels) or (channels, N) numbers, integers at their full scale; channels are averaged.
    """
    if isinstance(reference, (bytes, bytearray)):
        return io.BytesIO(bytes(reference))
    if isinstance(reference, tuple) and len(reference) == 2:
        first, second = reference
        array, rate = (second, first) if np.ndim(first) == 0 else (first, second)
        return as_waveform(array, rate)
    if isinstance(reference, (Waveform, Path, str, io.IOBase)):
        return reference  # type: ignore[return-value]
    if sample_rate is None:
        raise AudioError(
            f"a reference is a path, a marstts.Waveform, the bytes of an audio file, or an array with its sample_rate, "
            f"but this is {type(reference).__name__} without a sample rate"
        )
    return as_waveform(reference, sample_rate)


def as_waveform(array: ArrayLike, sample_rate: Any) -> Waveform:
    """A waveform of an array in any common form; AudioError for other shapes, types and rates."""
    if isinstance(sample_rate, bool) or not isinstance(sample_rate, (int, np.integer)) or sample_rate <= 0:
        raise AudioError(f"a sample rate is a positive whole number in Hz, not {sample_rate!r}")
    try:
        samples = np.asarray(array)
    except ValueError as error:  # rows of several lengths
        raise AudioError("the samples of a reference are one array of numbers") from error
    if samples.dtype.kind not in "fiu":
        raise AudioError(f"the samples of a reference are numbers, not {samples.dtype}")
    if samples.dtype.kind in "iu":
        limits = np.iinfo(samples.dtype)
        middle = 0 if limits.min < 0 else (int(limits.max) + 1) / 2
        samples = (samples.astype(np.float64) - middle) / (limits.max - middle + 1 if middle else -float(limits.min))
    if samples.ndim == 2 and min(samples.shape) <= MAX_CHANNELS:
        samples = samples.mean(axis=int(np.argmin(samples.shape)))
    if samples.ndim != 1:
        raise AudioError(f"the samples of a reference have the shape (N,) or (N, channels), not {samples.shape}")
    return Waveform(samples.astype(np.float32), int(sample_rate))
