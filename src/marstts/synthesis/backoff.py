"""Backoff: is this take plausible speech for its sentence, and where none is, which one comes nearest?

Upstream: `many` and `stream`, which sample a take per rung of the ladder until one is accepted.  Downstream: `Speech`.
MARS6 (arXiv:2501.05787), Sec. IV-B3.  Deviations: a take that is too long, or that only the patch limit ended, is
sampled again too; when the ladder is spent the best take is kept with a warning, where the published code drops words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from pydantic import Field

from marstts.config import Config
from marstts.mars6.generate import Limits, StopReason
from marstts.synthesis.speech import Take


class BackoffConfig(Config):
    """When to sample a sentence again, how much bolder to be, and when to give up (MARS6, Sec. IV-B3)."""

    attempts: int = Field(5, ge=1)
    """Takes of one sentence at most. From top-p 0.2 in steps of 0.2, the fifth samples the full distribution."""

    top_p_step: float = Field(0.2, ge=0.0)
    """Added to top-p from one attempt to the next; top-p stays at 1 once there."""

    fastest_characters_per_second: float = Field(32.0, gt=0.0)
    """No one speaks faster: shorter takes are refused, and end-of-speech is forbidden until then."""

    usual_characters_per_second: float = Field(14.0, gt=0.0)
    """Ordinary reading; among refused takes, the one whose length is nearest to it is the best."""

    slowest_characters_per_second: float = Field(7.0, gt=0.0)
    """Hardly anyone reads slower: takes longer than this, plus `spare_seconds`, are refused."""

    spare_seconds: float = Field(1.0, ge=0.0)
    """Allowed on top for pauses, which weigh most in short sentences."""

    shortest_seconds: float = Field(0.12, ge=0.0)
    """Not even a one-letter word is shorter."""

    limit_factor: float = Field(1.5, ge=1.0)
    """Generation is cut off at this multiple of the longest acceptable length."""

    min_loudness: float = -52.0
    """LUFS; quieter takes are refused as silence."""

    def ladder(self, top_p: float) -> list[float]:
        """The top-p of each attempt, from `top_p` upwards."""
        return [min(1.0, round(top_p + rung * self.top_p_step, 2)) for rung in range(self.attempts)]

    def shortest(self, text: str) -> float:
        """Seconds that speaking `text` takes at least."""
        return max(self.shortest_seconds, len(text) / self.fastest_characters_per_second)

    def usual(self, text: str) -> float:
        """Seconds that speaking `text` should take, roughly."""
        return max(self.shortest_seconds, len(text) / self.usual_characters_per_second)

    def longest(self, text: str) -> float:
        """Seconds that speaking `text` takes at most."""
        return self.spare_seconds + len(text) / self.slowest_characters_per_second

    def limits(self, text: str, patch_rate: float) -> Limits:
        """Bounds of generation for `text`, in patches of a codec with `patch_rate` of them in a second."""
        return Limits(
            min_patches=math.ceil(self.shortest(text) * patch_rate),
            max_patches=math.ceil(self.longest(text) * self.limit_factor * patch_rate),
        )


class Flaw(str, Enum):
    """Why a take is not acceptable."""

    SILENT = "nothing can be heard"
    TOO_SHORT = "shorter than its words can be spoken"
    UNENDED = "still speaking when it was cut off"
    TOO_LONG = "longer than its words should take"


def find_flaw(take: Take, config: BackoffConfig) -> Flaw | None:
    """The first reason to sample the sentence again, or None for an acceptable take."""
    if not is_audible(take, config):
        return Flaw.SILENT
    if take.seconds < config.shortest(take.text):
        return Flaw.TOO_SHORT
    if take.stop is not StopReason.EOS:
        return Flaw.UNENDED
    if take.seconds > config.longest(take.text):
        return Flaw.TOO_LONG
    return None


def best_of(flawed: Sequence[Take], config: BackoffConfig) -> Take:
    """The one of all attempts at a sentence, each with a flaw, that comes nearest to speech, with a warning."""
    best = min(flawed, key=lambda take: shortcoming(take, config))
    return replace(best, attempts=len(flawed), warning=phrase_warning(best, len(flawed), config))


def shortcoming(take: Take, config: BackoffConfig) -> tuple[bool, float]:
    """How far a flawed take is from speech, for sorting: silence last, else by ratio to the usual length."""
    if not is_audible(take, config):
        return True, 0.0
    return False, abs(math.log(take.seconds / config.usual(take.text)))


def is_audible(take: Take, config: BackoffConfig) -> bool:
    """Whether the take has any sound in it, loud enough to hear."""
    return take.loudness_lufs >= config.min_loudness


def phrase_warning(take: Take, attempts: int, config: BackoffConfig) -> str:
    """One sentence for the person who will listen to a flawed take."""
    flaw = find_flaw(take, config)
    assert flaw is not None
    return f"“{take.text}”: after {attempts} attempts the best take is flawed: {flaw.value} ({take.seconds:.1f} s)"
