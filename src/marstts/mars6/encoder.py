"""The encoder: text and two speaker vectors in, the memory that the global decoder attends to out.

Upstream: `prompt` (text ids, embeddings).  Downstream: `decoders.GlobalDecoder`.
MARS6 (arXiv:2501.05787), Sec. III-A.  Deviations: gated projections of the speaker vectors, no final norm and
feed-forward layers of two times the width follow the published checkpoint, where the paper leaves them open.
Shapes: B batch · S text tokens · D width · E1, E2 sizes of the identity and style embeddings.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marstts.mars6.config import NUM_SLOTS, Conditioning, Mars6Config
from marstts.nn.attention import ScaledSinusoids, length_mask
from marstts.nn.transformer import SelfLayer, initialize

EMBEDDING_STD = 0.5
"""Standard deviation of initial embeddings: near that of the sinusoids (0.7), yet small enough to train quickly."""


class GatedProjection(nn.Module):
    """An embedding of any size to D: u = Linear(v) of D/2, then silu(W u) · (V u)."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.input = nn.Linear(size, width // 2)
        self.gate = nn.Linear(width // 2, width, bias=False)
        self.value = nn.Linear(width // 2, width, bias=False)

    def forward(self, vector: Tensor) -> Tensor:
        """(B, E) -> (B, D)."""
        hidden = self.input(vector)
        return F.silu(self.gate(hidden)) * self.value(hidden)


class TwoSlots(nn.Module):
    """The paper's conditioning: the identity and style vectors, each projected, are two slots."""

    count = NUM_SLOTS

    def __init__(self, config: Mars6Config) -> None:
        super().__init__()
        self.identity = GatedProjection(config.identity_size, config.width)
        self.style = GatedProjection(config.style_size, config.width)

    def forward(self, identity: Tensor, style: Tensor, language: Tensor) -> Tensor:
        """identity (B, E1), style (B, E2) -> (B, 2, D); the language is not used."""
        return torch.stack((self.identity(identity), self.style(style)), dim=1)

    def add_language(self, memory: Tensor, language: Tensor) -> Tensor:
        """Return the memory unchanged."""
        return memory


class FusedSlot(nn.Module):
    """The published checkpoint's conditioning: a language slot, then both vectors joined into one slot."""

    count = NUM_SLOTS

    def __init__(self, config: Mars6Config) -> None:
        super().__init__()
        self.identity = GatedProjection(config.identity_size, config.width)
        self.style = GatedProjection(config.style_size, config.width)
        self.joiner = nn.Linear(2 * config.width, config.width)
        self.language = nn.Embedding(config.languages, config.width)
        self.memory_language = nn.Embedding(config.languages, config.width)
        self.unknown_identity = nn.Parameter(torch.randn(config.identity_size))
        self.unknown_style = nn.Parameter(torch.randn(config.style_size))

    def forward(self, identity: Tensor, style: Tensor, language: Tensor) -> Tensor:
        """identity (B, E1), style (B, E2), language (B,) -> (B, 2, D)."""
        joined = self.joiner(torch.cat((self.identity(identity), self.style(style)), dim=-1))
        return torch.stack((self.language(language).to(joined.dtype), joined), dim=1)

    def add_language(self, memory: Tensor, language: Tensor) -> Tensor:
        """Add the second language embedding to slot 0 of the memory (B, S, D)."""
        first = memory[:, :1] + self.memory_language(language).unsqueeze(1)
        return torch.cat((first, memory[:, 1:]), dim=1)

    def null_speaker(self, batch: int) -> tuple[Tensor, Tensor]:
        """Trained null embeddings (B, E1), (B, E2), used by guidance."""
        return self.unknown_identity.expand(batch, -1), self.unknown_style.expand(batch, -1)


class TextEncoder(nn.Module):
    """Speaker slots and text tokens through non-causal layers."""

    def __init__(self, config: Mars6Config) -> None:
        super().__init__()
        self.text_embedding = nn.Embedding(config.text_vocab_size, config.width)
        self.positions = ScaledSinusoids()
        self.slots: TwoSlots | FusedSlot
        self.slots = FusedSlot(config) if config.conditioning is Conditioning.FUSED else TwoSlots(config)
        inner_width = config.feed_forward_factor * config.width
        self.layers = nn.ModuleList(
            SelfLayer(config.width, config.heads, inner_width, config.dropout) for _ in range(config.encoder_layers)
        )
        nn.init.normal_(self.text_embedding.weight, std=EMBEDDING_STD)
        initialize(self.layers)

    def forward(
        self, text_ids: Tensor, text_lengths: Tensor, identity: Tensor, style: Tensor, language: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """text_ids (B, S) padded with any valid id, text_lengths (B,), identity (B, E1), style (B, E2), language (B,)
        -> memory (B, slots + S, D), memory_mask (B, slots + S) True = attend.
        """
        language = torch.zeros_like(text_lengths) if language is None else language
        text = self.text_embedding(text_ids)
        text = self.positions(text, torch.arange(text_ids.shape[1], device=text_ids.device))
        slots = self.slots(identity, style, language)
        x = torch.cat((slots.to(text.dtype), text), dim=1)
        memory_mask = length_mask(text_lengths + self.slots.count, x.shape[1])
        for layer in self.layers:
            x, _ = layer(x, memory_mask[:, None, None, :])
        return self.slots.add_language(x, language), memory_mask
