"""Classifier-free guidance: logits for the prompt, extrapolated from the logits for an unconditional prompt.

Upstream: any engine.  Downstream: `generation.loop`, for which this is one more engine.
Deviation from the paper, which has no guidance. A model trained with text dropout (`data.batching`) makes
clearer speech when guided away from its text-dropped logits, as in Koel-TTS (arXiv:2502.05236). The published
checkpoint has two trained null-speaker vectors, and its code can guide away from them (with weight 1: no guidance).
Every prompt takes two adjacent rows of the wrapped engine; a row alone costs nearly as much as two.
Shapes: B rows · P positions of a patch · C codes per level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from marstts.generation.engine import (
    Engine,
    SamplingInputs,
    TokenLayout,
    can_start_concurrently,
    keep_rows,
    text_attention,
)
from marstts.generation.loop import sample_positions
from marstts.mars6.prompt import SPECIAL_TOKENS, Prompt
from marstts.text.tokenizers.bpe import BPE

State = TypeVar("State")


@runtime_checkable
class GuidedPatchSampler(Protocol[State]):
    """A `generation.PatchSampler` that also samples a whole guided patch in one run."""

    def sample_guided_patch(
        self, state: State, inputs: SamplingInputs, weight: float
    ) -> tuple[NDArray[np.int64], State]:
        """Sample a patch from a state whose rows 2b and 2b + 1 are the prompt of draw b and its unconditional variant,
        with weight · (logits of the one) + (1 - weight) · (logits of the other).
        """
        ...


def drop_speaker(identity: NDArray[np.float32], style: NDArray[np.float32]) -> Callable[[Prompt], Prompt]:
    """Replace the speaker of a prompt by trained null embeddings, identity (E1,) and style (E2,)."""
    return lambda prompt: replace(prompt, identity=identity, style=style)


def drop_text(tokenizer: BPE) -> Callable[[Prompt], Prompt]:
    """Remove the text of a prompt: speaker, quality and prefix stay, and of the text the special tokens."""
    special = [ids[0] for ids in map(tokenizer.encode, SPECIAL_TOKENS) if len(ids) == 1]
    return lambda prompt: replace(prompt, text_ids=prompt.text_ids[np.isin(prompt.text_ids, special)])


def guided(engine: Engine[Any], tokenizer: BPE, weight: float) -> Engine[Any]:
    """The engine itself with weight 1, else one that applies guidance."""
    return engine if weight == 1.0 else GuidedEngine(engine, drop_text(tokenizer), weight)


@dataclass(frozen=True, eq=False)
class GuidedEngine:
    """A `PatchSampler`: weight · (logits for the prompt) + (1 - weight) · (logits for its unconditional variant)."""

    engine: Engine[Any]

    unconditional: Callable[[Prompt], Prompt]
    """`drop_speaker` or `drop_text`: prompt -> its unconditional variant."""

    weight: float
    """1 changes nothing; larger weights follow the prompt more closely."""

    @property
    def layout(self) -> TokenLayout:
        """The tokens of one patch."""
        return self.engine.layout

    @property
    def can_start_concurrently(self) -> bool:
        """Return True where the wrapped engine can."""
        return can_start_concurrently(self.engine)

    @property
    def config(self) -> Any:
        """The configuration of the wrapped engine's model."""
        return self.engine.config  # type: ignore[attr-defined]

    def start(self, prompts: Sequence[Prompt]) -> Any:
        """Start two rows per prompt: the prompt and its unconditional variant."""
        return self.engine.start([row for prompt in prompts for row in (prompt, self.unconditional(prompt))])

    def next_logits(self, state: Any, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], Any]:
        """tokens (B, p) -> guided logits (B, C + 1), and the state after the tokens."""
        logits, state = self.engine.next_logits(state, repeat_rows(tokens))
        weight = np.float32(self.weight)
        return weight * logits[::2] + (1 - weight) * logits[1::2], state

    def sample_patch(self, state: Any, inputs: SamplingInputs) -> tuple[NDArray[np.int64], Any]:
        """Sample as `generation.loop.sample_positions` does, in the fastest way that the engine has."""
        if isinstance(self.engine, GuidedPatchSampler):
            return self.engine.sample_guided_patch(state, inputs, self.weight)
        return sample_positions(self, state, inputs)

    def text_attention(self, state: Any) -> NDArray[np.float32] | None:
        """(B, S) of the rows with text, see `generation.engine.AttentionEngine`."""
        attention = text_attention(self.engine, state)
        return None if attention is None else attention[::2]

    def append(self, state: Any, patches: NDArray[np.int64]) -> Any:
        """patches (B, P), finished ones; they are appended to both rows of a pair."""
        return self.engine.append(state, repeat_rows(patches))

    def select(self, state: Any, rows: Sequence[int]) -> Any:
        """Return only these rows."""
        return self.engine.select(state, [index for row in rows for index in (2 * row, 2 * row + 1)])

    def keep_rows(self, state: Any, rows: Sequence[int]) -> Any:
        """Return only these rows; `state` may not be used any more."""
        return keep_rows(self.engine, state, [index for row in rows for index in (2 * row, 2 * row + 1)])

    def join(self, states: Sequence[Any]) -> Any:
        """The rows of all states."""
        return self.engine.join(states)


def repeat_rows(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """(B, any) -> (2B, any), each row followed by its copy."""
    return np.repeat(rows, 2, axis=0)
