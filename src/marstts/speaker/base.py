"""The protocol of speaker encoders: a reference recording in, one embedding out.

Upstream: `audio.Waveform`.  Downstream: `voice.Voice`, by role.  MARS6 conditions on two embeddings: identity (speaker
verification) and style (CLAP).
"""

from __future__ import annotations

from collections.abc import Sequence
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


# Speaker verification: similarity of embeddings, and the equal error rate.


def cosine(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """Cosine similarity of two embeddings (E,); 0 where one is all zeros."""
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(np.dot(first, second)) / norms if norms > 0 else 0.0


def trials(embeddings: NDArray[np.float32], speakers: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosine similarities of all pairs of embeddings (N, E): pairs of the same speaker, and of different speakers."""
    unit = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-8)
    first, second = np.triu_indices(len(unit), k=1)
    similarities = (unit @ unit.T)[first, second]
    names = np.asarray(speakers)
    same = names[first] == names[second]
    return similarities[same], similarities[~same]


def equal_error_rate(same: NDArray[np.float32], different: NDArray[np.float32]) -> float:
    """The error rate at the threshold where false rejections and false acceptances are equally frequent.

    It is the mean of both rates at the threshold where they are closest; 0 is perfect, 0.5 is chance.
    """
    thresholds = np.unique(np.concatenate([same, different]))
    rejected = np.searchsorted(np.sort(same), thresholds, side="left") / len(same)
    accepted = 1 - np.searchsorted(np.sort(different), thresholds, side="left") / len(different)
    closest = int(np.argmin(np.abs(rejected - accepted)))
    return float(rejected[closest] + accepted[closest]) / 2
