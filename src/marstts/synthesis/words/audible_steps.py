"""How audible a take is, step by step: in silence no word is said, whatever attention rests on.

Upstream: decoded audio, whole or as it is made.  Downstream: `attention_path`, which weighs attention by it.
A frame counts from 0, for silence, to 1, for speech, by its level below the loudest frame so far; breath after a word
and the end of a fricative lie between. Nothing that comes later counts, so that a stream finds what the whole take has.
Shapes: N samples · T steps · F frames of a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform

FRAMES_PER_STEP = 8
"""Frames of 10.7 ms where a step lasts 85 ms."""

SPEECH_DB, SILENCE_DB = -20.0, -38.0
"""Levels of a frame, relative to the loudest one so far: from the first on it is speech, below the second silence."""

FLOOR_DB = -60.0
"""Full scale = 0 dB; the loudest frame counts as this loud at least."""


@dataclass(frozen=True, eq=False)
class AudibleSteps:
    """Audible frames of the audio so far; a value."""

    samples_per_step: int

    frames: NDArray[np.float32]
    """(T, F) from 0 to 1, of the steps that are decoded."""

    peak: float
    """Power of the loudest frame so far."""

    rest: NDArray[np.float32]
    """Samples of a step that is not whole yet."""

    @classmethod
    def begin(cls, sample_rate: int, patch_rate: float) -> AudibleSteps:
        """The value before the first sample."""
        no_frames = np.zeros((0, FRAMES_PER_STEP), np.float32)
        return cls(round(sample_rate / patch_rate), no_frames, 0.0, np.zeros(0, np.float32))

    def after(self, samples: NDArray[np.float32]) -> AudibleSteps:
        """The value with more samples (N,)."""
        samples = np.concatenate([self.rest, samples])
        num_steps = len(samples) // self.samples_per_step
        if not num_steps:
            return AudibleSteps(self.samples_per_step, self.frames, self.peak, samples)
        size = self.samples_per_step // FRAMES_PER_STEP  # of a rate that is no multiple, a few samples are left out
        whole = samples[: num_steps * self.samples_per_step].reshape(num_steps, self.samples_per_step)
        framed = whole[:, : size * FRAMES_PER_STEP].reshape(num_steps * FRAMES_PER_STEP, size).astype(np.float64)
        powers = np.einsum("ij,ij->i", framed, framed) / size
        peaks = np.maximum.accumulate(np.maximum(powers, self.peak))
        levels = 10.0 * np.log10((powers + 1e-12) / np.maximum(peaks, 10.0 ** (FLOOR_DB / 10.0)))
        audible = np.clip((levels - SILENCE_DB) / (SPEECH_DB - SILENCE_DB), 0.0, 1.0).astype(np.float32)
        return AudibleSteps(
            self.samples_per_step,
            np.concatenate([self.frames, audible.reshape(num_steps, FRAMES_PER_STEP)]),
            float(peaks[-1]),
            samples[num_steps * self.samples_per_step :],
        )


def audible_steps(waveform: Waveform, patch_rate: float) -> NDArray[np.float32]:
    """(T, F) from 0 to 1 how audible the frames of a take are, from its first step."""
    return AudibleSteps.begin(waveform.sample_rate, patch_rate).after(waveform.samples).frames
