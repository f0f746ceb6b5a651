"""Classifier-free guidance: what the model says for this speaker, pushed away from what it says for nobody.

Upstream: any engine.  Downstream: `mars6.generate.generate`, for which this is one more engine.
Deviation from the paper, which has no guidance: the published checkpoint learnt two vectors that stand for nobody, and
its code can use them (with weight 1, that is not at all). Every patch costs twice the time.
Shapes: B rows · P positions of a patch · C codes per level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.mars6.config import Mars6Config
from marstts.mars6.generate import Stepper
from marstts.mars6.prompt import Prompt


@dataclass(frozen=True)
class GuidedState:
    """Two utterances side by side that hear the same tokens."""

    somebody: Any
    nobody: Any


@dataclass(frozen=True, eq=False)
class GuidedEngine:
    """A `Stepper`: weight · (logits for the speaker) + (1 - weight) · (logits for nobody)."""

    stepper: Stepper[Any]

    unknown_identity: NDArray[np.float32]
    """(E1,), the learnt stand-in for an identity."""

    unknown_style: NDArray[np.float32]
    """(E2,)."""

    weight: float
    """1 changes nothing; larger weights keep nearer to the speaker."""

    @property
    def config(self) -> Mars6Config:
        return self.stepper.config

    def start(self, prompts: Sequence[Prompt]) -> GuidedState:
        """The same words and prefixes twice."""
        nobody = [replace(prompt, identity=self.unknown_identity, style=self.unknown_style) for prompt in prompts]
        return GuidedState(self.stepper.start(prompts), self.stepper.start(nobody))

    def local_logits(self, state: GuidedState, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], GuidedState]:
        """tokens (B, p) -> guided logits (B, C + 1), and the state that has heard the tokens."""
        logits, somebody = self.stepper.local_logits(state.somebody, tokens)
        without, nobody = self.stepper.local_logits(state.nobody, tokens)
        weight = np.float32(self.weight)
        return weight * logits + (1 - weight) * without, GuidedState(somebody, nobody)

    def append(self, state: GuidedState, patches: NDArray[np.int64]) -> GuidedState:
        """patches (B, P), finished ones."""
        return GuidedState(self.stepper.append(state.somebody, patches), self.stepper.append(state.nobody, patches))

    def select(self, state: GuidedState, rows: Sequence[int]) -> GuidedState:
        """Only these rows."""
        return GuidedState(self.stepper.select(state.somebody, rows), self.stepper.select(state.nobody, rows))

    def join(self, states: Sequence[GuidedState]) -> GuidedState:
        """The rows of all states."""
        somebody, nobody = [state.somebody for state in states], [state.nobody for state in states]
        return GuidedState(self.stepper.join(somebody), self.stepper.join(nobody))
