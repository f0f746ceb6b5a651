"""AR and NAR as ONNX graphs, in the place of the PyTorch models.

Upstream: a folder written by `export.graphs`.  Downstream: `bundled`.
ONNX Runtime computes everything that has weights; the cache is arrays, as the graphs return them. PyTorch is not
needed.
Shapes: B batch · T tokens or frames · S cached positions · N layers · H heads · d head size · L levels · K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.errors import CheckpointError
from marstts.generation.engine import refuse_nan
from marstts.io.config import read_config
from marstts.mars5.config import CodecLMConfig, Mars5Config, ResidualTransformerConfig
from marstts.mars5.runtime import Floats, Ids, RunnableModels, StepInputs
from marstts.mars5.steps import Schedule
from marstts.mars5.text import CONFIG_FILE, check_fit, read_tokenizers
from marstts.onnx.session import CheckedGraph

GRAPHS = ("ar_speaker", "ar_prompt", "ar_step", "nar_speaker", "nar_step", "nar_guided_step")

THREADS = 2
"""Threads of the NAR, whose steps are large; the AR's are small and take one."""

EMPTY = -1
"""Position of a cache entry that holds nothing."""


@dataclass(frozen=True, eq=False)
class ArrayState:
    """State of the decoder for B sequences: `ar.DecoderState` as arrays."""

    logits: Floats
    """(B, V) of the next token."""

    lengths: Ids
    """(B,) positions processed so far, the speaker's included."""

    key_positions: Ids
    """(B, S) position of each cache entry, or -1 where a row has none."""

    keys: Floats
    """(N, B, H, S, d)."""

    values: Floats
    """(N, B, H, S, d)."""

    def select(self, rows: Sequence[int]) -> ArrayState:
        """Return only the rows, in that order."""
        index = list(rows)
        return ArrayState(
            self.logits[index],
            self.lengths[index],
            self.key_positions[index],
            self.keys[:, index],
            self.values[:, index],
        )

    def evict(self, window: int) -> ArrayState:
        """The state without the cache entries that no row will attend to again."""
        if self.key_positions.shape[1] <= window:
            return self
        kept = (self.key_positions >= (self.lengths - window)[:, None]).any(axis=0)
        positions = self.key_positions[:, kept]
        return ArrayState(self.logits, self.lengths, positions, self.keys[:, :, :, kept], self.values[:, :, :, kept])


def join_states(states: Sequence[ArrayState]) -> ArrayState:
    """The rows of all states, at least one, side by side."""
    size = max(state.key_positions.shape[1] for state in states)

    def padded(part: Floats) -> Floats:
        return np.pad(part, ((0, 0), (0, 0), (0, 0), (0, size - part.shape[3]), (0, 0)))

    positions = [
        np.pad(state.key_positions, ((0, 0), (0, size - state.key_positions.shape[1])), constant_values=EMPTY)
        for state in states
    ]
    return ArrayState(
        np.concatenate([state.logits for state in states]),
        np.concatenate([state.lengths for state in states]),
        np.concatenate(positions),
        np.concatenate([padded(state.keys) for state in states], axis=1),
        np.concatenate([padded(state.values) for state in states], axis=1),
    )


class SpeakerEncoder:
    """A model's speaker encoder."""

    def __init__(self, path: Path, config: CodecLMConfig | ResidualTransformerConfig) -> None:
        self._width = config.width
        inputs = {"codes": (None, None, config.levels), "lengths": (None,)}
        self._graph = CheckedGraph(path, inputs, {"speaker": (None, config.width)})

    def __call__(self, codes: Ids, lengths: Ids) -> Floats:
        """codes (B, R, L), R at least 1, lengths (B,), perhaps 0 -> (B, D)."""
        [vector] = self._graph.run({"codes": codes, "lengths": lengths}, [(len(codes), self._width)])
        return vector


