"""Multi-head attention in which remembering (keys, values) and asking (queries) are separate acts.

Upstream: hidden vectors.  Downstream: `transformer`.  Vaswani et al. (arXiv:1706.03762), Sec. 3.2.2, with biases.
Shapes: B batch · T asking positions · S remembered positions · D width · H heads · d = D / H.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marstts.nn.kv_cache import KVCache


class Attention(nn.Module):
    """Scaled dot-product attention of `heads` heads; self- or cross-attention depends on what is remembered."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def remember(self, x: Tensor) -> KVCache:
        """x (B, S, D) -> keys and values (B, H, S, d)."""
        batch, length, width = x.shape
        keys_values = self.key_value(x).view(batch, length, 2, self.heads, width // self.heads)
        keys, values = keys_values.permute(2, 0, 3, 1, 4).unbind(dim=0)
        return KVCache(keys, values)

    def forward(self, x: Tensor, memory: KVCache, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """x (B, T, D) asks `memory`; mask broadcastable to (B, H, T, S), True = attend -> (B, T, D).

        `causal` lets position t see the first t + 1 memories; it excludes a mask.
        """
        mixed = F.scaled_dot_product_attention(self.ask(x), *memory, attn_mask=mask, is_causal=causal)
        return self.output(join_heads(mixed))

    def with_probabilities(self, x: Tensor, memory: KVCache, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `forward`, and the attention itself, (B, H, T, S) float32: who looks where; slower."""
        queries = self.ask(x)
        scores = (queries @ memory.keys.transpose(-2, -1)).float() * queries.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        probabilities = scores.softmax(dim=-1)
        return self.output(join_heads(probabilities.to(memory.values.dtype) @ memory.values)), probabilities

    def ask(self, x: Tensor) -> Tensor:
        """x (B, T, D) -> queries (B, H, T, d)."""
        batch, length, width = x.shape
        return self.query(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """(B, H, T, d) -> (B, T, D)."""
    return x.transpose(1, 2).flatten(start_dim=2)
