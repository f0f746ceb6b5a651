"""The protocol of engines: how a model is run, one patch after another.

Upstream: the engines of a model's package.  Downstream: `loop`, which samples what engines compute.
Shapes: B rows of a batch · P positions of a patch · C codes per level · K recent codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from marstts.errors import CheckpointError

State = TypeVar("State")


class EngineKind(str, Enum):
    """The runtime that computes a model."""

    AUTO = "auto"
    """CUDA where there is a GPU and the codec or a speaker encoder needs PyTorch anyway; else ONNX Runtime where the
    bundle has graphs for it; else PyTorch."""

    ONNX = "onnx"
    TORCH = "torch"
    """PyTorch on the CPU."""

    CUDA = "cuda"
    """PyTorch on a GPU; codec and speaker encoders too."""


class Engine(Protocol[State]):
    """Runs a model for a batch of rows. A `State` is a value: no method changes the one it is given.

    Usage: `start`; then per patch `next_logits` with 0, 1, …, P - 1 tokens in turn, `select` as rows end, `append`,
    `join` as rows are admitted.
    """

    @property
    def layout(self) -> TokenLayout:
        """The tokens of one patch."""
        ...

    def start(self, prompts: Sequence[Any]) -> State:
        """Encode the prompts of B rows and prefill their prefixes, which may differ in length."""
        ...

    def next_logits(self, state: State, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], State]:
        """Compute logits of position p from the tokens (B, p) sampled in this patch so far.

        Returns logits (B, C + 1) over the codes of the position's level, the last column being end of speech, and the
        state after those tokens.
        """
        ...

    def append(self, state: State, patches: NDArray[np.int64]) -> State:
        """Append a finished patch (B, P) to each row: ready for the next one."""
        ...

    def select(self, state: State, rows: Sequence[int]) -> State:
        """Keep only these rows, in this order."""
        ...

    def join(self, states: Sequence[State]) -> State:
        """Concatenate the rows of all states (at least one), each fresh from `start` or `append`."""
        ...


@runtime_checkable
class ConcurrentStart(Protocol):
    """An `Engine` whose `start` may run on any thread, while another one makes patches."""

    @property
    def can_start_concurrently(self) -> bool:
        """Return True where that is so."""
        ...


def can_start_concurrently(engine: object) -> bool:
    """Return True where `engine.start` may run on any thread."""
    return isinstance(engine, ConcurrentStart) and engine.can_start_concurrently


@runtime_checkable
class InPlaceEngine(Protocol[State]):
    """An `Engine` that removes rows without a copy of the others."""

    def keep_rows(self, state: State, rows: Sequence[int]) -> State:
        """Return what `select` returns; `state` may not be used any more."""
        ...


def keep_rows(engine: Engine[Any], state: Any, rows: Sequence[int]) -> Any:
    """Keep only these rows of a state that nobody uses any more, in this order."""
    if fits_protocol(type(engine), InPlaceEngine):
        return cast(InPlaceEngine[Any], engine).keep_rows(state, rows)
    return engine.select(state, rows)


@dataclass(frozen=True, eq=False)
class SamplingInputs:
    """All that decides the next patch of each row, apart from the model's logits."""

    uniforms: NDArray[np.float64]
    """(B, P, 2) random numbers in [0, 1): for each position one to sample with, and one to sample again with."""

    top_p: NDArray[np.float64]
    """(B,) nucleus: 0 = greedy, 1 or more = the full distribution."""

    may_end: NDArray[np.bool_]
    """(B,) False = end of speech is forbidden in this patch."""

    recent: NDArray[np.int64]
    """(B, K) the last L0 codes, oldest first, padded in front with `sampling.NO_ID`."""

    max_ratio: NDArray[np.float64]
    """(B,) a pick that makes up more of the recent codes than this is sampled again."""


@runtime_checkable
class PatchSampler(Protocol[State]):
    """An `Engine` that samples a whole patch faster than position by position."""

    def sample_patch(self, state: State, inputs: SamplingInputs) -> tuple[NDArray[np.int64], State]:
        """Return what `loop.sample_positions` returns, up to rounding of the logits.

        The state is the one after the last `next_logits`: `append` and `select` come next.
        """
        ...


@runtime_checkable
class AttentionEngine(Protocol):
    """An `Engine` that knows where in the text a patch is: its model's cross-attention follows the text."""

    def text_attention(self, state: Any) -> NDArray[np.float32] | None:
        """(B, S or more) attention to each text token of the prompt, by the step that made the last sampled patch.

        The state is the one after `next_logits` or `sample_patch`. Padding gets zeros. None: this model has no heads
        that are aligned.
        """
        ...


def text_attention(engine: Engine[Any], state: Any) -> NDArray[np.float32] | None:
    """`AttentionEngine.text_attention` of an engine that may be none."""
    return cast(AttentionEngine, engine).text_attention(state) if fits_protocol(type(engine), AttentionEngine) else None


@lru_cache(maxsize=256)
def fits_protocol(kind: type, protocol: type) -> bool:
    """Return True where a class has the methods of a protocol; those of an instance alone do not count.

    `isinstance` would take 40 µs for each question, at every step.
    """
    return issubclass(kind, protocol)


def refuse_nan(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The values a model computed; CheckpointError where one is NaN or infinite, as corrupt weights give."""
    if not np.isfinite(values).all():
        raise CheckpointError("the model computed NaN or infinity; its weights are corrupt: export it again")
    return values


# Token layout: how many tokens one decoding step makes, and which codec level each of them belongs to.
# MARS6 (arXiv:2501.05787), Sec. III-B, makes a patch of seven tokens per step.


@dataclass(frozen=True)
class TokenLayout:
    """The tokens of one patch, which is what one decoding step makes."""

    codes_per_level: tuple[int, ...]
    """Codes of each level in one patch, coarse to fine, e.g. (1, 2, 4)."""

    codebook_size: int
    """C, codes of each level. Token = code + level * C."""

    @cached_property
    def patch_size(self) -> int:
        """P, tokens of one patch."""
        return sum(self.codes_per_level)

    @cached_property
    def position_levels(self) -> tuple[int, ...]:
        """Level of each of the P positions, e.g. (0, 1, 1, 2, 2, 2, 2)."""
        return tuple(level for level, count in enumerate(self.codes_per_level) for _ in range(count))

    @property
    def vocab_size(self) -> int:
        """V, codes of all levels and end of speech."""
        return len(self.codes_per_level) * self.codebook_size + 1

    @property
    def eos(self) -> int:
        """The end-of-speech token, last of the vocabulary."""
        return self.vocab_size - 1
