"""The ONNX engine: runs an exported MARS6 with ONNX Runtime and NumPy, no PyTorch.

Upstream: a folder written by `mars6.export.graphs.export_mars6`.  Downstream: `generation.loop`, by way of the `Engine`
protocol.
Both decoders keep KV caches. Those of the global decoder lie in buffers with room for later rows and patches, see
`row_caches`.
A patch takes two runs: one of the global decoder, and one of the local decoder with all its sampling.
Shapes: B rows · P positions of a patch · C codes per level · D width · M memory positions · N positions in the KV cache
of the global decoder (the start vector and every patch) · L, H, d layers, heads and head width of that decoder. KV: an
axis of two, keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession

from marstts.errors import CheckpointError
from marstts.generation.engine import SamplingInputs, TokenLayout, refuse_nan
from marstts.io.config import read_config
from marstts.io.reading import printable_name
from marstts.mars6.config import NUM_SLOTS, Mars6Config
from marstts.mars6.engines.row_caches import DecoderKVCache, Memory, attention_bias, fit_axis
from marstts.mars6.prompt import PATCH_PADDING, Mars6Prompt, collate
from marstts.onnx.session import Shape, check_signature, fits, open_session


@dataclass(frozen=True, eq=False)
class OnnxState:
    """The state of B rows."""

    vectors: NDArray[np.float32]
    """(B, D): what the next patch is made from."""

    memory: Memory
    cache: DecoderKVCache
    attention: NDArray[np.float32] | None = None
    """(B, M) of the aligned heads at the patch that `vectors` make; None without such heads."""
    patch: tuple[NDArray[np.float32], ...] = ()
    """The local decoder's cache within a patch made position by position: keys and values (B, H, p, d) per layer."""


