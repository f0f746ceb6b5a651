"""Distance of a codec's output from its input, sample-aligned: STOI, ESTOI, PESQ, log-mel distance; codebook use.

Upstream: a codec's input, output and codes.  Downstream: `evaluation.reconstruction`. Every metric here needs a
time-aligned original.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform, resample
from marstts.audio.spectral import log_mel
from marstts.errors import AudioError, require

PESQ_RATE = 16000
MEL_RATE = 24000
MEL_FFT_SIZE, MEL_HOP, NUM_MELS = 1024, 256, 100
MEL_FLOOR = 1e-3
"""Floor of mel magnitudes: differences between two silences do not count."""

DECIBELS_PER_NEPER = 20.0 / np.log(10.0)


def stoi(original: Waveform, decoded: Waveform, *, extended: bool = False) -> float:
    """Short-time objective intelligibility (pystoi), extended or not; 1 for equal signals."""
    first, second = aligned(original, decoded)
    return float(require("pystoi", "eval").stoi(first, second, original.sample_rate, extended=extended))


def pesq_wideband(original: Waveform, decoded: Waveform) -> float | None:
    """PESQ (ITU-T P.862.2) at 16 kHz, 1.0 to 4.64; None where it finds no speech to compare."""
    package = require("pesq", "eval")
    first, second = aligned(resample(original, PESQ_RATE), resample(decoded, PESQ_RATE))
    if not (first.any() and second.any()):
        return None
    try:
        return float(package.pesq(PESQ_RATE, first, second, "wb"))
    except (package.NoUtterancesError, package.BufferTooShortError):
        return None


def log_mel_distance(original: Waveform, decoded: Waveform) -> float:
    """Mean absolute difference in dB over 100 mel bands up to 12 kHz, frames of 43 ms every 11 ms."""
    first, second = aligned(resample(original, MEL_RATE), resample(decoded, MEL_RATE))
    return float(np.abs(mel_decibels(first) - mel_decibels(second)).mean())


def mel_decibels(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """(N,) at 24 kHz -> (100, T)."""
    mels = log_mel(samples, MEL_RATE, fft_size=MEL_FFT_SIZE, hop=MEL_HOP, num_mels=NUM_MELS)
    return np.maximum(mels, np.log(MEL_FLOOR)) * DECIBELS_PER_NEPER


def aligned(original: Waveform, decoded: Waveform) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Samples of both, cut to the shorter one, since codecs pad to whole patches. Raises AudioError if rates differ."""
    if original.sample_rate != decoded.sample_rate:
        raise AudioError(
            f"waveforms to compare must have one sample rate, not {original.sample_rate} and {decoded.sample_rate} Hz"
        )
    length = min(len(original.samples), len(decoded.samples))
    return original.samples[:length], decoded.samples[:length]


@dataclass(frozen=True)
class CodebookUse:
    """Usage of one level's entries over `codes` codes; few codes cannot use many entries."""

    codes: int
    used: int
    """Entries that occur at all."""

    perplexity: float
    """Exponential of the entropy: the number of equally frequent entries with the same information."""


def codebook_use(codes: NDArray[np.int64], codebook_size: int) -> CodebookUse:
    """Usage of one level's codebook over all codes of a set of recordings."""
    counts = np.bincount(codes, minlength=codebook_size)
    fractions = counts[counts > 0] / max(len(codes), 1)
    return CodebookUse(len(codes), int((counts > 0).sum()), float(np.exp(-(fractions * np.log(fractions)).sum())))
