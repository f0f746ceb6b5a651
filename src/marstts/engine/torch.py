"""The PyTorch engine: runs the model as it was trained, on whatever device it lies.

Upstream: `mars6.model.Mars6`.  Downstream: `mars6.generate.generate`, by way of the `Stepper` protocol.
Both decoders keep KV caches, so a patch costs one global and P local steps, whatever went before.
Shapes: B rows · P positions of a patch · C codes per level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marstts.engine.base import collate
from marstts.mars6.config import Mars6Config
from marstts.mars6.model import GlobalState, Mars6, join_states
from marstts.mars6.prompt import Prompt
from marstts.nn.kv_cache import KVCache


@dataclass(frozen=True)
class TorchState:
    """Where B rows stand."""

    patches: GlobalState
    """What the global decoder has heard."""

    tokens: tuple[KVCache, ...] = ()
    """What the local decoder has heard of the patch in the making."""


class TorchEngine:
    """A `Stepper` over a PyTorch MARS6."""

    def __init__(self, model: Mars6) -> None:
        """The model is used as it is, and put in evaluation mode."""
        self.model = model.eval()
        reference = next(model.parameters())
        self.device, self.dtype = reference.device, reference.dtype

    @property
    def config(self) -> Mars6Config:
        return self.model.config

    @torch.inference_mode()
    def start(self, prompts: Sequence[Prompt]) -> TorchState:
        """Encode the texts and hear the prefixes."""
        batch = collate(prompts)
        memory, memory_mask = self.model.encode(
            self.tensor(batch.text_ids),
            self.tensor(batch.text_lengths),
            self.tensor(batch.identity).to(self.dtype),
            self.tensor(batch.style).to(self.dtype),
        )
        prefix, lengths = self.tensor(batch.prefix), self.tensor(batch.prefix_lengths)
        return TorchState(self.model.begin(memory, memory_mask, prefix, lengths))

    @torch.inference_mode()
    def local_logits(self, state: TorchState, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], TorchState]:
        """tokens (B, p) -> logits (B, C + 1) of position p, and the state that has heard the p tokens."""
        last = self.tensor(tokens[:, -1]) if tokens.shape[1] else None
        past = state.tokens if tokens.shape[1] else ()
        logits, past = self.model.local_decoder.step(state.patches.vectors, last, past)
        return logits.float().cpu().numpy(), replace(state, tokens=past)

    @torch.inference_mode()
    def append(self, state: TorchState, patches: NDArray[np.int64]) -> TorchState:
        """patches (B, P), finished ones."""
        return TorchState(self.model.advance(state.patches, self.tensor(patches)))

    @torch.inference_mode()
    def select(self, state: TorchState, rows: Sequence[int]) -> TorchState:
        """Only these rows."""
        index = self.tensor(np.asarray(rows, dtype=np.int64))
        return TorchState(state.patches.select(index), tuple(cache.select(index) for cache in state.tokens))

    @torch.inference_mode()
    def join(self, states: Sequence[TorchState]) -> TorchState:
        """The rows of all states, none of them within a patch."""
        return TorchState(join_states([state.patches for state in states]))

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """On the model's device."""
        return torch.as_tensor(np.ascontiguousarray(array), device=self.device)
