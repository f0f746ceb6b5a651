"""`marstts.generation.sampling` in PyTorch, for a device that must not wait for the host to choose a token.

Upstream: logits of the local decoder.  Downstream: `cuda_step`, inside a captured graph.
The same decisions as the NumPy functions of the same names, for the same uniform numbers: probabilities are float64
here too. No function reads a value, so none makes the host wait; inputs stay unchanged.

B rows · V ids · K recent ids
"""

from __future__ import annotations

import torch
from torch import Tensor

from marstts.generation.sampling import NO_ID


def draw(logits: Tensor, uniforms: Tensor) -> Tensor:
    """logits (B, V), uniforms (B,) float64 -> (B,): the first id whose cumulative probability exceeds the uniform."""
    cumulative = weights(logits).cumsum(dim=1)
    thresholds = uniforms.unsqueeze(1) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, thresholds, right=True).squeeze(1)


def keep_nucleus(logits: Tensor, top_p: Tensor) -> Tensor:
    """logits (B, V), top_p (B,) float64 -> (B, V): all but the most probable ids that reach `top_p` forbidden.

    0 keeps the single best id (greedy); 1 or more keeps all.
    """
    order = logits.argsort(dim=1, descending=True, stable=True)
    probabilities = weights(logits)
    probabilities = probabilities / probabilities.sum(dim=1, keepdim=True)
    cumulative = probabilities.gather(1, order).cumsum(dim=1)
    late = torch.zeros_like(logits, dtype=torch.bool)
    late[:, 1:] = (cumulative[:, :-1] > top_p.unsqueeze(1)) & (top_p < 1).unsqueeze(1)  # the id that crosses stays
    return logits.masked_fill(torch.zeros_like(late).scatter(1, order, late), -torch.inf)


def repetition_ratio(recent: Tensor, pick: Tensor) -> Tensor:
    """recent (B, K) padded with -1, pick (B,) -> (B,) float64: the pick's part of the known, to two decimals."""
    num_equal = (recent == pick.unsqueeze(1)).sum(dim=1)
    num_known = (recent != NO_ID).sum(dim=1).clamp(min=1)
    return (num_equal.double() / num_known).round(decimals=2)


def repetition_aware_sample(
    logits: Tensor, recent: Tensor, *, top_p: Tensor, max_ratio: Tensor, uniforms: Tensor, second_uniforms: Tensor
) -> Tensor:
    """Nucleus-sample; where the pick is repetitive in `recent`, draw again from the full distribution.

    logits (B, V), recent (B, K) padded with -1, all others (B,) float64 -> (B,).
    MARS6 (arXiv:2501.05787), Sec. IV-B1, after VALL-E 2 (arXiv:2406.05370).
    """
    pick = draw(keep_nucleus(logits, top_p), uniforms)
    is_repetitive = repetition_ratio(recent, pick) > max_ratio
    return torch.where(is_repetitive, draw(logits, second_uniforms), pick)


def weights(logits: Tensor) -> Tensor:
    """(B, V) -> float64 softmax before its division: the best id of each row weighs 1."""
    return (logits.double() - logits.amax(dim=1, keepdim=True)).exp()
