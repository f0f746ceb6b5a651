"""The protocol of speaker encoders: a reference recording in, one embedding out.

Upstream: `audio.Waveform`.  Downstream: `voice.Voice`, by role.  MARS6 conditions on two embeddings: identity (speaker
verification) and style (CLAP).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform


class SpeakerEncoder(Protocol):
    """Maps a reference waveform to an embedding. Deterministic: the same recording gives the same embedding.

    An encoder may have `embed_batch(waveforms) -> (B, E)` as well, which gives the same, up to rounding.
    """

    @property
    def name(self) -> str:
        """Name of the encoder and its weights, so that a voice made with another one is detected."""
        ...

    @property
    def size(self) -> int:
        """Length E of the embedding."""
        ...

    def embed(self, waveform: Waveform) -> NDArray[np.float32]:
        """The embedding, (E,) float32; the waveform may have any sample rate."""
        ...
