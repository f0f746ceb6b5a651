"""Codebooks in training: which codes are used, and new entries for those that are not.

Upstream: codes and latents of a step.  Downstream: `task`.
Shapes: B batch · D width · L latents.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from marstts.codec.mini_model import ResidualQuantizer

RESET_EVERY, DEAD_CODE_USAGE = 25, 0.03
"""Codes that are used less than this ratio of the mean are reset to fresh latents, once in this many steps. Without it,
codebooks collapse to a few dozen entries within the first fifty steps."""

USAGE_DECAY, RESET_USAGE = 0.97, 0.3
"""Decay of the running usage of codes, and the usage that a code starts with when it was reset."""

RESET_NOISE = 0.02
"""Standard deviation of the noise on reset codes."""


@torch.no_grad()
def reset_dead_codes(quantizer: ResidualQuantizer, codes: Sequence[Tensor], latents: Tensor, step: int) -> None:
    """Track the usage of each code, and reset dead codes to random ones of this batch's latents (B, D, L)."""
    for (_, book), level_codes in zip(quantizer.codebooks, codes, strict=True):
        counts = torch.bincount(level_codes.flatten(), minlength=len(book.usage)).float()
        book.usage.mul_(USAGE_DECAY).add_(counts / counts.mean(), alpha=1 - USAGE_DECAY)
    if step % RESET_EVERY:
        return
    total = torch.zeros_like(latents)
    generator = torch.Generator().manual_seed(step)
    for stride, book in quantizer.codebooks:
        residual = latents - total
        residual = F.avg_pool1d(residual, stride) if stride > 1 else residual
        queries = book.queries(residual).flatten(0, 1)
        dead = torch.nonzero(book.usage < DEAD_CODE_USAGE)[:, 0]
        if len(dead):
            chosen = torch.randint(len(queries), (len(dead),), generator=generator).to(dead.device)
            noise = RESET_NOISE * torch.randn(len(dead), queries.shape[1], generator=generator).to(dead.device)
            book.entries[dead] = queries[chosen] + noise
            book.usage[dead] = RESET_USAGE
        total = total + book.decode(book.encode(residual)).repeat_interleave(stride, dim=2)


def perplexities(codes: Sequence[Tensor], codebook_size: int) -> dict[str, Tensor]:
    """`perplexity` of the codes of each level, as named in the log."""
    return {f"perplexity{level}": perplexity(level_codes, codebook_size) for level, level_codes in enumerate(codes)}


def perplexity(codes: Tensor, codebook_size: int) -> Tensor:
    """Exponential of the codes' entropy: the effective number of codes in use."""
    frequency = torch.bincount(codes.flatten(), minlength=codebook_size).float()
    frequency = frequency / frequency.sum()
    return torch.exp(-(frequency * torch.log(frequency + 1e-10)).sum())
