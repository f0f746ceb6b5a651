"""AR and NAR as ONNX graphs, in the place of the PyTorch models.

Upstream: a folder written by `export.graphs`.  Downstream: `engines.torch`, `pipeline`, which call them as they call
`ar.CodecLM` and `nar.ResidualTransformer`.
ONNX Runtime computes everything that has weights. The cache and the diffusion's walk stay tensors of PyTorch, which
share their memory with the arrays of the graphs; so this engine needs PyTorch too.
Shapes: B batch · T tokens or frames · S cached positions · N layers · H heads · d head size · L levels · K classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from marstts.checked_graph import CheckedGraph
from marstts.config import read_config
from marstts.errors import CheckpointError
from marstts.generation.engine import refuse_nan
from marstts.mars5.ar import EMPTY, DecoderState, KeyValues, evict
from marstts.mars5.checkpoint import CONFIG_FILE, SPEECH_FILE, TEXT_FILE, check_fit
from marstts.mars5.config import CodecLMConfig, Mars5Config, ResidualTransformerConfig
from marstts.mars5.layers import length_mask
from marstts.mars5.nar import Conditioning
from marstts.mars5.text import JointVocabulary, SpeechBPE
from marstts.text.bpe import BPE

GRAPHS = ("ar_speaker", "ar_prompt", "ar_step", "nar_speaker", "nar")

THREADS = 2
"""Threads of the NAR, whose steps are large; the AR's are small and take one."""


class SpeakerEncoder:
    """A model's speaker encoder."""

    def __init__(self, path: Path, config: CodecLMConfig | ResidualTransformerConfig) -> None:
        self._width = config.width
        inputs = {"codes": (None, None, config.levels), "lengths": (None,)}
        self._graph = CheckedGraph(path, inputs, {"speaker": (None, config.width)})

    def __call__(self, codes: Tensor, lengths: Tensor) -> Tensor:
        """codes (B, R, L), R at least 1, lengths (B,), perhaps 0 -> (B, D)."""
        feeds = {"codes": codes.numpy(), "lengths": lengths.numpy()}
        [vector] = self._graph.run(feeds, [(len(codes), self._width)])
        return torch.from_numpy(vector)


class GraphCodecLM:
    """The parts of a `CodecLM` that speaking uses, as graphs."""

    def __init__(self, folder: Path, config: CodecLMConfig) -> None:
        """Raises CheckpointError where a graph is missing, malformed or of other sizes."""
        self.config = config
        self._speaker = SpeakerEncoder(folder / "ar_speaker.onnx", config)
        cache = (config.layers, None, config.heads, None, config.head_size)
        outputs = {"logits": (None, config.vocab_size), "keys": cache, "values": cache}
        prompt = {"tokens": (None, None), "speaker": (None, config.width), "lengths": (None,)}
        step = {"tokens": (None, 1), "positions": (None, 1), "key_positions": (None, None)}
        self._prompt = CheckedGraph(folder / "ar_prompt.onnx", prompt, outputs)
        pasts = {"past_keys": cache, "past_values": cache}
        self._step = CheckedGraph(folder / "ar_step.onnx", {**step, **pasts}, outputs)

    def parameters(self) -> Iterator[nn.Parameter]:
        """None: the graphs have them."""
        return iter(())

    def encode_speaker(self, codes: Tensor, lengths: Tensor) -> Tensor:
        """See `CodecLM.encode_speaker`."""
        return self._speaker(codes, lengths)

    def begin(self, tokens: Tensor, lengths: Tensor, speaker: Tensor) -> DecoderState:
        """See `CodecLM.begin`; there is always a speaker."""
        batch, size = tokens.shape
        feeds = {"tokens": tokens.numpy(), "speaker": speaker.float().numpy(), "lengths": lengths.numpy()}
        logits, *cache = self._prompt.run(feeds, self._shapes(batch, size + 1))
        positions = torch.arange(size + 1).expand(batch, -1)
        key_positions = positions.masked_fill(~length_mask(lengths + 1, size + 1), EMPTY)
        return self._state(logits, lengths + 1, key_positions, cache)

    def advance(self, state: DecoderState, tokens: Tensor) -> DecoderState:
        """See `CodecLM.advance`."""
        positions = state.lengths.unsqueeze(1)
        keys, values = (torch.stack(parts).numpy() for parts in zip(*state.seen, strict=True))
        feeds = {
            "tokens": tokens.unsqueeze(1).numpy(),
            "positions": positions.numpy(),
            "key_positions": state.key_positions.numpy(),
            "past_keys": keys,
            "past_values": values,
        }
        logits, *cache = self._step.run(feeds, self._shapes(len(tokens), keys.shape[3] + 1))
        return self._state(logits, state.lengths + 1, torch.cat((state.key_positions, positions), dim=1), cache)

    def _state(
        self, logits: NDArray[np.float32], lengths: Tensor, key_positions: Tensor, cache: list[NDArray[np.float32]]
    ) -> DecoderState:
        refuse_nan(logits)
        layers = zip(*(torch.from_numpy(part).unbind(0) for part in cache), strict=True)
        seen = tuple(KeyValues(*layer) for layer in layers)
        return evict(DecoderState(torch.from_numpy(logits), lengths, key_positions, seen), self.config.window)

    def _shapes(self, batch: int, positions: int) -> list[tuple[int, ...]]:
        """Shapes of logits, keys and values."""
        cache = (self.config.layers, batch, self.config.heads, positions, self.config.head_size)
        return [(batch, self.config.vocab_size), cache, cache]


