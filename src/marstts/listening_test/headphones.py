"""The headphone check: of three tones the quietest one must be named; over loudspeakers another one seems quietest.

Upstream: a random generator.  Downstream: `service`.
Woods, Siegel, Traer & McDermott, "Headphone screening to facilitate web-based auditory experiments" (2017): of three
tones of 200 Hz one is 6 dB quieter, and one of the other two is in opposite phase left and right. Through the air the
two channels of that one cancel, and it seems the quietest. Five of six correct is a pass.  Deviations: none known.
"""

from __future__ import annotations

import io
import random
from dataclasses import dataclass

import numpy as np
import soundfile
from numpy.typing import NDArray

NUM_TRIALS, MIN_CORRECT = 6, 5
ATTEMPTS = 2
"""A listener who fails may put headphones on and try again, once."""

FREQUENCY_HZ = 200.0
TONE_SECONDS, RAMP_SECONDS, PAUSE_SECONDS = 1.0, 0.1, 0.5
QUIETER_DB = 6.0
AMPLITUDE = 0.25
SAMPLE_RATE = 44_100


@dataclass(frozen=True)
class ToneTrial:
    """Indices from 0 to 2 among three tones."""

    quiet: int
    """The quieter tone: the correct answer."""
    antiphase: int
    """The tone whose channels are in opposite phase."""


def plan_tones(rng: random.Random) -> list[ToneTrial]:
    """Six trials: each tone is the quiet one twice, in random order."""
    quiet = [index for index in range(3) for _ in range(NUM_TRIALS // 3)]
    rng.shuffle(quiet)
    return [ToneTrial(index, rng.choice([other for other in range(3) if other != index])) for index in quiet]


def count_correct(trials: list[ToneTrial], answers: list[int]) -> int:
    """Number of answers (0 to 2) that name the quiet tone."""
    return sum(trial.quiet == answer for trial, answer in zip(trials, answers, strict=True))


def synthesize_tones(trial: ToneTrial) -> NDArray[np.float64]:
    """(N, 2) samples, left and right, at SAMPLE_RATE."""
    time = np.arange(round(TONE_SECONDS * SAMPLE_RATE)) / SAMPLE_RATE
    ramp = np.clip(np.minimum(time, TONE_SECONDS - time) / RAMP_SECONDS, 0.0, 1.0)
    tone = AMPLITUDE * np.sin(2 * np.pi * FREQUENCY_HZ * time) * np.sin(ramp * np.pi / 2) ** 2
    pause = np.zeros((round(PAUSE_SECONDS * SAMPLE_RATE), 2))
    pieces = []
    for index in range(3):
        gain = 10 ** (-QUIETER_DB / 20) if index == trial.quiet else 1.0
        right = -1.0 if index == trial.antiphase else 1.0
        pieces += [gain * np.stack([tone, right * tone], axis=1), pause]
    return np.concatenate(pieces[:-1])


def encode_tones(trial: ToneTrial) -> bytes:
    """A stereo WAV file."""
    buffer = io.BytesIO()
    soundfile.write(buffer, synthesize_tones(trial), SAMPLE_RATE, format="WAV", subtype="PCM_16")
    return buffer.getvalue()
