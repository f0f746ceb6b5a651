"""A listening test of a configuration, ready to be held.

Upstream: `config`, `stimuli`, `design`.  Downstream: `host`, `turk`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from marstts.evaluation.listening.config import Headphones, ListeningTestConfig
from marstts.evaluation.listening.design import Design, Trial, make_design, plan_session
from marstts.evaluation.listening.stimuli import Role, Stimuli, open_stimuli


@dataclass(frozen=True)
class SessionSheet:
    """Implements `host.Sheet` for naturalness and similarity."""

    config: ListeningTestConfig
    stimuli: Stimuli
    design: Design

    @property
    def title(self) -> str:
        return self.config.title

    @property
    def contact(self) -> str:
        return self.config.contact

    @property
    def headphones(self) -> bool:
        return self.config.headphones is not Headphones.ANY

    @property
    def max_listeners(self) -> int:
        return self.config.max_listeners

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def digest(self) -> str:
        shape = f"{self.design} {self.stimuli.digest} {self.stimuli.sample_rate} {self.stimuli.loudness_lufs}"
        return hashlib.sha256(shape.encode()).hexdigest()

    def plan(self, number: int) -> list[Trial]:
        return plan_session(self.design, number)

    def trial_seconds(self, trial: Trial) -> float:
        return self.stimuli.trial_seconds(trial)

    def encode(self, trial: Trial, role: Role) -> bytes:
        return self.stimuli.encode(trial, role)

    @cached_property
    def sample(self) -> bytes:
        """A clean recording, as loud as all others."""
        rooms = [self.stimuli.recordings, self.stimuli.references]
        longest = max((path for room in rooms for path in room.values()), key=lambda path: self.stimuli.seconds[path])
        return self.stimuli.encode_file(longest)

    def volume_sample(self) -> bytes | None:
        return self.sample

    def result(self, trials: Sequence[Trial], choices: Sequence[int]) -> dict[str, Any] | None:
        """Nothing: it would tell the next listener what to say."""
        return None


def open_session(config: ListeningTestConfig) -> SessionSheet:
    """Check the recordings and lay out the test; DataError or ConfigError naming all that is wrong."""
    stimuli = open_stimuli(config)
    return SessionSheet(config, stimuli, make_design(config, stimuli.sentences, sorted(stimuli.recordings)))
