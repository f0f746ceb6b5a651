"""Classifier-free guidance: what the model says for this prompt, pushed away from what it says for a poorer one.

Upstream: any engine.  Downstream: `mars6.generate.generate`, for which this is one more engine.
Deviation from the paper, which has no guidance: the published checkpoint learnt two vectors that stand for nobody, and
its code can push away from them (with weight 1, that is not at all); mini learnt from rows without words, and speaks
more clearly when pushed away from wordless speech (as in Koel-TTS, arXiv:2502.05236). Every patch costs twice the time.
Shapes: B rows · P positions of a patch · C codes per level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.mars6.config import Mars6Config
from marstts.mars6.generate import Stepper
from marstts.mars6.prompt import Prompt, prompt_string
from marstts.text.bpe import BPE


def by_nobody(identity: NDArray[np.float32], style: NDArray[np.float32]) -> Callable[[Prompt], Prompt]:
    """The same words, spoken by nobody in particular: identity (E1,) and style (E2,) are the learnt stand-ins."""
    return lambda prompt: replace(prompt, identity=identity, style=style)


def without_words(tokenizer: BPE, quality: int | None) -> Callable[[Prompt], Prompt]:
    """The same speaker and prefix, whatever is said."""
    text_ids = np.asarray(tokenizer.encode(prompt_string("", quality=quality)), dtype=np.int64)
    return lambda prompt: replace(prompt, text_ids=text_ids)


@dataclass(frozen=True)
class GuidedState:
    """Two utterances side by side that hear the same tokens."""

    wanted: Any
    poorer: Any


@dataclass(frozen=True, eq=False)
class GuidedEngine:
    """A `Stepper`: weight · (logits for the prompt) + (1 - weight) · (logits for a poorer one)."""

    stepper: Stepper[Any]

    poorer: Callable[[Prompt], Prompt]
    """`by_nobody` or `without_words`: what a prompt is without what shall be stressed."""

    weight: float
    """1 changes nothing; larger weights keep nearer to the prompt."""

    @property
    def config(self) -> Mars6Config:
        return self.stepper.config

    def start(self, prompts: Sequence[Prompt]) -> GuidedState:
        """The prompts, and the same ones made poorer."""
        return GuidedState(self.stepper.start(prompts), self.stepper.start([self.poorer(prompt) for prompt in prompts]))

    def local_logits(self, state: GuidedState, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], GuidedState]:
        """tokens (B, p) -> guided logits (B, C + 1), and the state that has heard the tokens."""
        logits, wanted = self.stepper.local_logits(state.wanted, tokens)
        without, poorer = self.stepper.local_logits(state.poorer, tokens)
        weight = np.float32(self.weight)
        return weight * logits + (1 - weight) * without, GuidedState(wanted, poorer)

    def append(self, state: GuidedState, patches: NDArray[np.int64]) -> GuidedState:
        """patches (B, P), finished ones."""
        return GuidedState(self.stepper.append(state.wanted, patches), self.stepper.append(state.poorer, patches))

    def select(self, state: GuidedState, rows: Sequence[int]) -> GuidedState:
        """Only these rows."""
        return GuidedState(self.stepper.select(state.wanted, rows), self.stepper.select(state.poorer, rows))

    def join(self, states: Sequence[GuidedState]) -> GuidedState:
        """The rows of all states."""
        wanted, poorer = [state.wanted for state in states], [state.poorer for state in states]
        return GuidedState(self.stepper.join(wanted), self.stepper.join(poorer))
