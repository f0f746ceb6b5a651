"""New speakers by speed perturbation: every speaker of a corpus gives one more, with another F0 and other formants.

Upstream: `[new_speakers]` of a configuration.  Downstream: `segments`, `generated_codes`.
Speaker recognition counts recordings at 0.9 and 1.1 times their speed as those of further speakers (Yamamoto et al.,
Interspeech 2019). Not in the papers.
"""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np
from pydantic import Field

from marstts.io.config import Config
from marstts_lab.training.bounds import PositiveRange, Probability


class NewSpeakersConfig(Config):
    """Recordings that are played faster or slower, as those of further speakers."""

    ratio: Probability = 0.35
    """Probability that a segment is of a new speaker."""

    take_ratio: Probability = 0.5
    """Probability that a take in the voice of another speaker (`generated_codes.swap_ratio`) has that of a new one."""

    factors: PositiveRange = Field((1.05, 1.15))
    """Factors of speed and of all frequencies; the reciprocal is used for half of the speakers."""


@lru_cache(maxsize=2**14)
def speed_of(speaker: str, config: NewSpeakersConfig) -> float:
    """The factor of the new speaker that a speaker gives: always the same."""
    rng = np.random.default_rng(zlib.crc32(speaker.encode()))
    low, high = np.log(config.factors)
    factor = float(np.exp(rng.uniform(low, high)))
    return factor if rng.uniform() < 0.5 else 1 / factor
