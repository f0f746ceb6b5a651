"""Sinusoidal positions with a learned scale.

Upstream: embedded tokens.  Downstream: `transformer`.  Vaswani et al. (arXiv:1706.03762), Sec. 3.5; the learned
scale is that of Li et al. (arXiv:1809.08895).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """positions (...) -> (..., width) float32: even columns sin(p · 10000^(-2i/width)), odd ones the cosines."""
    exponents = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
    angles = positions.float().unsqueeze(-1) * torch.exp(-math.log(10_000.0) * exponents)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(start_dim=-2)[..., :width]


class ScaledSinusoids(nn.Module):
    """x + alpha · sinusoids(positions), alpha learned, initially one."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (..., T, width), positions broadcastable to (..., T) -> x with positions, in x's dtype."""
        return x + (self.alpha * sinusoids(positions, x.shape[-1])).to(x.dtype)
