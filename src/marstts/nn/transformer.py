"""Pre-norm transformer layers with Mish, with and without cross-attention.

Upstream: embedded sequences.  Downstream: the encoder and decoders of the models.
Layers are plain functions of their inputs: earlier positions come in as a KV cache, and the extended cache is returned.
Shapes: B batch · T positions · S memory slots · D width.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from marstts.nn.attention import Attention, KVCache
from marstts.nn.mish import Mish


class FeedForward(nn.Module):
    """Two linear maps around a Mish (arXiv:1908.08681)."""

    def __init__(self, width: int, inner_width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, inner_width)
        self.activation = Mish()
        self.output = nn.Linear(inner_width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return self.output(self.activation(self.inner(x)))


class SelfLayer(nn.Module):
    """x += attention(norm x); x += feed_forward(norm x)."""

    def __init__(self, width: int, heads: int, inner_width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, inner_width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, causal: bool = False, past: KVCache | None = None
    ) -> tuple[Tensor, KVCache]:
        """x (B, T, D) -> (B, T, D), and the KV cache of `past` and x together.

        mask: broadcastable to (B, H, T, past + T), True = attend. Without a mask, `causal` hides later positions.
        """
        normalized = self.attention_norm(x)
        seen = extend(past, self.attention.project_kv(normalized))
        x = x + self.dropout(self.attention(normalized, seen, mask, causal))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x))), seen


class CrossLayerOutput(NamedTuple):
    """Output of a layer with cross-attention."""

    x: Tensor
    """(B, T, D)."""

    seen: KVCache
    """KV cache of the past and of this call's positions together."""

    cross_attention: Tensor | None
    """(B, H, T, S) if it was requested."""


class CrossLayer(nn.Module):
    """x += self_attention(norm x); x += cross_attention(norm x, memory); x += feed_forward(norm x)."""

    def __init__(self, width: int, heads: int, inner_width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.cross_norm = nn.LayerNorm(width)
        self.cross_attention = Attention(width, heads)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, inner_width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        memory: KVCache,
        memory_mask: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        past: KVCache | None = None,
        show_attention: bool = False,
    ) -> CrossLayerOutput:
        """x (B, T, D), memory from `cross_attention.project_kv`, masks broadcastable to (B, H, T, S), True = attend.

        `mask`, `causal` and `past` concern self-attention, as in `SelfLayer`.
        """
        normalized = self.attention_norm(x)
        seen = extend(past, self.attention.project_kv(normalized))
        x = x + self.dropout(self.attention(normalized, seen, mask, causal))
        normalized, shown = self.cross_norm(x), None
        if show_attention:
            attended, shown = self.cross_attention.with_probabilities(normalized, memory, memory_mask)
        else:
            attended = self.cross_attention(normalized, memory, memory_mask)
        x = x + self.dropout(attended)
        return CrossLayerOutput(x + self.dropout(self.feed_forward(self.feed_forward_norm(x))), seen, shown)


def extend(past: KVCache | None, new: KVCache) -> KVCache:
    """The KV cache of `past`, if there is one, extended by `new`."""
    return new if past is None else past.extended(new)


def initialize(layers: nn.ModuleList) -> None:
    """Initialize a stack of layers: biases zero, residual branches scaled by depth to keep the variance."""
    branches = sum(3 if isinstance(layer, CrossLayer) else 2 for layer in layers)
    for name, parameter in layers.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif name.endswith("output.weight"):
            parameter.data.mul_(branches**-0.5)
