"""What every codec promises: waveform in, codes per level out, and back.

Upstream: `audio.Waveform`.  Downstream: `mars6.patches` (codes → tokens) and whoever listens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform

Codes = tuple[NDArray[np.int64], ...]
"""One (T_level,) array of codes per level, coarse to fine; level l has `patch_layout[l]` codes per patch."""


@dataclass(frozen=True, kw_only=True)
class CodecSpec:
    """The geometry a language model must know about a codec."""

    name: str
    """Names the codec and its weights; a voice's codes are only valid for the codec of the same name."""

    sample_rate: int
    """Samples per second of the audio it reads and writes."""

    codebook_size: int
    """Entries per level (the same on all levels)."""

    hop_lengths: tuple[int, ...]
    """Samples per code on each level, coarse to fine; each divides the one before."""

    @property
    def patch_layout(self) -> tuple[int, ...]:
        """Codes of each level in one patch, e.g. (1, 2, 4)."""
        return tuple(self.hop_lengths[0] // hop for hop in self.hop_lengths)

    @property
    def patch_samples(self) -> int:
        """Samples in one patch (2048 for SNAC 24 kHz: 85.3 ms)."""
        return self.hop_lengths[0]

    @property
    def patch_rate(self) -> float:
        """Patches per second, the true one (11.72 Hz for SNAC 24 kHz, called 12)."""
        return self.sample_rate / self.hop_lengths[0]


class Codec(Protocol):
    """A neural audio codec. One waveform at a time; implementations hold no state between calls."""

    @property
    def spec(self) -> CodecSpec: ...

    def encode(self, waveform: Waveform) -> Codes:
        """Codes of the waveform, padded with silence to whole patches; resampled if its rate differs."""
        ...

    def decode(self, codes: Sequence[NDArray[np.int64]]) -> Waveform:
        """The audio of whole patches: `len(codes[0]) * spec.patch_samples` samples."""
        ...
