"""The protocol of speaker encoders: a reference recording in, one embedding out.

Upstream: `audio.Waveform`.  Downstream: `voice.Voice`, by role.  MARS6 conditions on two embeddings: identity (speaker
verification) and style (CLAP).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from marstts import audio
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


# What speaker encoders see of a recording: the same in training, where shards are made, as in synthesis.

MAX_REFERENCE_SECONDS = 15.0
"""The speaker encoders see this much from the start; more adds time and little else."""

REFERENCE_LOUDNESS = -23.0
"""LUFS every reference is brought to: the distance to the microphone is not part of a voice."""


def encoder_input(recording: Waveform, sample_rate: int) -> Waveform:
    """The recording as a reference: at the codec's rate and one loudness, without silence at its edges, bounded."""
    centered = Waveform(recording.samples - recording.samples.mean(), recording.sample_rate)
    waveform = audio.trim_silence(audio.resample(centered, min(sample_rate, recording.sample_rate)))
    level = audio.normalize_loudness(waveform, REFERENCE_LOUDNESS)
    return Waveform(level.samples[: int(MAX_REFERENCE_SECONDS * level.sample_rate)], level.sample_rate)
