"""CodecLM, the autoregressive half: text and speech tokens in, logits of the next token out.

Upstream: `prompt` (joint ids), reference codes.  Downstream: `generate` (speaking), `objective` (training).
A decoder in the manner of Mistral (arXiv:2310.06825): RMSNorm, rotary positions, a sliding window, SwiGLU.  The first
position of the sequence is the speaker vector; its output is left out.
The KV cache is a value that the caller holds: `begin` makes a `DecoderState`, `advance` returns the next one.
Deviation from the published code: its cache holds `window` keys where its full pass attends to `window` + 1; here both
attend to `window` + 1, so cached and uncached logits agree beyond the window too.
Shapes: B batch · T tokens · S cached positions · D width · H heads · d head size · V joint vocabulary · L levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marstts.mars5.config import CodecLMConfig
from marstts.mars5.layers import WEIGHT_STD, ReferenceEncoder, SwiGLU, initialize
from marstts.nn.attention import length_mask

RMS_EPSILON = 1e-5
ROTARY_BASE = 10_000.0

EMPTY = -1
"""Position of a cache entry that holds nothing."""


class KeyValues(NamedTuple):
    """Keys and values of one layer, (B, H, S, d) each, rotary positions applied; never changed in place."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True)
class DecoderState:
    """State of the decoder for B sequences: a value, replaced by every step."""

    logits: Tensor
    """(B, V) of the next token."""

    lengths: Tensor
    """(B,) positions processed so far, the speaker's included: the position of the next token."""

    key_positions: Tensor
    """(B, S) position of each cache entry, or -1 where a row has none."""

    seen: tuple[KeyValues, ...]
    """Per layer."""

    def select(self, rows: Tensor) -> DecoderState:
        """Return only the rows (N,), in that order."""
        return DecoderState(
            logits=self.logits[rows],
            lengths=self.lengths[rows],
            key_positions=self.key_positions[rows],
            seen=tuple(KeyValues(layer.keys[rows], layer.values[rows]) for layer in self.seen),
        )


def join_states(states: Sequence[DecoderState]) -> DecoderState:
    """The rows of all states, at least one, side by side."""
    size = max(state.key_positions.shape[1] for state in states)

    def join(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([F.pad(part, (0, 0, 0, size - part.shape[2])) for part in parts])

    return DecoderState(
        logits=torch.cat([state.logits for state in states]),
        lengths=torch.cat([state.lengths for state in states]),
        key_positions=torch.cat(
            [F.pad(s.key_positions, (0, size - s.key_positions.shape[1]), value=EMPTY) for s in states]
        ),
        seen=tuple(
            KeyValues(join([layer.keys for layer in layers]), join([layer.values for layer in layers]))
            for layers in zip(*(state.seen for state in states), strict=True)
        ),
    )


class RMSNorm(nn.Module):
    """weight · x / rms(x), computed in float32 (arXiv:1910.07467)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + RMS_EPSILON)).type_as(x) * self.weight


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary positions (arXiv:2104.09864): turn each pair (2i, 2i + 1) of x (B, H, T, d) by position · base^(-2i/d).

    positions (B, T).  Computed in float32; the dtype of x stays.
    """
    size = x.shape[-1]
    frequencies = ROTARY_BASE ** (-torch.arange(0, size, 2, device=x.device, dtype=torch.float32) / size)
    angles = positions[:, None, :, None].float() * frequencies  # (B, 1, T, d / 2)
    cosine, sine = angles.cos(), angles.sin()
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(dim=-1)
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1).flatten(-2).type_as(x)


