"""Masks of padded batches.

Upstream: lengths of rows.  Downstream: the models of both architectures, their losses.
"""

from __future__ import annotations

import torch
from torch import Tensor


def length_mask(lengths: Tensor, size: int) -> Tensor:
    """lengths (B,) -> (B, size), True for the first `lengths[b]` positions of row b."""
    return torch.arange(size, device=lengths.device) < lengths.unsqueeze(1)
