"""MARS6 as three ONNX graphs, so that speaking needs no PyTorch.

Upstream: `model.Mars6`, trained.  Downstream: `engine.onnx`, which runs what `export_mars6` writes.
The graphs are made of the model's own layers; the only thing they add is that caches come and go as arrays, and that
arithmetic whose result does not change is done in the graph that runs less often.

- `encoder.onnx`, once per sentence: text and speaker -> the keys and values the global decoder keeps of the memory.
- `global.onnx`, once for the prefix and then once per patch: patches -> one vector per patch.
- `local.onnx`, P times per patch: one token -> logits of the next.

Shapes: B batch · S text tokens · M = slots + S memory places · T places of the global decoder, place 0 being the start
vector and place n + 1 patch n · P positions of a patch · L, H, d layers, heads and head width of the decoder
concerned · D width · C codes per level.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from marstts.config import write_config
from marstts.mars6.model import Mars6
from marstts.nn.kv_cache import KVCache
from marstts.onnx_export import Graph, export_graphs

CONFIG_FILE, WEIGHTS_FILE = "config.json", "mars6.safetensors"


class EncoderGraph(nn.Module):
    """Text and speaker → what the cross-attention of every layer keeps of the memory."""

    def __init__(self, model: Mars6) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, text_ids: Tensor, text_lengths: Tensor, identity: Tensor, style: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `Mars6.encode` -> keys and values (L, B, H, M, d) each, mask (B, M)."""
        memory, mask = self.model.encode(text_ids, text_lengths, identity, style)
        return (*stack(self.model.global_decoder.remember(memory)), mask)


class GlobalGraph(nn.Module):
    """Some places of the global decoder, after those in the cache."""

    def __init__(self, model: Mars6) -> None:
        super().__init__()
        self.decoder = model.global_decoder
        self.local_input = model.local_decoder.input

    def forward(
        self,
        patches: Tensor,
        first: Tensor,
        seen_keys: Tensor,
        seen_values: Tensor,
        mask: Tensor,
        memory_keys: Tensor,
        memory_values: Tensor,
        memory_mask: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """patches (B, T, P) beginning at place first (B,), where place 0 may hold anything; seen (L, B, H, N, d);
        mask (B, T, N + T) True = attend; memory (L, B, H, M, d); memory_mask (B, M)
        -> the local decoder's first input (B, T, D), keys and values (L, B, H, T, d) of these places.
        """
        places = first[:, None, None] + torch.arange(patches.shape[1], device=patches.device)[None, :, None]
        x = torch.where(places == 0, self.decoder.start, self.decoder.patch_embedding(patches, first - 1))
        seen = list(map(KVCache, seen_keys.unbind(0), seen_values.unbind(0)))
        memory = list(map(KVCache, memory_keys.unbind(0), memory_values.unbind(0)))
        added = []
        for layer, past, remembered in zip(self.decoder.layers, seen, memory, strict=True):
            x, cache, _ = layer(x, remembered, memory_mask[:, None, None, :], mask=mask[:, None], past=past)
            added.append(KVCache(*(part[:, :, seen_keys.shape[3] :] for part in cache)))
        return (self.local_input(x), *stack(added))


class LocalGraph(nn.Module):
    """One position of the local decoder, after those in the cache."""

    levels: Tensor

    def __init__(self, model: Mars6) -> None:
        super().__init__()
        self.config, self.decoder = model.config, model.local_decoder
        self.register_buffer("levels", torch.tensor(model.config.position_levels), persistent=False)

    def forward(
        self, position: Tensor, vectors: Tensor, tokens: Tensor, seen_keys: Tensor, seen_values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """position (1,); vectors (B, D) from the global graph, heard at position 0; tokens (B,) chosen last, heard at
        the others; seen (L, B, H, p, d) -> logits (B, C + 1) over the position's level, last column end of speech;
        keys and values (L, B, H, p + 1, d).
        """
        decoder = self.decoder
        x = torch.where(position == 0, vectors, decoder.tokens(tokens)) + decoder.positions(position)
        x = x.unsqueeze(1)
        seen = []
        for layer, keys, values in zip(decoder.layers, seen_keys.unbind(0), seen_values.unbind(0), strict=True):
            x, cache = layer(x, past=KVCache(keys, values))
            seen.append(cache)
        x = x.squeeze(1)
        weight = decoder.output.weight[:-1].view(-1, self.config.codebook_size, self.config.width)
        codes = x @ weight[self.levels[position]].squeeze(0).T
        return (torch.cat((codes, x @ decoder.output.weight[-1:].T), dim=-1), *stack(seen))


def stack(caches: Iterable[KVCache]) -> tuple[Tensor, Tensor]:
    """Caches of L layers -> keys and values (L, B, H, N, d)."""
    keys, values = zip(*caches, strict=True)
    return torch.stack(keys), torch.stack(values)


def export_mars6(model: Mars6, folder: Path) -> None:
    """Write the folder that `engine.onnx.OnnxEngine` runs: config.json, mars6.safetensors (fp16), three graphs.

    The model ends up on the CPU with parameters rounded to half precision, as the graphs have them.
    """
    model = model.float().cpu().eval()
    export_graphs(folder, WEIGHTS_FILE, model, example_graphs(model))
    write_config(model.config, folder / CONFIG_FILE)


def example_graphs(model: Mars6) -> dict[str, Graph]:
    """The three graphs with inputs of arbitrary sizes, all different, to trace them with."""
    config = model.config
    batch, text, places, seen, slots = 2, 5, 3, 4, model.num_slots
    memory = torch.randn(config.global_layers, batch, config.heads, slots + text, config.width // config.heads)
    heard = torch.randn(config.global_layers, batch, config.heads, seen, config.width // config.heads)
    tokens = torch.randn(config.local_layers, batch, config.local_heads, 6, config.width // config.local_heads)
    cache_axes, memory_axes = {1: "batch", 3: "seen"}, {1: "batch", 3: "memory"}
    return {
        "encoder": Graph(
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
        ),
        "global": Graph(
            GlobalGraph(model),
            {
                "patches": torch.zeros(batch, places, config.patch_size, dtype=torch.long),
                "first": torch.tensor([0, 2]),
                "seen_keys": heard,
                "seen_values": heard.clone(),
                "mask": torch.ones(batch, places, seen + places, dtype=torch.bool),
                "memory_keys": memory,
                "memory_values": memory.clone(),
                "memory_mask": torch.ones(batch, slots + text, dtype=torch.bool),
            },
            ["vectors", "keys", "values"],
            {
                "patches": {0: "batch", 1: "places"},
                "first": {0: "batch"},
                "seen_keys": cache_axes,
                "seen_values": cache_axes,
                "mask": {0: "batch", 1: "places", 2: "total"},
                "memory_keys": memory_axes,
                "memory_values": memory_axes,
                "memory_mask": {0: "batch", 1: "memory"},
            },
        ),
        "local": Graph(
            LocalGraph(model),
            {
                "position": torch.tensor([6]),
                "vectors": torch.randn(batch, config.width),
                "tokens": torch.zeros(batch, dtype=torch.long),
                "seen_keys": tokens,
                "seen_values": tokens.clone(),
            },
            ["logits", "keys", "values"],
            {"vectors": {0: "batch"}, "tokens": {0: "batch"}, "seen_keys": cache_axes, "seen_values": cache_axes},
        ),
    }