def graph_inputs(config: Mars6Config) -> dict[str, dict[str, Shape]]:
    """Shapes of the inputs of each graph by name; None is any size."""
    cache = (None, config.heads, None, config.width // config.heads)
    caches = kv_inputs(config)
    return {
        "encoder": {
            "text_ids": (None, None),
            "text_lengths": (None,),
            "identity": (None, config.identity_size),
            "style": (None, config.style_size),
        },
        "global": {
            "patches": (None, None, config.patch_size),
            "first": (None,),
            "seen_bias": (None, None),
            "memory_bias": (None, None),
            **dict.fromkeys(caches, cache),
        },
        "patch": {
            "vectors": (None, config.width),
            "uniforms": (None, config.patch_size, 2),
            "top_p": (None,),
            "may_end": (None,),
            "recent": (None, None),
            "max_ratio": (None,),
        },
    }


KV_INPUTS = ("seen_keys", "seen_values", "memory_keys", "memory_values")
"""Inputs of the global decoder, one of each for every layer."""


def kv_inputs(config: Mars6Config) -> list[str]:
    """Names of these inputs, kind by kind."""
    return [f"{kind}.{layer}" for kind in KV_INPUTS for layer in range(config.global_layers)]


class OnnxEngine:
    """An `Engine` over an exported MARS6."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        """Raises ConfigError or CheckpointError where the folder is incomplete or corrupt."""
        self.config = read_config(Mars6Config, folder / "config.json", CheckpointError)
        self._folder, self._threads, self._kv_inputs = folder, threads, kv_inputs(self.config)
        self._encoder, self._global, self._patch = (
            open_session(folder / f"{name}.onnx", threads) for name in ("encoder", "global", "patch")
        )
        global_outputs = {value.name for value in self._global.get_outputs()}
        patch_inputs = {value.name for value in self._patch.get_inputs()}
        if "cache" not in global_outputs or "guidance" in patch_inputs:
            raise CheckpointError(
                f"{printable_name(folder)}: graphs of an older version; write them again with "
                "`marstts bundle upgrade BUNDLE --output NEW_BUNDLE`"
            )
        sessions = {"encoder": self._encoder, "global": self._global, "patch": self._patch}
        for name, expected in graph_inputs(self.config).items():
            check_signature(folder / f"{name}.onnx", "input", sessions[name].get_inputs(), expected)

    @cached_property
    def _local(self) -> InferenceSession:
        """The graph of one position, opened when first used: few callers need it, and its weights take memory."""
        return open_session(self._folder / "local.onnx", self._threads)

    @property
    def layout(self) -> TokenLayout:
        """The tokens of one patch."""
        return self.config.layout

    @property
    def can_start_concurrently(self) -> bool:
        """Return True: ONNX Runtime serves several threads at a time."""
        return True

    def start(self, prompts: Sequence[Mars6Prompt]) -> OnnxState:
        """Encode the texts and run the prefixes through the global decoder, one prompt after the other."""
        states = [self._start_alone(prompt) for prompt in prompts]
        return states[0] if len(states) == 1 else self.join(states)

    def _start_alone(self, prompt: Mars6Prompt) -> OnnxState:
        """The state of one row, whose numbers no other prompt may round differently."""
        batch, config = collate([prompt]), self.config
        kept = (config.global_layers, 1, config.heads, None, config.width // config.heads)
        keys, values, mask = self._run(
            "encoder",
            self._encoder,
            {
                "text_ids": batch.text_ids,
                "text_lengths": batch.text_lengths,
                "identity": batch.identity,
                "style": batch.style,
            },
            [kept, kept, (1, None)],
        )
        if not keys.shape[3] == values.shape[3] == mask.shape[1]:
            raise self._mismatch("encoder")
        memory = Memory.of(np.stack([keys, values]), attention_bias(mask))
        patches = np.pad(batch.prefix, ((0, 0), (1, 0), (0, 0)), constant_values=PATCH_PADDING)  # the start vector
        nothing = DecoderKVCache.empty(config.global_layers, 1, config.heads, config.width // config.heads)
        vectors, new, attention = self._run_global(patches, nothing, memory)
        last = None if attention is None else attention[:, -1]
        return OnnxState(vectors[:, -1], memory, DecoderKVCache.copied([new], batch.prefix_lengths + 1), last)

    def next_logits(self, state: OnnxState, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], OnnxState]:
        """tokens (B, p) -> logits (B, C + 1) of position p, and the state after the p tokens."""
        batch, position = tokens.shape
        past = state.patch if position else self._empty_patch(batch)
        assert past, "tokens are appended one after the other"
        logits, *grown = self._run(
            "local",
            self._local,
            {
                "position": np.array(position),
                "vectors": state.vectors,
                "tokens": tokens[:, -1] if position else np.zeros(batch, np.int64),
                **{f"past.{index}": cache for index, cache in enumerate(past)},
            },
            [
                (batch, self.config.codebook_size + 1),
                *((*cache.shape[:2], position + 1, cache.shape[3]) for cache in past),
            ],
        )
        return logits, replace(state, patch=tuple(grown))

    def sample_patch(self, state: OnnxState, inputs: SamplingInputs) -> tuple[NDArray[np.int64], OnnxState]:
        """Sample as `generation.loop.sample_positions` does, in one run: tokens (B, P), and the state."""
        (drawn,) = self._run(
            "patch",
            self._patch,
            {
                "vectors": state.vectors,
                "uniforms": inputs.uniforms,
                "top_p": inputs.top_p,
                "may_end": inputs.may_end,
                "recent": inputs.recent,
                "max_ratio": inputs.max_ratio,
            },
            [(None, len(inputs.uniforms), 1)],
        )
        in_range = drawn.dtype == np.int64 and drawn.min(initial=0) >= 0 and drawn.max(initial=0) <= self.config.eos
        if len(drawn) > self.config.patch_size or not in_range:
            raise self._mismatch("patch")
        tokens = np.full((len(inputs.uniforms), self.config.patch_size), self.config.eos, np.int64)
        tokens[:, : len(drawn)] = drawn[:, :, 0].T
        return tokens, state

    def text_attention(self, state: OnnxState) -> NDArray[np.float32] | None:
        """(B, S) of the aligned heads, see `generation.engine.AttentionEngine`."""
        return None if state.attention is None else state.attention[:, NUM_SLOTS:]

    def append(self, state: OnnxState, patches: NDArray[np.int64]) -> OnnxState:
        """patches (B, P), finished ones."""
        vectors, new, attention = self._run_global(patches[:, None], state.cache, state.memory)
        last = None if attention is None else attention[:, 0]
        return OnnxState(vectors[:, 0], state.memory, state.cache.extended(new), last)

    def select(self, state: OnnxState, rows: Sequence[int]) -> OnnxState:
        """Return only these rows."""
        return self._with_rows(state, rows, state.memory.select(rows), state.cache.select(rows))

    def keep_rows(self, state: OnnxState, rows: Sequence[int]) -> OnnxState:
        """Return only these rows, most of them where they were; `state` may not be used any more."""
        return self._with_rows(state, rows, state.memory.keep_rows(rows), state.cache.keep_rows(rows))

    def _with_rows(self, state: OnnxState, rows: Sequence[int], memory: Memory, cache: DecoderKVCache) -> OnnxState:
        patch = tuple(positions[rows] for positions in state.patch)
        attention = None if state.attention is None else fit_axis(state.attention[rows], 1, memory.bias.shape[1])
        return OnnxState(state.vectors[rows], memory, cache, attention, patch)

    def join(self, states: Sequence[OnnxState]) -> OnnxState:
        """The rows of all states, none of them within a patch."""
        memory = Memory.join([state.memory for state in states])
        places = memory.bias.shape[1]
        attention = [fit_axis(state.attention, 1, places) for state in states if state.attention is not None]
        return OnnxState(
            np.concatenate([state.vectors for state in states]),
            memory,
            DecoderKVCache.join([state.cache for state in states]),
            np.concatenate(attention) if len(attention) == len(states) else None,
        )

    def _run_global(
        self, patches: NDArray[np.int64], cache: DecoderKVCache, memory: Memory
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32] | None]:
        """Run the global decoder over patches (B, T, P) after those in the cache, see `export.decoder_graphs`."""
        inputs: dict[str, NDArray[Any]] = {
            "patches": patches,
            "first": cache.lengths,
            "seen_bias": cache.bias,
            "memory_bias": memory.bias,
        }
        config, rows = self.config, patches.shape[:2]
        layers = (*cache.buffer.layers(rows[0]), *memory.buffer.layers(rows[0]))
        inputs.update(zip(self._kv_inputs, layers, strict=True))
        heads = config.heads, config.width // config.heads
        shapes = [
            (*rows, config.width),
            (2, config.global_layers, rows[0], heads[0], rows[1], heads[1]),
            *([(*rows, memory.bias.shape[1])] if config.aligned_heads else []),
        ]
        vectors, new, *rest = self._run("global", self._global, inputs, shapes, optional=len(shapes) - 2)
        refuse_nan(vectors)
        return vectors, new, rest[0] if rest else None

    def _run(
        self,
        name: str,
        session: InferenceSession,
        feeds: dict[str, NDArray[Any]],
        shapes: Sequence[Shape],
        optional: int = 0,
    ) -> list[NDArray[Any]]:
        """Outputs of these shapes, the last ones optional; CheckpointError where the graph fails or computes others."""
        try:
            found = [np.asarray(value) for value in session.run(None, feeds)]
        except Exception as error:  # onnxruntime's classes of exceptions are unrelated
            raise self._mismatch(name) from error
        is_complete = len(shapes) - optional <= len(found) <= len(shapes)
        if not is_complete or not all(
            value.dtype.kind in "fib" and (value.shape == shape or fits(value.shape, shape))
            for value, shape in zip(found, shapes, strict=False)
        ):
            raise self._mismatch(name)
        return found

    def _mismatch(self, name: str) -> CheckpointError:
        return CheckpointError(
            f"{printable_name(self._folder / f'{name}.onnx')}: this graph cannot be run; it does not fit its "
            "configuration, or is corrupt"
        )

    def _empty_patch(self, batch: int) -> tuple[NDArray[np.float32], ...]:
        config = self.config
        nothing = np.zeros((batch, config.local_heads, 0, config.width // config.local_heads), np.float32)
        return (nothing,) * (2 * config.local_layers)
