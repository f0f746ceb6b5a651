"""The two decoders: patches → one vector per patch (global), that vector → seven tokens (local).

Upstream: `encoder.TextEncoder` (memory), `config` (tokens).  Downstream: `objective` (training), `engines`.
MARS6 (arXiv:2501.05787), Sec. III-C.  Deviations: as in the published checkpoint, positions of the global decoder are
counted in tokens inside the patch embedding, and no stack ends in a norm.
Shapes: B batch · T patches · P positions of a patch · N patches taken out of a batch · S memory slots · D width ·
V speech vocabulary · C codes per level · w width of a token inside the patch embedding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marstts.mars6.config import Mars6Config
from marstts.mars6.encoder import EMBEDDING_STD
from marstts.nn.attention import KVCache, ScaledSinusoids
from marstts.nn.transformer import CrossLayer, SelfLayer, initialize


class PatchEmbedding(nn.Module):
    """A patch of tokens to one vector: tokens embedded narrowly, positioned, concatenated, mixed."""

    def __init__(self, config: Mars6Config) -> None:
        super().__init__()
        self.eos = config.eos
        self.tokens = nn.Embedding(config.speech_vocab_size, config.patch_token_width, padding_idx=config.eos)
        self.positions = ScaledSinusoids()
        self.output = nn.Linear(config.patch_size * config.patch_token_width, config.width, bias=False)
        nn.init.normal_(self.tokens.weight, std=EMBEDDING_STD)
        self.tokens.weight.data[config.eos].zero_()

    def forward(self, patches: Tensor, first: Tensor) -> Tensor:
        """patches (B, T, P), negative = padding; first (B,): number of earlier patches -> (B, T, D).

        Token j of patch n has position P·n + j, counted from the first patch of the row.
        """
        batch, length, size = patches.shape
        offsets = torch.arange(length * size, device=patches.device).view(1, length, size)
        tokens = self.tokens(patches.masked_fill(patches < 0, self.eos))
        tokens = self.positions(tokens, offsets + size * first.view(batch, 1, 1))
        return self.output(tokens.flatten(start_dim=2))


class GlobalOutput(NamedTuple):
    """Output of the global decoder for whole rows."""

    x: Tensor
    """(B, T, D)."""

    cross_attention: tuple[Tensor, ...]
    """(B, H, T, S) of each requested layer."""

    hidden_states: tuple[Tensor, ...]
    """(B, T, D) after each layer; the last one is `x`."""


class GlobalDecoder(nn.Module):
    """Causal over patches, with cross-attention to the memory; output n is what patch n is made from."""

    def __init__(self, config: Mars6Config) -> None:
        super().__init__()
        self.aligned_heads = config.aligned_heads
        self.start = nn.Parameter(nn.init.normal_(torch.empty(config.width), std=EMBEDDING_STD))
        self.patch_embedding = PatchEmbedding(config)
        inner_width = config.feed_forward_factor * config.width
        self.layers = nn.ModuleList(
            CrossLayer(config.width, config.heads, inner_width, config.dropout) for _ in range(config.global_layers)
        )
        initialize(self.layers)

    def embed(self, patches: Tensor) -> Tensor:
        """patches (B, T, P) from the beginning -> (B, T + 1, D): the start vector, then the embedded patches."""
        batch = patches.shape[0]
        embedded = self.patch_embedding(patches, torch.zeros(batch, dtype=torch.long, device=patches.device))
        return torch.cat((self.start.to(embedded.dtype).expand(batch, 1, -1), embedded), dim=1)

    def project_kv(self, memory: Tensor) -> tuple[KVCache, ...]:
        """memory (B, S, D) -> the keys and values each layer's cross-attention keeps of it."""
        layers = cast("Iterable[CrossLayer]", self.layers)
        return tuple(layer.cross_attention.project_kv(memory) for layer in layers)

    def forward(
        self, x: Tensor, memory: Tensor, memory_mask: Tensor, attention_layers: tuple[int, ...] = ()
    ) -> GlobalOutput:
        """x (B, T, D) from `embed`, memory (B, S, D), memory_mask (B, S); shows the cross-attention of the layers
        `attention_layers` (counted from 0).

        Rows need no padding mask: padding comes last, and position t sees only positions up to t.
        """
        shown, hidden_states = [], []
        for index, (layer, layer_memory) in enumerate(zip(self.layers, self.project_kv(memory), strict=True)):
            show = index in attention_layers
            x, _, attention = layer(x, layer_memory, memory_mask[:, None, None, :], causal=True, show_attention=show)
            hidden_states.append(x)
            if attention is not None:
                shown.append(attention)
        return GlobalOutput(x, tuple(shown), tuple(hidden_states))

    def prefill(
        self, x: Tensor, memory: tuple[KVCache, ...], memory_mask: Tensor
    ) -> tuple[Tensor, tuple[KVCache, ...], Tensor | None]:
        """Run `forward` with the memory from `project_kv`; also return the KV cache of every layer, and the attention
        (B, T, S) of the aligned heads, None where there are none.
        """
        seen, shown = [], {}
        for index, (layer, layer_memory) in enumerate(zip(self.layers, memory, strict=True)):
            x, cache, shown[index] = layer(
                x, layer_memory, memory_mask[:, None, None, :], causal=True, show_attention=self.is_aligned(index)
            )
            seen.append(cache)
        return x, tuple(seen), self.aligned_attention(shown)

    def step(
        self,
        x: Tensor,
        past: Sequence[KVCache],
        past_mask: Tensor,
        memory: tuple[KVCache, ...],
        memory_mask: Tensor,
    ) -> tuple[Tensor, tuple[KVCache, ...], Tensor | None]:
        """One more patch: x (B, 1, D), past_mask (B, past + 1) True = attend (the last column is x itself)
        -> (B, 1, D), the longer caches, and the attention (B, 1, S) of the aligned heads, None where there are none.
        """
        seen, shown = [], {}
        for index, (layer, layer_memory, cache) in enumerate(zip(self.layers, memory, past, strict=True)):
            x, cache, shown[index] = layer(
                x,
                layer_memory,
                memory_mask[:, None, None, :],
                mask=past_mask[:, None, None, :],
                past=cache,
                show_attention=self.is_aligned(index),
            )
            seen.append(cache)
        return x, tuple(seen), self.aligned_attention(shown)

    def is_aligned(self, layer: int) -> bool:
        """Return True where a head of this layer is aligned."""
        return any(layer == aligned for aligned, _ in self.aligned_heads)

    def aligned_attention(self, shown: Mapping[int, Tensor | None]) -> Tensor | None:
        """The mean of the aligned heads (B, T, S), from the cross-attention (B, H, T, S) of their layers."""
        heads = []
        for layer, head in self.aligned_heads:
            attention = shown[layer]
            assert attention is not None, "the layers of aligned heads show their attention"
            heads.append(attention[:, head])
        return torch.stack(heads).mean(dim=0) if heads else None


