"""MARS5 as ONNX graphs, which ONNX Runtime computes faster than PyTorch does on a CPU.

Upstream: `checkpoint.Models`.  Downstream: `engines.onnx`, which runs what `export_graphs_of` writes.
All are PyTorch's export of the models' own layers. The AR has one graph for a prompt and one for a step; the NAR's are
one reverse step of the diffusion each, with guidance and without. The walk over the steps stays outside.
Shapes: B batch · T tokens or frames · S cached positions or text ids · R reference frames · N layers of the AR ·
H heads · d head size · L levels · K classes.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from marstts.errors import CheckpointError
from marstts.io.precision import WeightFormat
from marstts.mars5.ar import CodecLM, KeyValues
from marstts.mars5.checkpoint import Models
from marstts.mars5.diffusion import ReverseStep
from marstts.mars5.nar import ResidualTransformer
from marstts.mars5.text import AR_FILE, NAR_FILE
from marstts.onnx.export import Graph, export_graphs

MAX_PARAMETERS = 2**31 // 4 - 2**24
"""Parameters of one model that fit in an ONNX file of single precision, which is written on the way; 2 GB at most."""

EXAMPLE = 2, 5, 7, 3
"""Batch, tokens or frames, text or cache, reference frames: sizes to trace with, all different."""


class SpeakerGraph(nn.Module):
    """Reference codes to a model's speaker vector."""

    def __init__(self, model: CodecLM | ResidualTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, codes: Tensor, lengths: Tensor) -> Tensor:
        """codes (B, R, L), lengths (B,) -> (B, D)."""
        return self.model.encode_speaker(codes, lengths)


