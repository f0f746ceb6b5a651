"""Guided attention: the loss that makes a decoder's attention to the text monotonic, and how monotonic it is.

Upstream: cross-attention of MARS6.  Downstream: `mars6.task`.
After Tachibana et al. (arXiv:1710.08969), as a likelihood: their penalty grows with the distance from the diagonal,
here attention outside of a band around it is lost.
Shapes: B batch · H heads · T patches or tokens of speech · S text tokens.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from marstts.io.config import Config
from marstts.nn.attention import length_mask
from marstts_lab.training.bounds import Weight


class AttentionGuidanceConfig(Config):
    """Guided attention loss (after arXiv:1710.08969) in the first part of a training.

    It is the negative log of the attention to text on a diagonal band, and helps attention to become monotonic.
    """

    weight: Weight = 0.3
    """Weight of the guided attention loss next to the cross-entropy; 0 = none."""

    layers: tuple[int, ...] = (2, 3)
    """Layers of the decoder, from 0, that are guided, and whose attention is logged."""

    heads: int = Field(2, gt=0)
    """The first this many heads of each layer are guided; the others are free."""

    end_step: int = Field(20_000, ge=0)
    """No guidance from this step on."""

    width: float = Field(0.13, gt=0.0, le=1.0)
    """Half the width of the diagonal band, as a ratio of the length."""


def attention_guidance_loss(
    layers: tuple[Tensor, ...],
    text_lengths: Tensor,
    patch_lengths: Tensor,
    config: AttentionGuidanceConfig,
    *,
    num_slots: int = 0,
    boundaries: Tensor | None = None,
) -> Tensor:
    """The mean guided attention loss over layers (B, H, T, slots + S): a scalar to minimize."""
    losses = [
        guided_attention_loss(
            attention[:, : config.heads],
            text_lengths,
            patch_lengths,
            num_slots=num_slots,
            boundaries=boundaries,
            width=config.width,
        )
        for attention in layers
    ]
    return torch.stack(losses).mean()


def attention_scores(layers: tuple[Tensor, ...], patch_lengths: Tensor, heads: int) -> dict[str, Tensor]:
    """`attention_peak` and `attention_monotonicity` over the first heads of the layers (B, H, T, slots + S).

    The peak is the mean of each patch's highest attention weight. Monotonicity is the correlation of a patch's position
    with the mean position that it attends to. Empty without layers.
    """
    if not layers:
        return {}
    attention = torch.stack([layer.detach()[:, :heads] for layer in layers], dim=1).flatten(1, 2).float()
    patch = torch.arange(attention.shape[2], device=attention.device)
    valid = (patch < patch_lengths.unsqueeze(1)).unsqueeze(1)  # (B, 1, T)
    count = valid.sum(dim=-1, keepdim=True)
    position = attention @ torch.arange(attention.shape[3], device=attention.device).float()  # (B, heads, T)
    position = (position - (position * valid).sum(dim=-1, keepdim=True) / count) * valid
    time = (patch - (patch * valid).sum(dim=-1, keepdim=True) / count) * valid
    correlation = (position * time).sum(dim=-1) / (position.norm(dim=-1) * time.norm(dim=-1)).clamp_min(1e-6)
    peak = (attention.amax(dim=-1) * valid).sum(dim=-1) / count.squeeze(-1)
    return {"attention_peak": peak.mean(), "attention_monotonicity": correlation.mean()}


def guided_attention_loss(
    attention: Tensor,
    text_lengths: Tensor,
    patch_lengths: Tensor,
    *,
    num_slots: int,
    boundaries: Tensor | None = None,
    width: float = 0.13,
) -> Tensor:
    """Return -log of the attention inside the diagonal band, averaged over heads and patches: a scalar to minimize.

    attention (B, H, T, num_slots + S), text_lengths (B,), patch_lengths (B,), boundaries (B, 2) as in
    `diagonal_band`. Attention to the speaker slots counts as outside, so it does not lower the loss.
    """
    band = diagonal_band(
        text_lengths, patch_lengths, attention.shape[3] - num_slots, attention.shape[2], boundaries, width
    )
    inside = (attention[..., num_slots:] * band.unsqueeze(1)).sum(dim=-1)  # (B, H, T)
    valid = length_mask(patch_lengths, attention.shape[2]).unsqueeze(1).expand_as(inside)
    return -inside[valid].clamp_min(1e-6).log().mean()


def diagonal_band(
    text_lengths: Tensor,
    patch_lengths: Tensor,
    num_tokens: int,
    num_patches: int,
    boundaries: Tensor | None = None,
    width: float = 0.13,
) -> Tensor:
    """(B, num_patches, num_tokens): True where patch t of n and text token s of m have |t/n - s/m| <= width.

    boundaries (B, 2), patch and text token at which a second utterance begins (0, 0 = there is none): the
    two utterances then have a diagonal each. Bands of short texts are widened to hold a token for every patch.
    """
    if boundaries is None:
        boundaries = torch.zeros(len(text_lengths), 2, dtype=torch.long, device=text_lengths.device)
    patch_second, patch_position, _ = relative_positions(patch_lengths, boundaries[:, 0], num_patches)
    text_second, text_position, text_step = relative_positions(text_lengths, boundaries[:, 1], num_tokens)
    distance = (patch_position.unsqueeze(2) - text_position.unsqueeze(1)).abs()
    near = distance <= text_step.clamp_min(width).unsqueeze(1)
    same = patch_second.unsqueeze(2) == text_second.unsqueeze(1)
    return near & same & length_mask(text_lengths, num_tokens).unsqueeze(1)


def relative_positions(lengths: Tensor, boundaries: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Whether each index up to `size` is in the second part, its relative position and its width: (B, size) each."""
    index = torch.arange(size, device=lengths.device)
    boundaries, lengths = boundaries.unsqueeze(1), lengths.unsqueeze(1)
    second = index >= boundaries
    start = torch.where(second, boundaries, 0)
    end = torch.where(second, lengths, boundaries)
    step = 1.0 / (end - start).clamp_min(1)
    return second, (index - start) * step, step
