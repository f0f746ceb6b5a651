"""Does this listener wear headphones? Three tones, one quieter; over loudspeakers another one seems to be.

Upstream: a random generator.  Downstream: `host`, `turk`.
Woods, Siegel, Traer & McDermott, "Headphone screening to facilitate web-based auditory experiments" (2017): of three
tones of 200 Hz one is 6 dB quieter, and one of the other two is in opposite phase left and right. Through the air the
two sides of that one cancel, and it is taken for the quietest. Five of six right is a pass.  Deviations: none known.
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
"""Who fails may put headphones on and try again, once."""

FREQUENCY = 200.0
TONE_SECONDS, RAMP_SECONDS, PAUSE_SECONDS = 1.0, 0.1, 0.5
QUIETER_DB = 6.0
AMPLITUDE = 0.25
SAMPLE_RATE = 44_100


@dataclass(frozen=True)
class ToneTrial:
    """Places from 0 to 2 among three tones."""

    quiet: int
    """The tone that is softer: the right answer."""
    opposed: int
    """The tone whose sides are in opposite phase."""


def plan_tones(rng: random.Random) -> list[ToneTrial]:
    """Six trials: each tone is the quiet one twice, in random order."""
    quiet = [place for place in range(3) for _ in range(NUM_TRIALS // 3)]
    rng.shuffle(quiet)
    return [ToneTrial(place, rng.choice([other for other in range(3) if other != place])) for place in quiet]


def count_correct(trials: list[ToneTrial], answers: list[int]) -> int:
    """How many answers (0 to 2) name the quiet tone."""
    return sum(trial.quiet == answer for trial, answer in zip(trials, answers, strict=True))


def synthesize(trial: ToneTrial) -> NDArray[np.float64]:
    """(N, 2) samples, left and right, at SAMPLE_RATE."""
    time = np.arange(round(TONE_SECONDS * SAMPLE_RATE)) / SAMPLE_RATE
    ramp = np.clip(np.minimum(time, TONE_SECONDS - time) / RAMP_SECONDS, 0.0, 1.0)
    tone = AMPLITUDE * np.sin(2 * np.pi * FREQUENCY * time) * np.sin(ramp * np.pi / 2) ** 2
    pause = np.zeros((round(PAUSE_SECONDS * SAMPLE_RATE), 2))
    pieces = []
    for place in range(3):
        gain = 10 ** (-QUIETER_DB / 20) if place == trial.quiet else 1.0
        right = -1.0 if place == trial.opposed else 1.0
        pieces += [gain * np.stack([tone, right * tone], axis=1), pause]
    return np.concatenate(pieces[:-1])


def encode_tones(trial: ToneTrial) -> bytes:
    """A stereo WAV file."""
    buffer = io.BytesIO()
    soundfile.write(buffer, synthesize(trial), SAMPLE_RATE, format="WAV", subtype="PCM_16")
    return buffer.getvalue()
