"""The ONNX engine: runs an exported MARS6 with ONNX Runtime and NumPy, no PyTorch.

Upstream: a folder written by `mars6.graphs.export_mars6`.  Downstream: `mars6.generate.generate`, by way of the
`Stepper` protocol.
Both decoders keep KV caches. The global decoder's lie in buffers with room for later patches, so that a patch is
written into its place and nothing is copied; where two states share a buffer, each looks only at the places it knows.
A patch takes two runs: one of the global decoder, and one of the local decoder with all its sampling.
Shapes: B rows · P positions of a patch · C codes per level · D width · M memory places · N places heard by the global
decoder (the start vector and every patch) · L, H, d layers, heads and head width of the decoder concerned. KV: an axis
of two, keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession

from marstts.config import read_config
from marstts.engine.base import PATCH_PADDING, collate
from marstts.errors import CheckpointError
from marstts.mars6.config import Mars6Config
from marstts.mars6.generate import PatchDraws
from marstts.mars6.prompt import Prompt
from marstts.onnx_session import open_session

ROOM = 64
"""Places a buffer grows by, five seconds of speech: more would be read in vain, less copied more often."""


class Memory(NamedTuple):
    """What the global decoder attends to of the texts and speakers."""

    cache: NDArray[np.float32]
    """(KV, L, B, H, M, d)."""

    bias: NDArray[np.float32]
    """(B, M), see `attention_bias`."""

    def select(self, rows: Sequence[int]) -> Memory:
        return Memory(self.cache[:, :, rows], self.bias[rows])

    @classmethod
    def join(cls, memories: Sequence[Memory]) -> Memory:
        """The rows of all, shorter memories padded with what is not attended to."""
        places = max(memory.bias.shape[1] for memory in memories)
        biases = [pad_axis(memory.bias, 1, places, -np.inf) for memory in memories]
        caches = [pad_axis(memory.cache, 4, places) for memory in memories]
        return cls(np.concatenate(caches, axis=2), np.concatenate(biases))


class Buffer:
    """Keys and values of places heard, (KV, L, B, H, room, d), with room for more."""

    def __init__(self, cache: NDArray[np.float32], room: int) -> None:
        """Room for `room` places; the first of them are copied from cache (KV, L, B, H, any, d)."""
        copied = min(cache.shape[4], room)
        self.cache = np.zeros((*cache.shape[:4], room, cache.shape[5]), np.float32)
        self.cache[:, :, :, :, :copied] = cache[:, :, :, :, :copied]
        self.newest: Heard | None = None
        """The cache that knows all that was written here; only it may be extended in place."""


@dataclass(frozen=True, eq=False)
class Heard:
    """A KV cache of the global decoder: a value, though an older one may lie in the same buffer."""

    buffer: Buffer

    places: NDArray[np.int64]
    """(B,) N of each row; what the buffer holds beyond is none of its business."""

    @classmethod
    def nothing(cls, layers: int, batch: int, heads: int, width: int) -> Heard:
        """Before the start vector: no places, and no room for any."""
        return cls(Buffer(np.zeros((2, layers, batch, heads, 0, width), np.float32), 0), np.zeros(batch, np.int64))

    @classmethod
    def copied(cls, cache: NDArray[np.float32], places: NDArray[np.int64]) -> Heard:
        """The first places[b] of cache (KV, L, B, H, any, d), in a buffer of its own with room for one more."""
        heard = cls(Buffer(cache, room_for(int(places.max()) + 1)), places)
        heard.buffer.newest = heard
        return heard

    @property
    def bias(self) -> NDArray[np.float32]:
        """(B, room), see `attention_bias`."""
        return attention_bias(np.arange(self.buffer.cache.shape[4]) < self.places[:, None])

    def extended(self, cache: NDArray[np.float32]) -> Heard:
        """One more place per row, cache (KV, L, B, H, 1, d)."""
        buffer = self.buffer
        if buffer.newest is not self or self.places.max() == buffer.cache.shape[4]:
            buffer = self.copied(buffer.cache, self.places).buffer
        for row, place in enumerate(self.places):
            buffer.cache[:, :, row, :, place] = cache[:, :, row, :, 0]
        buffer.newest = Heard(buffer, self.places + 1)
        return buffer.newest

    def select(self, rows: Sequence[int]) -> Heard:
        """Only these rows."""
        return self.copied(self.buffer.cache[:, :, rows], self.places[rows])

    @classmethod
    def join(cls, parts: Sequence[Heard]) -> Heard:
        """The rows of all, in a buffer of their own with room for one more place."""
        places = np.concatenate([part.places for part in parts])
        room = room_for(int(places.max()) + 1)
        caches = [pad_axis(part.buffer.cache[:, :, :, :, :room], 4, room) for part in parts]
        return cls.copied(np.concatenate(caches, axis=2), places)


def room_for(places: int) -> int:
    """The next multiple of ROOM."""
    return -(-places // ROOM) * ROOM


def pad_axis(array: NDArray[np.float32], axis: int, size: int, value: float = 0.0) -> NDArray[np.float32]:
    """The array with `value` behind it on one axis, up to `size`."""
    padding = [(0, 0)] * array.ndim
    padding[axis] = (0, size - array.shape[axis])
    return np.pad(array, padding, constant_values=value)


def attention_bias(mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """What is added to attention's scores: nothing where the mask is True."""
    return np.where(mask, np.float32(0), np.float32(-np.inf))


