"""What every speaker encoder promises: a reference recording in, one embedding out.

MARS6 hears a reference through two of them: one for identity (speaker verification) and one for style (CLAP).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform


class SpeakerEncoder(Protocol):
    """Reference waveform → embedding. Deterministic: the same recording gives the same embedding."""

    @property
    def name(self) -> str:
        """Names the encoder and its weights, so that a voice made with another one is noticed."""
        ...

    @property
    def size(self) -> int:
        """Length E of the embedding."""
        ...

    def embed(self, waveform: Waveform) -> NDArray[np.float32]:
        """(E,) float32; resamples by itself."""
        ...
