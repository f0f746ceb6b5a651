"""The PyTorch engine: runs the model as it was trained, on the model's device.

Upstream: `mars6.model.Mars6`.  Downstream: `generation.loop`, by way of the `Engine` protocol.
Both decoders keep KV caches, so a patch costs one global and P local steps, whatever the number of earlier patches.
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

from marstts.generation.engine import TokenLayout, refuse_nan
from marstts.mars6.config import Mars6Config
from marstts.mars6.model import GlobalState, Mars6, join_states
from marstts.mars6.prompt import Mars6Prompt, PromptBatch, collate
from marstts.nn.attention import KVCache


@dataclass(frozen=True)
class TorchState:
    """The state of B rows."""

    patches: GlobalState
    """State of the global decoder: KV caches and the last vectors."""

    tokens: tuple[KVCache, ...] = ()
    """KV caches of the local decoder within the unfinished patch."""


class ModelOnDevice:
    """A PyTorch MARS6 where it lies, and what all its engines do with it."""

    def __init__(self, model: Mars6) -> None:
        """The model is used as it is, and put in evaluation mode."""
        self.model = model.eval()
        reference = next(model.parameters())
        self.device, self.dtype = reference.device, reference.dtype

    @property
    def layout(self) -> TokenLayout:
        """The tokens of one patch."""
        return self.model.config.layout

    @property
    def config(self) -> Mars6Config:
        """The model's configuration."""
        return self.model.config

    def encode(self, batch: PromptBatch) -> tuple[Tensor, Tensor]:
        """Run the encoder: the memory (B, S, D) and which of it are not padding (B, S)."""
        return self.model.encode(
            self.tensor(batch.text_ids),
            self.tensor(batch.text_lengths),
            self.tensor(batch.identity).to(self.dtype),
            self.tensor(batch.style).to(self.dtype),
        )

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """Copy an array to the model's device."""
        return torch.as_tensor(np.ascontiguousarray(array), device=self.device)


class TorchEngine(ModelOnDevice):
    """An `Engine` over a PyTorch MARS6."""

    @torch.inference_mode()
    def start(self, prompts: Sequence[Mars6Prompt]) -> TorchState:
        """Encode the texts and run the prefixes through the global decoder."""
        batch = collate(prompts)
        memory, memory_mask = self.encode(batch)
        prefix, lengths = self.tensor(batch.prefix), self.tensor(batch.prefix_lengths)
        return TorchState(self.model.begin(memory, memory_mask, prefix, lengths))

    @torch.inference_mode()
    def next_logits(self, state: TorchState, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], TorchState]:
        """tokens (B, p) -> logits (B, C + 1) of position p, and the state after the p tokens."""
        last = self.tensor(tokens[:, -1]) if tokens.shape[1] else None
        past = state.tokens if tokens.shape[1] else ()
        logits, past = self.model.local_decoder.step(state.patches.vectors, last, past)
        return refuse_nan(logits.float().cpu().numpy()), replace(state, tokens=past)

    def text_attention(self, state: TorchState) -> NDArray[np.float32] | None:
        """(B, S) of the aligned heads, see `generation.engine.AttentionEngine`."""
        attention = state.patches.attention
        return None if attention is None else attention[:, self.model.num_slots :].float().cpu().numpy()

    @torch.inference_mode()
    def append(self, state: TorchState, patches: NDArray[np.int64]) -> TorchState:
        """patches (B, P), finished ones."""
        return TorchState(self.model.advance(state.patches, self.tensor(patches)))

    @torch.inference_mode()
    def select(self, state: TorchState, rows: Sequence[int]) -> TorchState:
        """Return only these rows."""
        index = self.tensor(np.asarray(rows, dtype=np.int64))
        return TorchState(state.patches.select(index), tuple(cache.select(index) for cache in state.tokens))

    @torch.inference_mode()
    def join(self, states: Sequence[TorchState]) -> TorchState:
        """The rows of all states, none of them within a patch."""
        return TorchState(join_states([state.patches for state in states]))
