"""Cross-attention of the global decoder: how monotonic it is, and the loss that guides it.

Upstream: the attention weights that `Mars6.forward` returns.  Downstream: `task`.
Shapes: B batch · H heads · T patches · S text tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from marstts.mars6.objective import guided_attention_loss
from marstts.training.mars6.batches import PretrainBatch
from marstts.training.mars6.config import AttentionGuidanceConfig


def attention_guidance_loss(
    cross_attention: tuple[Tensor, ...], batch: PretrainBatch, num_slots: int, config: AttentionGuidanceConfig
) -> Tensor:
    """The mean guided attention loss over layers (B, H, T, slots + S): a scalar to minimize."""
    losses = [
        guided_attention_loss(
            attention[:, : config.heads],
            batch.text_lengths,
            batch.patch_lengths,
            num_slots=num_slots,
            boundaries=batch.boundaries,
            width=config.width,
        )
        for attention in cross_attention
    ]
    return torch.stack(losses).mean()


def attention_scores(cross_attention: tuple[Tensor, ...], patch_lengths: Tensor, heads: int) -> dict[str, Tensor]:
    """`attention_peak` and `attention_monotonicity` over the first heads of the layers (B, H, T, slots + S).

    The peak is the mean of each patch's highest attention weight. Monotonicity is the correlation of a patch's position
    with the mean position that it attends to. Empty without layers.
    """
    if not cross_attention:
        return {}
    attention = torch.stack([layer.detach()[:, :heads] for layer in cross_attention], dim=1).flatten(1, 2).float()
    patch = torch.arange(attention.shape[2], device=attention.device)
    valid = (patch < patch_lengths.unsqueeze(1)).unsqueeze(1)  # (B, 1, T)
    count = valid.sum(dim=-1, keepdim=True)
    position = attention @ torch.arange(attention.shape[3], device=attention.device).float()  # (B, heads, T)
    position = (position - (position * valid).sum(dim=-1, keepdim=True) / count) * valid
    time = (patch - (patch * valid).sum(dim=-1, keepdim=True) / count) * valid
    correlation = (position * time).sum(dim=-1) / (position.norm(dim=-1) * time.norm(dim=-1)).clamp_min(1e-6)
    peak = (attention.amax(dim=-1) * valid).sum(dim=-1) / count.squeeze(-1)
    return {"attention_peak": peak.mean(), "attention_monotonicity": correlation.mean()}
