"""ResidualTransformer, the non-autoregressive half: logits of the clean codes of all levels, given noisy ones.

Upstream: the AR's level-0 codes and `diffusion` (noisy codes at a timestep).  Downstream: `repaint` (speaking),
`objective` (training).
The encoder's input is speaker vector and text, the decoder's is noisy codes; both get the timestep; neither is causal.
Deviations from the published code: the speaker vector is a value that is computed once per reference, not once per
timestep; logits are (B, T, L, K) instead of (B, T, K, L).
Shapes: B batch · S text tokens · R reference frames · T frames · D width · L levels · K classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marstts.mars5.config import ResidualTransformerConfig
from marstts.mars5.layers import (
    NORM_EPSILON,
    CodeEmbedding,
    DecoderLayer,
    EncoderLayer,
    ReferenceEncoder,
    initialize,
    length_mask,
)
from marstts.nn.attention import ScaledSinusoids

LONGEST_WAVE = 10_000.0
"""Timesteps per radian of the slowest cosine, as for positions."""


@dataclass(frozen=True)
class Conditioning:
    """Conditioning of B utterances, without the timestep."""

    text_ids: Tensor
    """(B, S) padded with any id."""

    text_lengths: Tensor
    """(B,)."""

    speaker: Tensor
    """(B, D) from `ResidualTransformer.encode_speaker`."""


def timestep_waves(timesteps: Tensor, width: int) -> Tensor:
    """timesteps (B,) -> (B, width) float32: cosines, then sines, of t · 10000^(-2k/width)."""
    half = width // 2
    frequencies = torch.exp(-math.log(LONGEST_WAVE) * torch.arange(half, device=timesteps.device) / half)
    angles = timesteps.float().unsqueeze(1) * frequencies
    return torch.cat((angles.cos(), angles.sin()), dim=1)


class TimestepEmbedding(nn.Module):
    """A timestep as a vector: its waves through two linear maps around a SiLU."""

    def __init__(self, waves: int, width: int) -> None:
        super().__init__()
        self.waves = waves
        self.input = nn.Linear(waves, width)
        self.output = nn.Linear(width, width)

    def forward(self, timesteps: Tensor) -> Tensor:
        """(B,) -> (B, 1, D), to be added to every position."""
        return self.output(F.silu(self.input(timestep_waves(timesteps, self.waves)))).unsqueeze(1)


class ClassHead(nn.Module):
    """A LayerNorm of PyTorch's usual epsilon and a linear map to the classes of one level."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., K)."""
        return self.output(self.norm(x))


class ResidualTransformer(nn.Module):
    """Text, a speaker and noisy codes at a timestep to logits of the clean codes."""

    def __init__(self, config: ResidualTransformerConfig) -> None:
        super().__init__()
        self.config = config
        width, heads, inner = config.width, config.heads, config.feed_forward_width
        self.speaker_encoder = ReferenceEncoder(
            levels=config.levels,
            codebook_size=config.codebook_size,
            width=width,
            layers=config.speaker_layers,
            heads=heads,
            inner_width=inner,
        )
        self.text_embedding = nn.Embedding(config.text_vocab_size, width)
        self.text_positions = ScaledSinusoids()
        self.text_timestep = TimestepEmbedding(config.timestep_width, width)
        self.encoder = nn.ModuleList(EncoderLayer(width, heads, inner) for _ in range(config.encoder_layers))
        self.encoder_norm = nn.LayerNorm(width, NORM_EPSILON)
        self.code_embedding = CodeEmbedding(config.levels, config.codebook_size, width)
        self.code_positions = ScaledSinusoids()
        self.code_timestep = TimestepEmbedding(config.timestep_width, width)
        self.decoder = nn.ModuleList(DecoderLayer(width, heads, inner) for _ in range(config.decoder_layers))
        self.decoder_norm = nn.LayerNorm(width, NORM_EPSILON)
        self.heads = nn.ModuleList(ClassHead(width, config.num_classes) for _ in range(config.levels))
        initialize(self, config.decoder_layers)

    def encode_speaker(self, codes: Tensor, lengths: Tensor) -> Tensor:
        """codes (B, R, L) padded with any class, lengths (B,) -> (B, D); length 0 gives the null speaker."""
        return self.speaker_encoder(codes, lengths)

    def null_speaker(self, batch: int) -> Tensor:
        """(B, D): the speaker vector of rows whose conditioning is dropped."""
        device = self.speaker_encoder.identity.device
        no_codes = torch.zeros(1, 0, self.config.levels, dtype=torch.long, device=device)
        return self.encode_speaker(no_codes, torch.zeros(1, dtype=torch.long, device=device)).expand(batch, -1)

    def forward(self, codes: Tensor, lengths: Tensor, timesteps: Tensor, given: Conditioning) -> Tensor:
        """codes (B, T, L) noisy as at `timesteps` (B,), padded with any class; lengths (B,) -> logits (B, T, L, K)."""
        memory, memory_mask = self.encode(given, timesteps)
        x = self.code_positions(self.code_embedding(codes), torch.arange(codes.shape[1], device=codes.device))
        x = x + self.code_timestep(timesteps)
        mask = length_mask(lengths, codes.shape[1])
        for layer in self.decoder:
            x = layer(x, mask, memory, memory_mask)
        x = self.decoder_norm(x)
        return torch.stack([head(x) for head in self.heads], dim=2)

    def encode(self, given: Conditioning, timesteps: Tensor) -> tuple[Tensor, Tensor]:
        """-> memory (B, 1 + S, D) and its mask (B, 1 + S): the speaker first, then the text."""
        x = torch.cat((given.speaker.unsqueeze(1), self.text_embedding(given.text_ids)), dim=1)
        x = self.text_positions(x, torch.arange(x.shape[1], device=x.device)) + self.text_timestep(timesteps)
        mask = length_mask(given.text_lengths + 1, x.shape[1])
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x), mask
