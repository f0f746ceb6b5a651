"""MARS6 as ONNX graphs, so that speaking needs no PyTorch.

Upstream: `model.Mars6`, trained.  Downstream: `engines.onnx`, which runs what `export_mars6` writes.
The encoder, which runs once per sentence, is PyTorch's export of the model's layers; all it adds is what the global
decoder's cross-attention keeps of the memory. The decoders, which run for every patch, are written by `decoder_graphs`.

Shapes: B batch · S text tokens · M = slots + S memory positions · L, H, d layers, heads and head width of the global
decoder.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from marstts.io.config import write_config
from marstts.io.precision import WeightFormat
from marstts.mars6.config import CONFIG_FILE, WEIGHTS_FILE
from marstts.mars6.export.decoder_graphs import write_decoder_graphs
from marstts.mars6.model import Mars6
from marstts.nn.kv_cache import KVCache
from marstts.onnx.export import Graph, export_graphs


class EncoderGraph(nn.Module):
    """Text and speaker → what the cross-attention of every layer keeps of the memory."""

    def __init__(self, model: Mars6) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, text_ids: Tensor, text_lengths: Tensor, identity: Tensor, style: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs of `Mars6.encode` -> keys and values (L, B, H, M, d) each, mask (B, M)."""
        memory, mask = self.model.encode(text_ids, text_lengths, identity, style)
        return (*stack(self.model.global_decoder.project_kv(memory)), mask)


def stack(caches: Iterable[KVCache]) -> tuple[Tensor, Tensor]:
    """Caches of L layers -> keys and values (L, B, H, N, d)."""
    keys, values = zip(*caches, strict=True)
    return torch.stack(keys), torch.stack(values)


def export_mars6(model: Mars6, folder: Path, storage: WeightFormat = WeightFormat.FLOAT16) -> None:
    """Write the folder that `engines.onnx.OnnxEngine` runs: config.json, mars6.safetensors, and the graphs.

    The model ends up on the CPU with parameters rounded as the graphs have them.
    """
    model = model.float().cpu().eval()
    export_graphs(folder, WEIGHTS_FILE, model, {"encoder": encoder_graph(model)}, storage)
    write_config(model.config, folder / CONFIG_FILE)
    write_decoder_graphs(model.config, folder, WEIGHTS_FILE)


def encoder_graph(model: Mars6) -> Graph:
    """The encoder with inputs of arbitrary sizes, all different, to trace it with."""
    config, batch, text = model.config, 2, 5
    return Graph(
        EncoderGraph(model),
        {
            "text_ids": torch.zeros(batch, text, dtype=torch.long),
            "text_lengths": torch.tensor([text, text - 1]),
            "identity": torch.randn(batch, config.identity_size),
            "style": torch.randn(batch, config.style_size),
        },
        ["memory_keys", "memory_values", "memory_mask"],
        {
            "text_ids": {0: "batch", 1: "text"},
            "text_lengths": {0: "batch"},
            "identity": {0: "batch"},
            "style": {0: "batch"},
        },
    )
