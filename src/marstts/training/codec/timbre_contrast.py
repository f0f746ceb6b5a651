"""Contrast of timbre embeddings: what distinguishes them from their mean is scaled, in the weights of a trained codec.

Upstream: `task`, with segments of the training speakers.  Downstream: `export`.
Embeddings of all speakers are near their mean, for most of an embedding is what all voices share. A decoder that is
trained on noisy codes hedges, as a model does that classifier-free guidance (arXiv:2207.12598) pushes away from its
unconditional output; this is the same with embeddings, and costs nothing in synthesis.
Shapes: N references · S samples · V timbre_width · P width of the pooled statistics.
"""

from __future__ import annotations

import torch
from torch import Tensor

from marstts.codec.mini_model import MiniCodecModel


@torch.no_grad()
def scale_timbre_contrast(model: MiniCodecModel, references: Tensor, factor: float) -> None:
    """Multiply the part of timbre embeddings that is orthogonal to their mean by `factor`, before they are normalized.

    `references` (N, S) are segments of many speakers.  The projection W (V, P) and its bias b become A W and A b, with
    A = factor · I + (1 - factor) · u uᵀ and u the mean's direction.  `model` has a timbre encoder.
    """
    assert model.timbre_encoder is not None
    timbre = model.timbre_of(references)
    assert timbre is not None
    mean = timbre.mean(dim=0)
    direction = mean / mean.norm()
    scaling = factor * torch.eye(len(direction)) + (1 - factor) * torch.outer(direction, direction)
    project = model.timbre_encoder.project
    project.weight.copy_(scaling @ project.weight)
    project.bias.copy_(scaling @ project.bias)
