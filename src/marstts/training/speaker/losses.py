"""Losses and scores of the speaker encoders.

Upstream: embeddings.  Downstream: `task`.
Additive angular margin after arXiv:1801.07698; gradient reversal after arXiv:1505.07818.
Shapes: B batch · E embedding size · C classes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn


class Prototypes(nn.Module):
    """One direction per class; embeddings (B, E) -> cosines (B, C)."""

    def __init__(self, size: int, classes: int) -> None:
        super().__init__()
        self.directions = nn.Parameter(torch.randn(classes, size) * 0.1)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Cosines of the embeddings with all directions."""
        return embeddings @ F.normalize(self.directions, dim=1).T


class StyleHead(nn.Module):
    """Outputs on top of style embeddings: style classes, style attributes, and the speaker (the adversary)."""

    def __init__(self, size: int, styles: int, speakers: int, attributes: int) -> None:
        super().__init__()
        self.styles = Prototypes(size, styles)
        self.attributes = nn.Linear(size, attributes)
        self.speakers = nn.Sequential(nn.Linear(size, 128), nn.ReLU(), nn.Linear(128, speakers))


class ReverseGradient(torch.autograd.Function):
    """The identity, whose gradient is negated and weighted."""

    @staticmethod
    def forward(context: Any, values: Tensor, weight: float) -> Tensor:
        context.weight = weight
        return values.view_as(values)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -context.weight * gradients[0], None


def angular_margin(cosines: Tensor, classes: Tensor, margin: float) -> Tensor:
    """cosines (B, C) with `margin` radians added to the angle of each row's true class (B,)."""
    is_true = F.one_hot(classes, cosines.shape[1]).bool()
    clamped = cosines.clamp(-1 + 1e-6, 1 - 1e-6)
    moved = torch.cos((torch.acos(clamped) + margin).clamp(max=math.pi))
    return torch.where(is_true, moved, cosines)


def masked_distance(predicted: Tensor, target: Tensor) -> Tensor:
    """Mean smooth L1 distance where `target` is a number."""
    known = ~torch.isnan(target)
    return F.smooth_l1_loss(predicted[known], target[known])


def accuracy(scores: Tensor, classes: Tensor) -> Tensor:
    """Ratio of rows (B, C) with the highest score at their class (B,)."""
    return (scores.argmax(dim=1) == classes).float().mean()


def correlation(predicted: NDArray[np.float32], target: NDArray[np.float32]) -> float:
    """Pearson correlation where `target` is a number; 0 where one of both is constant."""
    known = ~np.isnan(target)
    predicted, target = predicted[known], target[known]
    if len(predicted) < 2 or not predicted.std() or not target.std():
        return 0.0
    return float(np.corrcoef(predicted, target)[0, 1])
