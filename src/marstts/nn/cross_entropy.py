"""Cross-entropy of many small classifications, and their accuracy.

Upstream: logits.  Downstream: training objectives.
In training on a CPU it is computed in chunks: PyTorch's kernels read the logits six times from memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK = 128
"""Rows computed at a time, few enough to stay in a core's cache from the first operation to the last."""


def cross_entropy(logits: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """logits (N, C), classes (N,) -> scalars: mean cross-entropy in nats, and accuracy.

    A row is correct if no class has a larger logit than its own.
    """
    if logits.requires_grad and logits.device.type == "cpu" and not torch.compiler.is_compiling():
        loss, correct = ChunkedCrossEntropy.apply(logits, classes)
        return loss, correct
    best, chosen = logits.detach().amax(dim=-1), logits.detach().gather(1, classes.unsqueeze(1)).squeeze(1)
    return F.cross_entropy(logits.float(), classes), (chosen >= best).float().mean()


class ChunkedCrossEntropy(torch.autograd.Function):
    """Loss and gradient in one pass over the logits; the backward pass only multiplies."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        gradient = torch.empty_like(logits)
        loss, correct = logits.new_zeros((), dtype=torch.float32), logits.new_zeros((), dtype=torch.float32)
        chunks = (tensor.split(CHUNK) for tensor in (logits, classes.unsqueeze(1), gradient))
        for logits_chunk, classes_chunk, gradient_chunk in zip(*chunks, strict=True):
            chunk_loss, chunk_correct = write_gradient(
                logits_chunk.float(), classes_chunk, 1 / len(logits), gradient_chunk
            )
            loss += chunk_loss
            correct += chunk_correct
        loss, correct = loss / len(logits), correct / len(logits)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    def backward(ctx: Any, loss: Tensor, right: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * loss, None


def write_gradient(logits: Tensor, classes: Tensor, weight: float, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """logits (n, C) float32, classes (n, 1) -> summed cross-entropy, number of correct rows.

    Writes `weight` times the gradient of the sum to `gradient` (n, C).
    """
    best = logits.amax(dim=1, keepdim=True)
    chosen = logits.gather(1, classes)
    likelihoods = (logits - best).exp_()
    mass = likelihoods.sum(dim=1, keepdim=True)
    loss = (mass.log() + best - chosen).sum()
    probabilities = likelihoods.mul_(weight / mass)
    probabilities.scatter_add_(1, classes, torch.full_like(chosen, -weight))
    gradient.copy_(probabilities)
    return loss, (chosen >= best).sum()