class PromptGraph(nn.Module):
    """A speaker and the tokens of a prompt to normed outputs and keys and values of every position."""

    def __init__(self, model: CodecLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, speaker: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """tokens (B, T), speaker (B, D), lengths (B,) of tokens -> logits (B, V), keys, values (N, B, H, 1 + T, d)."""
        x = self.model.embed(tokens, speaker)
        positions = torch.arange(x.shape[1]).expand(x.shape[0], -1)
        x, seen = self.model.decode(x, positions, positions, None)
        last = lengths.view(-1, 1, 1).expand(-1, 1, x.shape[2])  # the speaker takes position 0
        return self.model.output(x.gather(1, last).squeeze(dim=1)), *stack(seen)


class StepGraph(nn.Module):
    """One more token of each row."""

    def __init__(self, model: CodecLM) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: Tensor, positions: Tensor, key_positions: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """tokens, positions (B, 1), key_positions (B, S), keys and values (N, B, H, S, d) -> logits (B, V), both with
        one more position.
        """
        past = tuple(KeyValues(*layer) for layer in zip(keys.unbind(0), values.unbind(0), strict=True))
        places = torch.cat((key_positions, positions), dim=1)
        x, seen = self.model.decode(self.model.embedding(tokens), positions, places, past)
        return self.model.output(x[:, 0]), *stack(seen)


def stack(seen: tuple[KeyValues, ...]) -> tuple[Tensor, Tensor]:
    """Keys and values of N layers -> (N, B, H, S, d) each."""
    keys, values = zip(*seen, strict=True)
    return torch.stack(keys), torch.stack(values)


def export_graphs_of(models: Models, folder: Path, storage: WeightFormat) -> None:
    """Write weights and graphs of both models to `text`; parameters are rounded to `storage` in place.

    Raises CheckpointError where a model is too large for one ONNX file.
    """
    for name, model in (("AR", models.ar), ("NAR", models.nar)):
        size = sum(parameter.numel() for parameter in model.parameters())
        if size > MAX_PARAMETERS:
            raise CheckpointError(
                f"the {name} has {size} parameters, but graphs are made of at most {MAX_PARAMETERS}; "
                "speak with the engine 'torch' or 'cuda'"
            )
    export_graphs(folder, AR_FILE, models.ar, ar_graphs(models.ar), storage)
    export_graphs(folder, NAR_FILE, models.nar, nar_graphs(models.nar), storage)


def ar_graphs(model: CodecLM) -> dict[str, Graph]:
    """The AR's graphs by name, with inputs to trace them with."""
    config, (batch, tokens, cached, _) = model.config, EXAMPLE
    cache = torch.zeros(config.layers, batch, config.heads, cached, config.head_size)
    return {
        "ar_speaker": speaker_graph(model),
        "ar_prompt": Graph(
            PromptGraph(model),
            {
                "tokens": torch.zeros(batch, tokens, dtype=torch.long),
                "speaker": torch.zeros(batch, config.width),
                "lengths": torch.tensor([tokens, tokens - 1]),
            },
            ["logits", "keys", "values"],
            {"tokens": {0: "batch", 1: "time"}, "speaker": {0: "batch"}, "lengths": {0: "batch"}},
        ),
        "ar_step": Graph(
            StepGraph(model),
            {
                "tokens": torch.zeros(batch, 1, dtype=torch.long),
                "positions": torch.full((batch, 1), cached),
                "key_positions": torch.arange(cached).repeat(batch, 1),
                "past_keys": cache,
                "past_values": cache.clone(),
            },
            ["logits", "keys", "values"],
            {
                "tokens": {0: "batch"},
                "positions": {0: "batch"},
                "key_positions": {0: "batch", 1: "cached"},
                "past_keys": {1: "batch", 3: "cached"},
                "past_values": {1: "batch", 3: "cached"},
            },
        ),
    }


def nar_graphs(model: ResidualTransformer) -> dict[str, Graph]:
    """The NAR's graphs by name, likewise."""
    return {
        "nar_speaker": speaker_graph(model),
        "nar_step": step_graph(model, guided=False),
        "nar_guided_step": step_graph(model, guided=True),
    }


def step_graph(model: ResidualTransformer, guided: bool) -> Graph:
    """The graph of one reverse step, with guidance or without."""
    config, (batch, frames, text, _) = model.config, EXAMPLE
    codes = torch.zeros(batch, frames, config.levels, dtype=torch.long)
    inputs = {
        "codes": codes,
        "lengths": torch.tensor([frames, frames - 1]),
        "timesteps": torch.tensor([1, 2]),
        "text_ids": torch.zeros(batch, text, dtype=torch.long),
        "text_lengths": torch.tensor([text, text - 1]),
        "speaker": torch.zeros(batch, config.width),
        "temperature": torch.ones(1),
        "rates": torch.tensor([-0.2, -1.7, -0.1, -2.3]),
        "legal": torch.zeros(config.num_classes),
        "noise": torch.ones(1),
        "uniforms": torch.full((*codes.shape, config.num_classes), 0.5),
    }
    if guided:
        inputs |= {"null_speaker": torch.zeros(1, config.width), "guidance": torch.full((1,), 3.0)}
    dynamic = {
        "codes": {0: "batch", 1: "time"},
        "lengths": {0: "batch"},
        "timesteps": {0: "batch"},
        "text_ids": {0: "batch", 1: "text"},
        "text_lengths": {0: "batch"},
        "speaker": {0: "batch"},
        "uniforms": {0: "batch", 1: "time"},
    }
    return Graph(ReverseStep(model), inputs, ["drawn", "total"], dynamic)


def speaker_graph(model: CodecLM | ResidualTransformer) -> Graph:
    """The graph of a model's speaker encoder."""
    batch, _, _, frames = EXAMPLE
    return Graph(
        SpeakerGraph(model),
        {
            "codes": torch.zeros(batch, frames, model.config.levels, dtype=torch.long),
            "lengths": torch.tensor([frames, frames - 1]),
        },
        ["speaker"],
        {"codes": {0: "batch", 1: "time"}, "lengths": {0: "batch"}},
    )
