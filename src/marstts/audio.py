"""Waveforms, and the one bounded door through which recordings enter.

Upstream: files and byte streams that people bring.  Downstream: codecs, speaker encoders, synthesis.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from marstts.errors import AudioError


@dataclass(frozen=True, eq=False)
class Waveform:
    """Mono audio: `samples` (N,) float32, nominally in [-1, 1], at `sample_rate` Hz."""

    samples: NDArray[np.float32]
    sample_rate: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate


def read(path: Path | str) -> Waveform:
    """Read a recording, channels averaged to mono."""
    try:
        samples, sample_rate = soundfile.read(str(path), dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError) as error:
        raise AudioError(f"{path}: expected an audio file, but it cannot be decoded: {error}") from error
    return Waveform(samples.mean(axis=1), sample_rate)


def write(waveform: Waveform, path: Path | str) -> None:
    """Write 16-bit PCM in the format of the file's suffix (wav, flac)."""
    soundfile.write(str(path), waveform.samples, waveform.sample_rate, subtype="PCM_16")


def resample(waveform: Waveform, sample_rate: int) -> Waveform:
    """The same audio at another rate (soxr, high quality)."""
    if waveform.sample_rate == sample_rate:
        return waveform
    samples = soxr.resample(waveform.samples, waveform.sample_rate, sample_rate)
    return Waveform(samples.astype(np.float32), sample_rate)
