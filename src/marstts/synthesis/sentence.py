"""A sentence while it is spoken: which take is sampled next, and which one is kept. The one place that decides.

Upstream: `runner`, which samples the attempts and decodes their takes.  Downstream: `backoff`, `repair`.
MARS6 (arXiv:2501.05787), Sec. IV-B3.

    attempts with rising top-p -> (flawed words) other seeds -> the sentence in parts -> the best of all, with a warning

An acceptable take ends it at any point. A question that stays level and a sentence whose sounds are unclear are spoken
again, a few times, and the best of the takes is kept. Once a part of a take was sent to a listener, that take is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from marstts.synthesis.backoff import (
    BackoffConfig,
    RejectReason,
    best_of,
    clearest,
    phrase_late_warning,
    rejection_reason,
    wanted_attempts,
)
from marstts.synthesis.repair import OTHER_SEED, divide, join_parts
from marstts.synthesis.speech import Take
from marstts.text.segments import Segment

REPAIR_SEEDS = 2
"""Attempts with other seeds at a sentence whose words stayed flawed, before it is divided."""

REPAIR_STREAM, PARTS_STREAM = 1, 2
"""Set the seeds of repairs and of parts apart from those of backoff."""


class Delivery(Enum):
    """What a listener has of a take before it is known whether it is acceptable."""

    NOTHING = "nothing"

    CHECKED = "checked"
    """A part; the take was checked, so that a warning can follow."""

    UNCHECKED = "unchecked"
    """A part; nobody would read a warning."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Attempt:
    """A take to sample."""

    segment: Segment
    top_p: float
    seed: tuple[int, ...]

    rejected: tuple[Take, ...] = ()
    """Takes before it; those that were too short make it longer."""

    may_give_up: bool = False
    """Whether another attempt follows for sure, so that a hopeless take need not be finished."""

    part: int | None = None
    """Number of the part of a divided sentence, from 0."""


@dataclass(eq=False)
class Sentence:
    """A sentence in progress. It depends on no engine, codec or clock."""

    segment: Segment
    top_p: float
    """Nucleus of the first attempt."""
    seed: tuple[int, ...]
    backoff: BackoffConfig
    is_part: bool = False
    """Whether it is a part of a divided sentence, which is not repaired."""
    takes: list[Take] = field(default_factory=list)
    """Takes of the attempts so far, none of them accepted."""
    parts: list[Sentence] = field(default_factory=list)
    kept_parts: dict[int, Take] = field(default_factory=dict)

    def start(self) -> Attempt:
        """The first attempt."""
        return self._attempt(0)

    def advance(self, attempt: Attempt, take: Take, delivery: Delivery = Delivery.NOTHING) -> Take | list[Attempt]:
        """The take to keep, or the attempts to make next; none where those of other parts are still being made."""
        if attempt.part is not None:
            return self._advance_part(attempt.part, attempt, take)
        number = len(self.takes) + 1
        reason = None if delivery is Delivery.UNCHECKED else rejection_reason(take, self.backoff)
        is_kept = delivery is not Delivery.NOTHING or wanted_attempts(take, self.backoff) == 1
        repaired = OTHER_SEED if number > self.backoff.attempts else None
        if reason is None and is_kept:
            return replace(take, attempts=number, repaired=repaired)
        if reason is not None and delivery is Delivery.CHECKED:
            return replace(take, attempts=number, warning=phrase_late_warning(take, reason))
        self.takes.append(take)
        sound = [one for one in self.takes if rejection_reason(one, self.backoff) is None]
        wanted = max((wanted_attempts(one, self.backoff) for one in sound), default=self.backoff.attempts)
        if sound and number >= min(wanted, self.backoff.attempts):
            return replace(clearest(sound), attempts=number, repaired=repaired)
        if number < self.backoff.attempts:
            return [self._attempt(number)]
        return self._repair(best_of(self.takes, self.backoff))

    def _attempt(self, number: int) -> Attempt:
        """An attempt of backoff. Top-p rises with refused takes and level questions, not with unclear takes."""
        refused = sum(one.is_level or rejection_reason(one, self.backoff) is not None for one in self.takes)
        return Attempt(
            segment=self.segment,
            top_p=self.backoff.top_p_schedule(self.top_p)[refused],
            seed=(*self.seed, number),
            rejected=tuple(self.takes),
            may_give_up=number + 1 < self.backoff.attempts,
        )

    def _repair(self, best: Take) -> Take | list[Attempt]:
        """Where the words of the best take are flawed, attempts with other seeds, then at parts; else this take."""
        number = len(self.takes) - self.backoff.attempts
        if self.is_part or not (best.flaws or 0 < number < REPAIR_SEEDS):
            return best
        if number < REPAIR_SEEDS:
            seed = (*self.seed, REPAIR_STREAM, number)
            rejected = tuple(self.takes) if number else ()
            return [Attempt(segment=self.segment, top_p=self.top_p, seed=seed, rejected=rejected)]
        parts = divide(self.segment)
        if len(parts) == 1:
            return best
        self.parts = [
            Sentence(part, self.top_p, (*self.seed, PARTS_STREAM, number), self.backoff, is_part=True)
            for number, part in enumerate(parts)
        ]
        return [replace(part.start(), part=number) for number, part in enumerate(self.parts)]

    def _advance_part(self, number: int, attempt: Attempt, take: Take) -> Take | list[Attempt]:
        """The same for a part; after the last one, the joined parts, or the best take of the whole."""
        following = self.parts[number].advance(replace(attempt, part=None), take)
        if not isinstance(following, Take):
            return [replace(each, part=number) for each in following]
        self.kept_parts[number] = following
        if len(self.kept_parts) < len(self.parts):
            return []
        takes = [self.kept_parts[part] for part in range(len(self.parts))]
        joined = join_parts(self.segment, takes, len(self.takes))
        best = best_of(self.takes, self.backoff)
        return joined if len(joined.flaws) < len(best.flaws) else best


def too_short(takes: Sequence[Take], backoff: BackoffConfig) -> list[Take]:
    """The takes that were refused because they are too short."""
    return [take for take in takes if rejection_reason(take, backoff) is RejectReason.TOO_SHORT]
