"""Classifier-free guidance: what the model says for this prompt, pushed away from what it says for a poorer one.

Upstream: any engine.  Downstream: `mars6.generate`, for which this is one more engine.
Deviation from the paper, which has no guidance. A model that learnt from rows without words (`data.batching`) speaks
more clearly when pushed away from wordless speech, as in Koel-TTS (arXiv:2502.05236). The published checkpoint learnt
two vectors that stand for nobody, and its code can push away from them (with weight 1, that is not at all).
Every prompt takes two rows of the engine beneath, side by side; a row alone costs nearly as much as two.
Shapes: B rows · P positions of a patch · C codes per level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from marstts.mars6.config import Mars6Config
from marstts.mars6.generate import PatchDraws, Stepper, sample_positions
from marstts.mars6.prompt import SPECIAL_TOKENS, Prompt
from marstts.text.bpe import BPE

State = TypeVar("State")


@runtime_checkable
class GuidedPatchStepper(Protocol[State]):
    """A `generate.PatchStepper` that knows a quicker way to a whole guided patch, too."""

    def sample_guided_patch(self, state: State, draws: PatchDraws, weight: float) -> tuple[NDArray[np.int64], State]:
        """As `sample_patch`, for a state whose rows 2b and 2b + 1 are the prompt of draw b and its poorer variant, with
        weight · (logits of the one) + (1 - weight) · (logits of the other).
        """
        ...


def by_nobody(identity: NDArray[np.float32], style: NDArray[np.float32]) -> Callable[[Prompt], Prompt]:
    """The same words, spoken by nobody in particular: identity (E1,) and style (E2,) are learnt stand-ins."""
    return lambda prompt: replace(prompt, identity=identity, style=style)


def without_words(tokenizer: BPE) -> Callable[[Prompt], Prompt]:
    """The same speaker, quality and prefix, whatever is said: only special tokens stay of the text."""
    special = [ids[0] for ids in map(tokenizer.encode, SPECIAL_TOKENS) if len(ids) == 1]
    return lambda prompt: replace(prompt, text_ids=prompt.text_ids[np.isin(prompt.text_ids, special)])


def guided(stepper: Stepper[Any], tokenizer: BPE, weight: float) -> Stepper[Any]:
    """The engine itself with weight 1, else one that keeps nearer to the words of its prompts."""
    return stepper if weight == 1.0 else GuidedEngine(stepper, without_words(tokenizer), weight)


@dataclass(frozen=True, eq=False)
class GuidedEngine:
    """A `generate.PatchStepper`: weight · (logits for the prompt) + (1 - weight) · (logits for a poorer one)."""

    stepper: Stepper[Any]

    poorer: Callable[[Prompt], Prompt]
    """`by_nobody` or `without_words`: what a prompt is without what shall be stressed."""

    weight: float
    """1 changes nothing; larger weights keep nearer to the prompt."""

    @property
    def config(self) -> Mars6Config:
        return self.stepper.config

    def start(self, prompts: Sequence[Prompt]) -> Any:
        """Each prompt, and beside it the same one made poorer."""
        return self.stepper.start([row for prompt in prompts for row in (prompt, self.poorer(prompt))])

    def local_logits(self, state: Any, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], Any]:
        """tokens (B, p) -> guided logits (B, C + 1), and the state that has heard the tokens."""
        logits, state = self.stepper.local_logits(state, twice(tokens))
        weight = np.float32(self.weight)
        return weight * logits[::2] + (1 - weight) * logits[1::2], state

    def sample_patch(self, state: Any, draws: PatchDraws) -> tuple[NDArray[np.int64], Any]:
        """As `generate.sample_positions`, in the quickest way that the engine has."""
        if isinstance(self.stepper, GuidedPatchStepper):
            return self.stepper.sample_guided_patch(state, draws, self.weight)
        return sample_positions(self, state, draws)

    def append(self, state: Any, patches: NDArray[np.int64]) -> Any:
        """patches (B, P), finished ones; both rows of a pair hear them."""
        return self.stepper.append(state, twice(patches))

    def select(self, state: Any, rows: Sequence[int]) -> Any:
        """Only these rows."""
        return self.stepper.select(state, [place for row in rows for place in (2 * row, 2 * row + 1)])

    def join(self, states: Sequence[Any]) -> Any:
        """The rows of all states."""
        return self.stepper.join(states)


def twice(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """(B, any) -> (2B, any), each row beside its copy."""
    return np.repeat(rows, 2, axis=0)