class LocalDecoder(nn.Module):
    """Causal over the positions of one patch; its first input is the global decoder's vector."""

    def __init__(self, config: Mars6Config) -> None:
        super().__init__()
        self.config = config
        self.input = nn.Linear(config.width, config.width)
        self.tokens = nn.Embedding(config.speech_vocab_size, config.width, padding_idx=config.eos)
        self.positions = nn.Embedding(config.patch_size, config.width)
        inner_width = config.feed_forward_factor * config.width
        self.layers = nn.ModuleList(
            SelfLayer(config.width, config.local_heads, inner_width, config.dropout) for _ in range(config.local_layers)
        )
        self.output = nn.Linear(config.width, config.speech_vocab_size, bias=False)
        nn.init.normal_(self.tokens.weight, std=EMBEDDING_STD)
        self.tokens.weight.data[config.eos].zero_()
        nn.init.normal_(self.positions.weight, std=EMBEDDING_STD)
        initialize(self.layers)

    def forward(self, vectors: Tensor, patches: Tensor) -> tuple[Tensor, ...]:
        """vectors (N, D) of the global decoder, patches (N, P) they lead to, all positions at once
        -> logits (N, layout[l], C + 1) per level; the last column is end of speech.

        `logits[l][n, i]` scores the i-th code of level l in patch n and has seen only the tokens before it.
        """
        first = self.input(vectors).unsqueeze(1)
        x = torch.cat((first, self.tokens(patches[:, :-1]).to(first.dtype)), dim=1)
        x = x + self.positions.weight.to(x.dtype)
        for layer in self.layers:
            x, _ = layer(x, causal=True)
        return tuple(
            F.linear(hidden.contiguous(), self.level_weight(level))  # else, without gradients, it copies the weight
            for level, hidden in enumerate(x.split(self.config.patch_layout, dim=1))
        )

    def step(
        self, vectors: Tensor, token: Tensor | None, past: tuple[KVCache, ...]
    ) -> tuple[Tensor, tuple[KVCache, ...]]:
        """One position: `vectors` (B, D) if `token` is None (position 0, past empty), else after `token` (B,)
        -> logits (B, C + 1) over the position's level, last column end of speech; and the longer caches.
        """
        position = past[0].keys.shape[2] if past else 0
        x, seen = self.hidden_states(vectors, token, past)
        return F.linear(x, self.level_weight(self.config.position_levels[position])), seen

    def hidden_states(
        self, vectors: Tensor, token: Tensor | None, past: tuple[KVCache, ...]
    ) -> tuple[Tensor, tuple[KVCache, ...]]:
        """Run `step`, but return (B, D), the vector before the logits."""
        position = past[0].keys.shape[2] if past else 0
        x = self.input(vectors) if token is None else self.tokens(token)
        x = (x + self.positions.weight[position]).unsqueeze(1)
        seen = []
        for index, layer in enumerate(self.layers):
            x, cache = layer(x, past=past[index] if past else None)
            seen.append(cache)
        return x.squeeze(1), tuple(seen)

    def level_weight(self, level: int) -> Tensor:
        """(C + 1, D): the output rows that are legal on this level, its codes and end of speech."""
        size = self.config.codebook_size
        return torch.cat((self.output.weight[level * size : (level + 1) * size], self.output.weight[-1:]), dim=0)
