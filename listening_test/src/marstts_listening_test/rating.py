"""A listening test of naturalness and similarity, planned and ready to be served.

Upstream: `config`, `stimuli`, `design`.  Downstream: `service`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from marstts_listening_test.config import Headphones, ListeningTestConfig
from marstts_listening_test.design import Design, ListeningTrial, make_design, plan_session
from marstts_listening_test.stimuli import Stimuli, open_stimuli


@dataclass(frozen=True)
class RatingPlan:
    """A `service.TestPlan` for naturalness and similarity."""

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
        content = f"{self.design} {self.stimuli.digest} {self.stimuli.sample_rate} {self.stimuli.loudness_lufs}"
        return hashlib.sha256(content.encode()).hexdigest()

    def plan(self, number: int) -> list[ListeningTrial]:
        return plan_session(self.design, number)

    @cached_property
    def longest_sample(self) -> bytes:
        """The longest clean recording, as loud as all others."""
        folders = [self.stimuli.recordings, self.stimuli.references]
        paths = (path for folder in folders for path in folder.values())
        return self.stimuli.encode_file(max(paths, key=lambda path: self.stimuli.seconds[path]))

    def volume_sample(self) -> bytes | None:
        return self.longest_sample

    def result(self, trials: Sequence[ListeningTrial], choices: Sequence[int]) -> dict[str, Any] | None:
        """None: a result would bias the next listener."""
        return None


def open_rating_plan(config: ListeningTestConfig) -> RatingPlan:
    """Check the recordings and plan the test; DataError or ConfigError naming everything that is wrong."""
    stimuli = open_stimuli(config)
    return RatingPlan(config, stimuli, make_design(config, stimuli.sentences, sorted(stimuli.recordings)))