class GraphAR:
    """A `runtime.RunnableAR`: the parts of a `CodecLM` that speaking uses, as graphs."""

    def __init__(self, folder: Path, config: CodecLMConfig) -> None:
        """Raises CheckpointError where a graph is missing, malformed or of other sizes."""
        self.config = config
        self.encode_speaker = SpeakerEncoder(folder / "ar_speaker.onnx", config)
        cache = (config.layers, None, config.heads, None, config.head_size)
        outputs = {"logits": (None, config.vocab_size), "keys": cache, "values": cache}
        prompt = {"tokens": (None, None), "speaker": (None, config.width), "lengths": (None,)}
        step = {"tokens": (None, 1), "positions": (None, 1), "key_positions": (None, None)}
        self._prompt = CheckedGraph(folder / "ar_prompt.onnx", prompt, outputs)
        pasts = {"past_keys": cache, "past_values": cache}
        self._step = CheckedGraph(folder / "ar_step.onnx", {**step, **pasts}, outputs)

    def begin(self, tokens: Ids, lengths: Ids, speakers: Floats) -> ArrayState:
        """See `CodecLM.begin`; there is always a speaker."""
        batch, size = tokens.shape
        feeds: dict[str, NDArray[Any]] = {"tokens": tokens, "speaker": speakers, "lengths": lengths}
        logits, keys, values = self._prompt.run(feeds, self._shapes(batch, size + 1))
        refuse_nan(logits)
        positions = np.arange(size + 1)
        key_positions = np.where(positions <= lengths[:, None], positions, EMPTY)
        return ArrayState(logits, lengths + 1, key_positions, keys, values).evict(self.config.window)

    def advance(self, state: ArrayState, tokens: Ids) -> ArrayState:
        """See `CodecLM.advance`."""
        positions = state.lengths[:, None]
        feeds: dict[str, NDArray[Any]] = {
            "tokens": tokens[:, None],
            "positions": positions,
            "key_positions": state.key_positions,
            "past_keys": state.keys,
            "past_values": state.values,
        }
        logits, keys, values = self._step.run(feeds, self._shapes(len(tokens), state.keys.shape[3] + 1))
        refuse_nan(logits)
        key_positions = np.concatenate((state.key_positions, positions), axis=1)
        return ArrayState(logits, state.lengths + 1, key_positions, keys, values).evict(self.config.window)

    def logits(self, state: ArrayState) -> Floats:
        """(B, V) of the next joint id, a copy."""
        return state.logits.copy()

    def select(self, state: ArrayState, rows: Sequence[int]) -> ArrayState:
        """Only these rows, in this order."""
        return state.select(rows)

    def join(self, states: Sequence[ArrayState]) -> ArrayState:
        """The rows of all states."""
        return join_states(states)

    def _shapes(self, batch: int, positions: int) -> list[tuple[int, ...]]:
        """Shapes of logits, keys and values."""
        cache = (self.config.layers, batch, self.config.heads, positions, self.config.head_size)
        return [(batch, self.config.vocab_size), cache, cache]


class GraphNAR:
    """A `runtime.RunnableNAR`: the parts of a `ResidualTransformer` that speaking uses, as graphs."""

    def __init__(self, folder: Path, config: ResidualTransformerConfig) -> None:
        """Raises CheckpointError where a graph is missing, malformed or of other sizes."""
        self.config = config
        self.encode_speaker = SpeakerEncoder(folder / "nar_speaker.onnx", config)
        levels, classes = config.levels, config.num_classes
        inputs = {
            "codes": (None, None, levels),
            "lengths": (None,),
            "timesteps": (None,),
            "text_ids": (None, None),
            "text_lengths": (None,),
            "speaker": (None, config.width),
            "temperature": (1,),
            "rates": (4,),
            "legal": (classes,),
            "noise": (1,),
            "uniforms": (None, None, levels, classes),
        }
        outputs = {"drawn": (None, None, levels), "total": (None,)}
        self._step = CheckedGraph(folder / "nar_step.onnx", inputs, outputs, threads=THREADS)
        guided = {**inputs, "null_speaker": (1, config.width), "guidance": (1,)}
        self._guided_step = CheckedGraph(folder / "nar_guided_step.onnx", guided, outputs, threads=THREADS)
        self._null_speaker = self.encode_speaker(np.zeros((1, 1, levels), np.int64), np.zeros(1, np.int64))

    def step(self, codes: Ids, schedule: Schedule, step: int, inputs: StepInputs, uniforms: Floats | None) -> Ids:
        """Codes (B, T, L) of the step before, drawn from those at `step`; without uniforms the most probable ones."""
        classes = self.config.num_classes
        rates = [*schedule.all_steps_to(step - 1), *schedule.one_step(step)]
        feeds: dict[str, NDArray[np.generic]] = {
            "codes": codes,
            "lengths": inputs.lengths,
            "timesteps": np.full(len(codes), schedule.timesteps[step]),
            "text_ids": inputs.text_ids,
            "text_lengths": inputs.text_lengths,
            "speaker": inputs.speaker,
            "temperature": np.array([inputs.temperature], np.float32),
            "rates": np.array(rates, np.float32),
            "legal": np.where(np.arange(classes) < inputs.num_legal, 0, -np.inf).astype(np.float32),
            "noise": np.array([uniforms is not None], np.float32),
            "uniforms": np.full((*codes.shape, classes), 0.5, np.float32) if uniforms is None else uniforms,
        }
        graph = self._step
        if inputs.guidance != 1:
            graph = self._guided_step
            feeds |= {
                "null_speaker": self._null_speaker,
                "guidance": np.array([inputs.guidance], np.float32),
            }
        drawn, total = graph.run(feeds, [codes.shape, (len(codes),)])
        refuse_nan(total)
        return drawn


def graphs_are_complete(folder: Path) -> bool:
    """Whether a model's folder has every graph."""
    return all((folder / f"{name}.onnx").is_file() for name in GRAPHS)


def open_graphs(folder: Path) -> RunnableModels:
    """The graphs and tokenizers of a model's folder; CheckpointError or ConfigError where they are malformed."""
    if not graphs_are_complete(folder):
        raise CheckpointError(
            f"{folder}: engine 'onnx' was asked for, but this MARS5 has no graphs: `marstts bundle upgrade` writes "
            "them, or use 'torch'"
        )
    config = read_config(Mars5Config, folder / CONFIG_FILE)
    vocabulary = read_tokenizers(folder)
    check_fit(config.ar, config.nar, vocabulary, str(folder))
    return RunnableModels(GraphAR(folder, config.ar), GraphNAR(folder, config.nar), vocabulary)