class GraphResidualTransformer:
    """The parts of a `ResidualTransformer` that speaking uses, as graphs."""

    def __init__(self, folder: Path, config: ResidualTransformerConfig) -> None:
        """Raises CheckpointError where a graph is missing, malformed or of other sizes."""
        self.config = config
        self._speaker = SpeakerEncoder(folder / "nar_speaker.onnx", config)
        inputs = {
            "codes": (None, None, config.levels),
            "lengths": (None,),
            "timesteps": (None,),
            "text_ids": (None, None),
            "text_lengths": (None,),
            "speaker": (None, config.width),
        }
        outputs = {"logits": (None, None, config.levels, config.num_classes)}
        self._graph = CheckedGraph(folder / "nar.onnx", inputs, outputs, threads=THREADS)

    def encode_speaker(self, codes: Tensor, lengths: Tensor) -> Tensor:
        """See `ResidualTransformer.encode_speaker`."""
        return self._speaker(codes, lengths)

    def null_speaker(self, batch: int) -> Tensor:
        """(B, D): the vector of a reference of one frame that does not count."""
        codes = torch.zeros(1, 1, self.config.levels, dtype=torch.long)
        return self._speaker(codes, torch.zeros(1, dtype=torch.long)).expand(batch, -1)

    def __call__(self, codes: Tensor, lengths: Tensor, timesteps: Tensor, given: Conditioning) -> Tensor:
        """See `ResidualTransformer.forward`."""
        feeds = {
            "codes": codes.numpy(),
            "lengths": lengths.numpy(),
            "timesteps": timesteps.numpy(),
            "text_ids": given.text_ids.numpy(),
            "text_lengths": given.text_lengths.numpy(),
            "speaker": given.speaker.float().numpy(),
        }
        [logits] = self._graph.run(feeds, [(*codes.shape, self.config.num_classes)])
        refuse_nan(logits)
        return torch.from_numpy(logits)


@dataclass(frozen=True, eq=False)
class GraphModels:
    """`checkpoint.Models` whose models are graphs."""

    ar: GraphCodecLM
    nar: GraphResidualTransformer
    vocabulary: JointVocabulary


def graphs_are_complete(folder: Path) -> bool:
    """Whether a model's folder has every graph."""
    return all((folder / f"{name}.onnx").is_file() for name in GRAPHS)


def open_graphs(folder: Path) -> GraphModels:
    """The graphs and tokenizers of a model's folder; CheckpointError or ConfigError where they are malformed."""
    if not graphs_are_complete(folder):
        raise CheckpointError(
            f"{folder}: engine 'onnx' was asked for, but this MARS5 has no graphs: `marstts bundle upgrade` writes "
            "them, or use 'torch'"
        )
    config = read_config(Mars5Config, folder / CONFIG_FILE)
    vocabulary = JointVocabulary(BPE.load(folder / TEXT_FILE), SpeechBPE.load(folder / SPEECH_FILE))
    check_fit(config.ar, config.nar, vocabulary, str(folder))
    return GraphModels(GraphCodecLM(folder, config.ar), GraphResidualTransformer(folder, config.nar), vocabulary)
