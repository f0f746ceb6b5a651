"""The layers MARS5 is built from: SwiGLU encoder and decoder layers, and the speaker encoder both models have.

Upstream: embedded sequences, reference codes.  Downstream: `ar.CodecLM`, `nar.ResidualTransformer`.
Pre-norm layers whose norms use an epsilon of 4e-5, with biases everywhere but in the gates, as published.
Shapes: B batch · T positions · S memory positions · D width · F inner width · H heads · L levels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marstts.nn.attention import ScaledSinusoids, length_mask

NORM_EPSILON = 4e-5

WEIGHT_STD = 0.02
"""Standard deviation of initial weights."""

EMBEDDING_STD = 0.5
"""Standard deviation of initial embeddings: near that of the sinusoids (0.7). With 0.02 a small NAR learned nothing for
thousands of steps, since its codes were lost under the positions."""


class Attention(nn.Module):
    """Scaled dot-product attention (arXiv:1706.03762, Sec. 3.2.2) with biases."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """x (B, T, D) attends to memory (B, S, D) where mask (B, S) is True -> (B, T, D)."""
        queries = self._split(self.query(x))
        keys, values = (self._split(part) for part in self.key_value(memory).chunk(2, dim=-1))
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask[:, None, None, :])
        return self.output(mixed.transpose(1, 2).flatten(start_dim=2))

    def _split(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, H, T, D / H)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class SwiGLU(nn.Module):
    """output(silu(gate x) · value x) (arXiv:2002.05202)."""

    def __init__(self, width: int, inner_width: int, output_bias: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner_width, bias=False)
        self.value = nn.Linear(width, inner_width, bias=False)
        self.output = nn.Linear(inner_width, width, bias=output_bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return self.output(F.silu(self.gate(x)) * self.value(x))


class EncoderLayer(nn.Module):
    """x += attention(norm x); x += feed_forward(norm x)."""

    def __init__(self, width: int, heads: int, inner_width: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, NORM_EPSILON)
        self.attention = Attention(width, heads)
        self.feed_forward_norm = nn.LayerNorm(width, NORM_EPSILON)
        self.feed_forward = SwiGLU(width, inner_width, output_bias=True)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (B, T, D), mask (B, T) True = attend -> (B, T, D)."""
        normed = self.attention_norm(x)
        x = x + self.attention(normed, normed, mask)
        return x + self.feed_forward(self.feed_forward_norm(x))


class DecoderLayer(nn.Module):
    """x += self_attention(norm x); x += cross_attention(norm x, memory); x += feed_forward(norm x).  Not causal."""

    def __init__(self, width: int, heads: int, inner_width: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, NORM_EPSILON)
        self.attention = Attention(width, heads)
        self.cross_norm = nn.LayerNorm(width, NORM_EPSILON)
        self.cross_attention = Attention(width, heads)
        self.feed_forward_norm = nn.LayerNorm(width, NORM_EPSILON)
        self.feed_forward = SwiGLU(width, inner_width, output_bias=True)

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """x (B, T, D), mask (B, T), memory (B, S, D), memory_mask (B, S), True = attend -> (B, T, D)."""
        normed = self.attention_norm(x)
        x = x + self.attention(normed, normed, mask)
        x = x + self.cross_attention(self.cross_norm(x), memory, memory_mask)
        return x + self.feed_forward(self.feed_forward_norm(x))


class CodeEmbedding(nn.Module):
    """A frame's codes as one vector: each level has a table of width D / L, and they are laid side by side."""

    def __init__(self, levels: int, codebook_size: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(codebook_size + 1, width // levels) for _ in range(levels))

    def forward(self, codes: Tensor) -> Tensor:
        """codes (B, T, L), 0 to codebook_size (padding) -> (B, T, D)."""
        embedded = [table(level) for table, level in zip(self.tables, codes.unbind(dim=-1), strict=True)]
        return torch.cat(embedded, dim=-1)


class ReferenceEncoder(nn.Module):
    """Reference codes of all levels to one vector: what an identity token gathers from them.  Not causal."""

    def __init__(
        self, *, levels: int, codebook_size: int, width: int, layers: int, heads: int, inner_width: int
    ) -> None:
        super().__init__()
        self.codes = CodeEmbedding(levels, codebook_size, width)
        self.identity = nn.Parameter(torch.randn(width))
        self.positions = ScaledSinusoids()
        self.layers = nn.ModuleList(EncoderLayer(width, heads, inner_width) for _ in range(layers))
        self.norm = nn.LayerNorm(width, NORM_EPSILON)

    def embed(self, codes: Tensor) -> Tensor:
        """codes (B, T, L) -> (B, 1 + T, D): the identity token, then one vector per frame, with positions."""
        identity = self.identity.expand(codes.shape[0], 1, -1)  # the length would be constant in graphs
        x = torch.cat((identity, self.codes(codes)), dim=1)
        return self.positions(x, torch.arange(x.shape[1], device=x.device))

    def forward(self, codes: Tensor, lengths: Tensor) -> Tensor:
        """codes (B, T, L) padded with any code, lengths (B,) frames that count, perhaps 0 -> (B, D)."""
        x = self.embed(codes)
        mask = length_mask(lengths + 1, x.shape[1])
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x[:, 0])


def initialize(module: nn.Module, layers: int) -> None:
    """Start the weights of a stack: normal with 0.02, biases zero, residual outputs smaller the more `layers`.

    Embeddings are larger: sinusoids are added to them.
    """
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() >= 2:
            is_output = name.endswith("output.weight") and "layers." in name
            nn.init.normal_(parameter, std=WEIGHT_STD * ((2 * layers) ** -0.5 if is_output else 1.0))
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=EMBEDDING_STD)