@dataclass(frozen=True, eq=False)
class OnnxState:
    """Where B rows stand."""

    vectors: NDArray[np.float32]
    """(B, D): what the next patch is made from."""

    memory: Memory
    heard: Heard
    patch: tuple[NDArray[np.float32], ...] = ()
    """What the local decoder has heard of a patch made position by position: keys and values (B, H, p, d) per layer."""


class OnnxEngine:
    """A `Stepper` over an exported MARS6."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        """Raises ConfigError or CheckpointError where the folder is incomplete or damaged."""
        self.config = read_config(Mars6Config, folder / "config.json")
        self._folder, self._threads = folder, threads
        self._encoder, self._global, self._patch = (
            open_session(folder / f"{name}.onnx", threads) for name in ("encoder", "global", "patch")
        )
        if "cache" not in {value.name for value in self._global.get_outputs()}:
            raise CheckpointError(
                f"{folder / 'global.onnx'}: a graph of an older version; write the bundle's graphs anew with "
                "`marstts optimise BUNDLE --precision float32 --output BUNDLE`"
            )

    @cached_property
    def _local(self) -> InferenceSession:
        """One position at a time is rarely wanted, and its weights take room."""
        return open_session(self._folder / "local.onnx", self._threads)

    def start(self, prompts: Sequence[Prompt]) -> OnnxState:
        """Encode the texts and hear the prefixes."""
        batch = collate(prompts)
        keys, values, mask = self._encoder.run(
            None,
            {
                "text_ids": batch.text_ids,
                "text_lengths": batch.text_lengths,
                "identity": batch.identity,
                "style": batch.style,
            },
        )
        memory = Memory(np.stack([keys, values]), attention_bias(mask))
        patches = np.pad(batch.prefix, ((0, 0), (1, 0), (0, 0)), constant_values=PATCH_PADDING)  # the start vector
        layers, rows, heads, _, width = keys.shape
        vectors, cache = self._hear(patches, Heard.nothing(layers, rows, heads, width), memory)
        heard = Heard.copied(cache, batch.prefix_lengths + 1)
        return OnnxState(vectors[np.arange(rows), batch.prefix_lengths], memory, heard)

    def local_logits(self, state: OnnxState, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], OnnxState]:
        """tokens (B, p) -> logits (B, C + 1) of position p, and the state that has heard the p tokens."""
        batch, position = tokens.shape
        past = state.patch if position else self._empty_patch(batch)
        assert past, "tokens are heard one after the other"
        logits, *grown = self._local.run(
            None,
            {
                "position": np.array(position),
                "vectors": state.vectors,
                "tokens": tokens[:, -1] if position else np.zeros(batch, np.int64),
                **{f"past.{index}": cache for index, cache in enumerate(past)},
            },
        )
        return logits, replace(state, patch=tuple(grown))

    def sample_patch(self, state: OnnxState, draws: PatchDraws) -> tuple[NDArray[np.int64], OnnxState]:
        """As `generate.sample_positions`, in one run: tokens (B, P), and the state."""
        return self.sample_guided_patch(state, draws, weight=1.0)

    def sample_guided_patch(
        self, state: OnnxState, draws: PatchDraws, weight: float
    ) -> tuple[NDArray[np.int64], OnnxState]:
        """The same for a state with two rows (or, with weight 1, one) to each draw, see `engine.guided`."""
        (drawn,) = self._patch.run(
            None,
            {
                "vectors": state.vectors,
                "guidance": np.array(weight, np.float32),
                "uniforms": draws.uniforms,
                "top_p": draws.top_p,
                "may_end": draws.may_end,
                "recent": draws.recent,
                "max_ratio": draws.max_ratio,
            },
        )
        tokens = np.full((len(draws.uniforms), self.config.patch_size), self.config.eos, np.int64)
        tokens[:, : len(drawn)] = drawn[:, :, 0].T
        return tokens, state

    def append(self, state: OnnxState, patches: NDArray[np.int64]) -> OnnxState:
        """patches (B, P), finished ones."""
        vectors, cache = self._hear(patches[:, None], state.heard, state.memory)
        return OnnxState(vectors[:, 0], state.memory, state.heard.extended(cache))

    def select(self, state: OnnxState, rows: Sequence[int]) -> OnnxState:
        """Only these rows."""
        patch = tuple(cache[rows] for cache in state.patch)
        return OnnxState(state.vectors[rows], state.memory.select(rows), state.heard.select(rows), patch)

    def join(self, states: Sequence[OnnxState]) -> OnnxState:
        """The rows of all states, none of them within a patch."""
        return OnnxState(
            np.concatenate([state.vectors for state in states]),
            Memory.join([state.memory for state in states]),
            Heard.join([state.heard for state in states]),
        )

    def _hear(
        self, patches: NDArray[np.int64], heard: Heard, memory: Memory
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Run the global decoder over patches (B, T, P) after what was heard, see `mars6.decoder_graphs`."""
        inputs: dict[str, NDArray[Any]] = {
            "patches": patches,
            "first": heard.places,
            "seen_bias": heard.bias,
            "memory_bias": memory.bias,
        }
        for kind, name in enumerate(("keys", "values")):
            for layer in range(self.config.global_layers):
                inputs[f"seen_{name}.{layer}"] = heard.buffer.cache[kind, layer]
                inputs[f"memory_{name}.{layer}"] = memory.cache[kind, layer]
        vectors, cache = self._global.run(None, inputs)
        return vectors, cache

    def _empty_patch(self, batch: int) -> tuple[NDArray[np.float32], ...]:
        config = self.config
        nothing = np.zeros((batch, config.local_heads, 0, config.width // config.local_heads), np.float32)
        return (nothing,) * (2 * config.local_layers)
