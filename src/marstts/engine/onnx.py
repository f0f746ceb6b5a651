"""The ONNX engine: runs an exported MARS6 with ONNX Runtime and NumPy, no PyTorch.

Upstream: a folder written by `mars6.graphs.export_mars6`.  Downstream: `mars6.generate.generate`, by way of the
`Stepper` protocol.
Both decoders keep KV caches. The global decoder's lie in buffers with room for later patches, so that a patch is
written into its place and nothing is copied; where two states share a buffer, each looks only at the places it knows.
Shapes: B rows · P positions of a patch · C codes per level · D width · M memory places · N places heard by the global
decoder (the start vector and every patch) · L, H, d layers, heads and head width of the decoder concerned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marstts.config import read_config
from marstts.engine.base import PATCH_PADDING, collate
from marstts.mars6.config import Mars6Config
from marstts.mars6.prompt import Prompt
from marstts.onnx_session import open_session

ROOM = 64
"""Places a buffer grows by when it is full: five seconds of speech."""


class Memory(NamedTuple):
    """What the global decoder attends to of the texts and speakers."""

    keys: NDArray[np.float32]
    """(L, B, H, M, d)."""

    values: NDArray[np.float32]
    mask: NDArray[np.bool_]
    """(B, M) True = attend."""

    def select(self, rows: Sequence[int]) -> Memory:
        return Memory(self.keys[:, rows], self.values[:, rows], self.mask[rows])

    @classmethod
    def join(cls, memories: Sequence[Memory]) -> Memory:
        """The rows of all, shorter memories padded with what is not attended to."""
        places = max(memory.mask.shape[1] for memory in memories)
        masks = [np.pad(memory.mask, ((0, 0), (0, places - memory.mask.shape[1]))) for memory in memories]
        return cls(
            side_by_side([memory.keys for memory in memories], places),
            side_by_side([memory.values for memory in memories], places),
            np.concatenate(masks),
        )


class Buffer:
    """Keys and values (L, B, H, room, d) of places heard, with room for more."""

    def __init__(self, keys: NDArray[np.float32], values: NDArray[np.float32], room: int) -> None:
        """Room for `room` places; the first of them are copied from keys and values (L, B, H, any, d)."""
        layers, batch, heads, given, width = keys.shape
        copied = min(given, room)
        self.keys, self.values = np.zeros((2, layers, batch, heads, room, width), np.float32)
        self.keys[:, :, :, :copied], self.values[:, :, :, :copied] = keys[:, :, :, :copied], values[:, :, :, :copied]
        self.newest: Heard | None = None
        """The cache that knows all that was written here; only it may be extended in place."""


@dataclass(frozen=True, eq=False)
class Heard:
    """A KV cache of the global decoder: a value, though an older one may lie in the same buffer."""

    buffer: Buffer
    places: NDArray[np.int64]
    """(B,) N of each row; what the buffer holds beyond is none of its business."""

    @classmethod
    def copied(cls, keys: NDArray[np.float32], values: NDArray[np.float32], places: NDArray[np.int64]) -> Heard:
        """The first places[b] of keys and values (L, B, H, any, d), in a buffer of its own with room for one more."""
        heard = cls(Buffer(keys, values, room_for(int(places.max()) + 1)), places)
        heard.buffer.newest = heard
        return heard

    @property
    def mask(self) -> NDArray[np.bool_]:
        """(B, room), True where a row has heard something."""
        return np.arange(self.buffer.keys.shape[3]) < self.places[:, None]

    def extended(self, keys: NDArray[np.float32], values: NDArray[np.float32]) -> Heard:
        """One more place per row, keys and values (L, B, H, 1, d)."""
        buffer = self.buffer
        if buffer.newest is not self or self.places.max() == buffer.keys.shape[3]:
            buffer = self.copied(buffer.keys, buffer.values, self.places).buffer
        rows = np.arange(len(self.places))
        buffer.keys[:, rows, :, self.places] = keys[:, :, :, 0].swapaxes(0, 1)
        buffer.values[:, rows, :, self.places] = values[:, :, :, 0].swapaxes(0, 1)
        buffer.newest = Heard(buffer, self.places + 1)
        return buffer.newest

    def select(self, rows: Sequence[int]) -> Heard:
        """Only these rows."""
        return self.copied(self.buffer.keys[:, rows], self.buffer.values[:, rows], self.places[rows])

    @classmethod
    def join(cls, parts: Sequence[Heard]) -> Heard:
        """The rows of all, in a buffer of their own with room for one more place."""
        places = np.concatenate([part.places for part in parts])
        room = room_for(int(places.max()) + 1)
        keys = side_by_side([part.buffer.keys[:, :, :, :room] for part in parts], room)
        values = side_by_side([part.buffer.values[:, :, :, :room] for part in parts], room)
        return cls.copied(keys, values, places)


def room_for(places: int) -> int:
    """The next multiple of ROOM."""
    return -(-places // ROOM) * ROOM


def side_by_side(arrays: Sequence[NDArray[np.float32]], places: int) -> NDArray[np.float32]:
    """(L, B, H, any, d) each -> (L, all B, H, places, d), zeros after the shorter ones."""
    wide = [np.pad(array, ((0, 0), (0, 0), (0, 0), (0, places - array.shape[3]), (0, 0))) for array in arrays]
    return np.concatenate(wide, axis=1)


class LocalCache(NamedTuple):
    """What the local decoder has heard of the patch in the making: a few kilobytes, made anew for every token."""

    keys: NDArray[np.float32]
    """(L, B, H, p, d)."""

    values: NDArray[np.float32]

    def select(self, rows: Sequence[int]) -> LocalCache:
        return LocalCache(self.keys[:, rows], self.values[:, rows])


@dataclass(frozen=True, eq=False)
class OnnxState:
    """Where B rows stand."""

    vectors: NDArray[np.float32]
    """(B, D): what the next patch is made from."""

    memory: Memory
    heard: Heard
    patch: LocalCache | None = None


class OnnxEngine:
    """A `Stepper` over an exported MARS6."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        """Raises ConfigError or CheckpointError where the folder is incomplete or damaged."""
        self.config = read_config(Mars6Config, folder / "config.json")
        self._encoder = open_session(folder / "encoder.onnx", threads)
        self._global = open_session(folder / "global.onnx", threads)
        self._local = open_session(folder / "local.onnx", threads)

    def start(self, prompts: Sequence[Prompt]) -> OnnxState:
        """Encode the texts and hear the prefixes."""
        batch = collate(prompts)
        memory = Memory(
            *self._encoder.run(
                None,
                {
                    "text_ids": batch.text_ids,
                    "text_lengths": batch.text_lengths,
                    "identity": batch.identity,
                    "style": batch.style,
                },
            )
        )
        patches = np.pad(batch.prefix, ((0, 0), (1, 0), (0, 0)), constant_values=PATCH_PADDING)  # the start vector
        nothing = np.zeros((*memory.keys.shape[:3], 0, memory.keys.shape[4]), np.float32)
        causal = np.tril(np.ones((len(prompts), patches.shape[1], patches.shape[1]), bool))
        first = np.zeros(len(prompts), np.int64)
        vectors, keys, values = self._hear(patches, first, nothing, nothing, causal, memory)
        heard = Heard.copied(keys, values, batch.prefix_lengths + 1)
        return OnnxState(vectors[np.arange(len(prompts)), batch.prefix_lengths], memory, heard)

    def local_logits(self, state: OnnxState, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], OnnxState]:
        """tokens (B, p) -> logits (B, C + 1) of position p, and the state that has heard the p tokens."""
        batch, position = tokens.shape
        past = state.patch if position else self._empty_patch(batch)
        assert past is not None, "tokens are heard one after the other"
        logits, keys, values = self._local.run(
            None,
            {
                "position": np.array([position]),
                "vectors": state.vectors,
                "tokens": tokens[:, -1] if position else np.zeros(batch, np.int64),
                "seen_keys": past.keys,
                "seen_values": past.values,
            },
        )
        return logits, replace(state, patch=LocalCache(keys, values))

    def append(self, state: OnnxState, patches: NDArray[np.int64]) -> OnnxState:
        """patches (B, P), finished ones."""
        heard = state.heard
        mask = np.pad(heard.mask, ((0, 0), (0, 1)), constant_values=True)[:, None]  # the patch itself comes last
        vectors, keys, values = self._hear(
            patches[:, None], heard.places, heard.buffer.keys, heard.buffer.values, mask, state.memory
        )
        return OnnxState(vectors[:, 0], state.memory, heard.extended(keys, values))

    def select(self, state: OnnxState, rows: Sequence[int]) -> OnnxState:
        """Only these rows."""
        patch = None if state.patch is None else state.patch.select(rows)
        return OnnxState(state.vectors[rows], state.memory.select(rows), state.heard.select(rows), patch)

    def join(self, states: Sequence[OnnxState]) -> OnnxState:
        """The rows of all states, none of them within a patch."""
        return OnnxState(
            np.concatenate([state.vectors for state in states]),
            Memory.join([state.memory for state in states]),
            Heard.join([state.heard for state in states]),
        )

    def _hear(
        self,
        patches: NDArray[np.int64],
        first: NDArray[np.int64],
        seen_keys: NDArray[np.float32],
        seen_values: NDArray[np.float32],
        mask: NDArray[np.bool_],
        memory: Memory,
    ) -> list[NDArray[np.float32]]:
        """Run the global decoder, see `mars6.graphs.GlobalGraph`."""
        return self._global.run(
            None,
            {
                "patches": patches,
                "first": first,
                "seen_keys": seen_keys,
                "seen_values": seen_values,
                "mask": mask,
                "memory_keys": memory.keys,
                "memory_values": memory.values,
                "memory_mask": memory.mask,
            },
        )

    def _empty_patch(self, batch: int) -> LocalCache:
        config = self.config
        head_width = config.width // config.local_heads
        nothing = np.zeros((config.local_layers, batch, config.local_heads, 0, head_width), np.float32)
        return LocalCache(nothing, nothing)
