"""What speaker encoders see of a recording: the same in training, where shards are made, as in synthesis.

Upstream: `audio.Waveform`.  Downstream: `data.preprocess`, `synthesis.clone`.
"""

from __future__ import annotations

from marstts import audio
from marstts.audio import Waveform

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