class WindowAttention(nn.Module):
    """Causal attention with rotary positions and without biases."""

    def __init__(self, config: CodecLMConfig) -> None:
        super().__init__()
        self.heads = config.heads
        inner = config.heads * config.head_size
        self.query = nn.Linear(config.width, inner, bias=False)
        self.key = nn.Linear(config.width, inner, bias=False)
        self.value = nn.Linear(config.width, inner, bias=False)
        self.output = nn.Linear(inner, config.width, bias=False)

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor, past: KeyValues | None) -> tuple[Tensor, KeyValues]:
        """x (B, T, D) at positions (B, T), mask (B, T, S + T) True = attend -> (B, T, D), and the KV cache with x."""
        queries, keys = (rotate(self._split(part(x)), positions) for part in (self.query, self.key))
        values = self._split(self.value(x))
        if past is not None:
            keys, values = torch.cat((past.keys, keys), dim=2), torch.cat((past.values, values), dim=2)
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask.unsqueeze(1))
        return self.output(mixed.transpose(1, 2).flatten(start_dim=2)), KeyValues(keys, values)

    def _split(self, x: Tensor) -> Tensor:
        """(B, T, H d) -> (B, H, T, d)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class DecoderBlock(nn.Module):
    """x += attention(norm x); x += feed_forward(norm x)."""

    def __init__(self, config: CodecLMConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.width)
        self.attention = WindowAttention(config)
        self.feed_forward_norm = RMSNorm(config.width)
        self.feed_forward = SwiGLU(config.width, config.feed_forward_width, output_bias=False)

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor, past: KeyValues | None) -> tuple[Tensor, KeyValues]:
        """See `WindowAttention.forward`."""
        change, seen = self.attention(self.attention_norm(x), positions, mask, past)
        x = x + change
        return x + self.feed_forward(self.feed_forward_norm(x)), seen


class CodecLM(nn.Module):
    """Reference codes, text and speech so far to the next token of speech."""

    def __init__(self, config: CodecLMConfig) -> None:
        super().__init__()
        self.config = config
        self.speaker_encoder = ReferenceEncoder(
            levels=config.levels,
            codebook_size=config.codebook_size,
            width=config.width,
            layers=config.speaker_layers,
            heads=config.speaker_heads,
            inner_width=config.speaker_feed_forward_width,
        )
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.layers = nn.ModuleList(DecoderBlock(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width)
        self.output = nn.Linear(config.width, config.vocab_size, bias=False)
        initialize(self, config.layers)
        nn.init.normal_(self.embedding.weight, std=WEIGHT_STD)  # no sinusoids are added to these

    def encode_speaker(self, codes: Tensor, lengths: Tensor | None = None) -> Tensor:
        """codes (B, T, L), lengths (B,) or None: up to the first padding class of level 0 -> (B, D).

        It depends on the reference alone: once per voice is enough.
        """
        lengths = frames_before_padding(codes, self.config.codebook_size) if lengths is None else lengths
        return self.speaker_encoder(codes, lengths)

    def forward(self, tokens: Tensor, speaker: Tensor | None) -> Tensor:
        """tokens (B, T) padded at the end with any id, speaker (B, D) or None -> logits (B, T, V).

        `logits[b, t]` scores `tokens[b, t + 1]`: causality keeps the padding out of what precedes it.
        """
        x = self.embed(tokens, speaker)
        positions = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
        x, _ = self.decode(x, positions, positions, None)
        return self.output(x if speaker is None else x[:, 1:])

    def begin(self, tokens: Tensor, lengths: Tensor, speaker: Tensor | None) -> DecoderState:
        """Process prompts: tokens (B, T) padded at the end with any id, lengths (B,) at least 1, speaker (B, D)."""
        x = self.embed(tokens, speaker)
        lengths = lengths + (x.shape[1] - tokens.shape[1])
        positions = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
        x, seen = self.decode(x, positions, positions, None)
        last = x[torch.arange(len(x), device=x.device), lengths - 1]
        key_positions = positions.masked_fill(~length_mask(lengths, x.shape[1]), EMPTY)
        return evict(DecoderState(self.output(last), lengths, key_positions, seen), self.config.window)

    def advance(self, state: DecoderState, tokens: Tensor) -> DecoderState:
        """Process one more token per row, tokens (B,)."""
        positions = state.lengths.unsqueeze(1)
        key_positions = torch.cat((state.key_positions, positions), dim=1)
        x, seen = self.decode(self.embedding(tokens.unsqueeze(1)), positions, key_positions, state.seen)
        return evict(DecoderState(self.output(x[:, 0]), state.lengths + 1, key_positions, seen), self.config.window)

    def embed(self, tokens: Tensor, speaker: Tensor | None) -> Tensor:
        """tokens (B, T), speaker (B, D) or None -> (B, 1 + T, D), or (B, T, D) without a speaker."""
        x = self.embedding(tokens)
        return x if speaker is None else torch.cat((speaker.unsqueeze(1).to(x.dtype), x), dim=1)

    def decode(
        self, x: Tensor, positions: Tensor, key_positions: Tensor, past: tuple[KeyValues, ...] | None
    ) -> tuple[Tensor, tuple[KeyValues, ...]]:
        """x (B, T, D) at positions (B, T); key_positions (B, S) of past and x -> normed outputs, keys and values."""
        mask = window_mask(positions, key_positions, self.config.window)
        seen = []
        for index, layer in enumerate(self.layers):
            x, layer_seen = layer(x, positions, mask, None if past is None else past[index])
            seen.append(layer_seen)
        return self.norm(x), tuple(seen)


def evict(state: DecoderState, window: int) -> DecoderState:
    """`state` without the cache entries that no row will attend to again."""
    if state.key_positions.shape[1] <= window:
        return state
    kept = (state.key_positions >= (state.lengths - window).unsqueeze(1)).any(dim=0)
    return DecoderState(
        logits=state.logits,
        lengths=state.lengths,
        key_positions=state.key_positions[:, kept],
        seen=tuple(KeyValues(layer.keys[:, :, kept], layer.values[:, :, kept]) for layer in state.seen),
    )


def window_mask(positions: Tensor, key_positions: Tensor, window: int) -> Tensor:
    """positions (B, T), key_positions (B, S) -> (B, T, S): True for keys from position - window to position."""
    distance = positions.unsqueeze(2) - key_positions.unsqueeze(1)
    return (distance >= 0) & (distance <= window) & (key_positions != EMPTY).unsqueeze(1)


def frames_before_padding(codes: Tensor, padding: int) -> Tensor:
    """codes (B, T, L) -> (B,): frames before the first whose level 0 is the padding class."""
    return (codes[..., 0] != padding).to(torch.int64).cumprod(dim=1).sum(dim=1)
