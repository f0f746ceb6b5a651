"""The parts of MARS5 that a runtime computes, as protocols: PyTorch (`engines.torch`) or graphs (`engines.onnx`).

Upstream: a model's folder.  Downstream: `engines.tokens` (the AR), `pipeline` (speaker vectors, the NAR).
All that crosses this interface is arrays, so everything else of MARS5 exists once.
Shapes: B rows · T tokens or frames · R reference frames · L levels · D width · V joint vocabulary · K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from marstts.mars5.config import CodecLMConfig, Mars5Config, ResidualTransformerConfig
from marstts.mars5.steps import Schedule
from marstts.mars5.text import JointVocabulary

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StepInputs:
    """Inputs of one reverse step of B rows, but for the codes and the random numbers."""

    lengths: Ids
    """(B,) frames."""

    text_ids: Ids
    """(B, S)."""

    text_lengths: Ids
    """(B,)."""

    speaker: Floats
    """(B, D)."""

    guidance: float
    temperature: float

    num_legal: int
    """Classes from this one on are never drawn."""


class RunnableAR(Protocol):
    """The autoregressive model in a runtime; a state is a value."""

    @property
    def config(self) -> CodecLMConfig: ...

    def encode_speaker(self, codes: Ids, lengths: Ids) -> Floats:
        """Codes (B, R, L), lengths (B,) -> speaker vectors (B, D)."""
        ...

    def begin(self, tokens: Ids, lengths: Ids, speakers: Floats) -> Any:
        """The state after prompts: tokens (B, T) padded at the end, lengths (B,), speakers (B, D)."""
        ...

    def advance(self, state: Any, tokens: Ids) -> Any:
        """The state after one more token (B,)."""
        ...

    def logits(self, state: Any) -> Floats:
        """(B, V) of the next joint id, a copy; CheckpointError where one is no number."""
        ...

    def select(self, state: Any, rows: Sequence[int]) -> Any:
        """The state of only these rows, in this order."""
        ...

    def join(self, states: Sequence[Any]) -> Any:
        """The rows of all states, at least one."""
        ...


class RunnableNAR(Protocol):
    """The non-autoregressive model in a runtime."""

    @property
    def config(self) -> ResidualTransformerConfig: ...

    def encode_speaker(self, codes: Ids, lengths: Ids) -> Floats:
        """Codes (B, R, L), lengths (B,) -> speaker vectors (B, D)."""
        ...

    def step(self, codes: Ids, schedule: Schedule, step: int, inputs: StepInputs, uniforms: Floats | None) -> Ids:
        """Codes (B, T, L) of the step before, drawn from those at `step` by uniforms (B, T, L, K).

        Without uniforms the most probable ones. CheckpointError where a logit is no number.
        """
        ...


@dataclass(frozen=True, eq=False)
class RunnableModels:
    """A MARS5 in a runtime."""

    ar: RunnableAR
    nar: RunnableNAR
    vocabulary: JointVocabulary

    @property
    def config(self) -> Mars5Config:
        """The sizes of both models."""
        return Mars5Config(ar=self.ar.config, nar=self.nar.config)
