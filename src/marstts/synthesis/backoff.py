"""Backoff: accept plausible takes of a sentence, else choose the most plausible one.

Upstream: `sentence`, which asks for a take per attempt until one is accepted.  Downstream: `Speech`.
MARS6 (arXiv:2501.05787), Sec. IV-B3.  Deviations: a take that is too long, or that only the patch limit ended, is
sampled again, too. After the last attempt the best take is kept with a warning; the published code drops the words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from pydantic import Field, model_validator

from marstts.generation.request import Limits, StopReason
from marstts.io.config import Config
from marstts.synthesis.speech import Take
from marstts.text.phones import readable


class BackoffConfig(Config):
    """When to sample a sentence again, how far to raise top-p, and when to give up (MARS6, Sec. IV-B3)."""

    attempts: int = Field(5, ge=1)
    """Takes of one sentence at most. From top-p 0.2 in steps of 0.2, the fifth samples the full distribution."""

    top_p_step: float = Field(0.2, ge=0.0)
    """Added to top-p from one attempt to the next; top-p stays at 1 once there."""

    onset_seconds: float = Field(0.15, ge=0.0)
    """Duration of the onset of speech, which is added to that of the letters for the shortest acceptable take. It
    matters most in short texts. Some short and clear takes of fast voices are refused for it (docs/word-times.md)."""

    max_chars_per_second: float = Field(32.0, gt=0.0)
    """Fastest speech: shorter takes are refused, and end-of-speech is forbidden until then."""

    typical_chars_per_second: float = Field(14.0, gt=0.0)
    """Typical reading rate; of refused takes, the one whose length is nearest to it is the best."""

    min_chars_per_second: float = Field(7.0, gt=0.0)
    """Few speakers are slower: takes longer than this, plus `slack_seconds`, are refused."""

    slack_seconds: float = Field(0.75, ge=0.0)
    """Allowed on top for pauses, which weigh most in short sentences."""

    question_attempts: int = Field(3, ge=1)
    """Takes at most of a question whose pitch should rise at its end and does not; its first sound take is kept then.
    Beyond `attempts` it changes nothing, and the paper has no such attempts."""

    clearness_attempts: int = Field(4, ge=1)
    """Takes at most of a sentence whose sounds are not those of its words; the one that comes nearest is kept. Beyond
    `attempts` it changes nothing, and the paper has no such attempts."""

    min_goodness: float = Field(-0.6, le=0.0)
    """Goodness of pronunciation (`words.pronunciation`) of a take that is clear."""

    max_length_factor: float = Field(1.5, ge=1.0)
    """Generation is cut off at this multiple of the longest acceptable length."""

    min_loudness: float = -52.0
    """LUFS; quieter takes are refused as silence."""

    only_short_or_silent: bool = False
    """Refuse takes that are too short, as the paper does, or silent, as its code does, and no others."""

    @model_validator(mode="after")
    def _check_bounds(self) -> BackoffConfig:
        """Texts of any length can be spoken: the shortest take is shorter than where generation is cut off."""
        onset, slack = self.onset_seconds, self.slack_seconds * self.max_length_factor
        if onset > slack or self.max_chars_per_second * self.max_length_factor < self.min_chars_per_second:
            raise ValueError(
                f"the shortest take (onset {onset:g} s, {self.max_chars_per_second:g} characters a second) is longer "
                f"than the longest (slack {slack:g} s, {self.min_chars_per_second:g} characters a second)"
            )
        return self

    def top_p_schedule(self, top_p: float) -> list[float]:
        """The top-p of each attempt, from `top_p` upwards."""
        return [min(1.0, round(top_p + attempt * self.top_p_step, 2)) for attempt in range(self.attempts)]

    def shortest(self, text: str) -> float:
        """Seconds that speaking `text` takes at least."""
        return self.onset_seconds + len(text) / self.max_chars_per_second

    def usual(self, text: str) -> float:
        """Seconds that speaking `text` should take, roughly."""
        return max(self.onset_seconds, len(text) / self.typical_chars_per_second)

    def longest(self, text: str) -> float:
        """Seconds that speaking `text` takes at most."""
        return self.slack_seconds + len(text) / self.min_chars_per_second

    def limits(self, text: str, patch_rate: float) -> Limits:
        """Bounds of generation for `text`, in patches of a codec with `patch_rate` of them in a second."""
        return Limits(
            min_patches=math.ceil(self.shortest(text) * patch_rate),
            max_patches=math.ceil(self.longest(text) * self.max_length_factor * patch_rate),
        )


PAPER = BackoffConfig(onset_seconds=0.0, only_short_or_silent=True)
"""Backoff as in the paper: a take that is unrealistically short (or silent) is sampled again with a higher top-p."""


class RejectReason(str, Enum):
    """Reason why a take is rejected."""

    SILENT = "nothing is audible"
    TOO_SHORT = "shorter than its words can be spoken"
    UNENDED = "still speaking when it was cut off"
    TOO_LONG = "longer than its words should take"
    WRONG_WORDS = "not all words are said once"


def rejection_reason(take: Take, config: BackoffConfig) -> RejectReason | None:
    """The first reason to sample the sentence again, or None for an acceptable take."""
    if not is_audible(take, config):
        return RejectReason.SILENT
    if take.seconds < config.shortest(take.text):
        return RejectReason.TOO_SHORT
    if config.only_short_or_silent:
        return None
    if take.stop not in (StopReason.EOS, StopReason.WORDS_DONE):
        return RejectReason.UNENDED
    if take.seconds > config.longest(take.text):
        return RejectReason.TOO_LONG
    return RejectReason.WRONG_WORDS if take.flaws else None


def wanted_attempts(take: Take, config: BackoffConfig) -> int:
    """Takes to sample before this acceptable one may be kept: 1 where pitch and sounds are as they should be."""
    is_unclear = take.goodness is not None and take.goodness < config.min_goodness
    return max(config.question_attempts if take.is_level else 1, config.clearness_attempts if is_unclear else 1)


def clearest(takes: Sequence[Take]) -> Take:
    """Of acceptable takes the one with the best pronunciation, of questions one that rises; the first of equals."""
    return max(takes, key=lambda take: (not take.is_level, take.goodness or 0.0))


def best_of(flawed: Sequence[Take], config: BackoffConfig) -> Take:
    """The best of all attempts at a sentence, none of which is acceptable, with a warning."""
    best = min(flawed, key=lambda take: badness_key(take, config))
    return replace(best, attempts=len(flawed), warning=phrase_warning(best, len(flawed), config))


def badness_key(take: Take, config: BackoffConfig) -> tuple[bool, int, float]:
    """Sort key of a flawed take: silence last, then the number of flaws, then the ratio to the typical length."""
    if not is_audible(take, config):
        return True, 0, 0.0
    given_up, too_long = take.stop is StopReason.FLAWED, take.seconds > config.longest(take.text)
    return False, len(take.flaws) + given_up + too_long, abs(math.log(take.seconds / config.usual(take.text)))


def is_audible(take: Take, config: BackoffConfig) -> bool:
    """Return True where the take is audible."""
    return take.loudness_lufs >= config.min_loudness


def phrase_late_warning(take: Take, flaw: RejectReason) -> str:
    """The warning for a flawed take whose beginning was sent already."""
    text = readable(take.text)
    return f"“{text}”: was flawed, but its beginning had been sent already: {flaw.value} ({take.seconds:.1f} s)"


def phrase_warning(take: Take, attempts: int, config: BackoffConfig) -> str:
    """The warning for a flawed take."""
    flaw = rejection_reason(take, config)
    assert flaw is not None
    named = f" ({', '.join(map(str, take.flaws))})" if flaw is RejectReason.WRONG_WORDS else ""
    text = readable(take.text)
    return f"“{text}”: after {attempts} attempts the best take is flawed: {flaw.value}{named} ({take.seconds:.1f} s)"
