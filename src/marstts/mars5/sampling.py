"""Sampling of the AR's next tokens: penalties, then filters, then one draw per row.

Upstream: logits of `ar.CodecLM`.  Downstream: `generate`.
Everything here is pure and works on rows; filters common to all models are `generation.sampling`'s.  The order of the
steps, their names and their defaults are the release's.
B rows · V joint ids · N generated ids.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from marstts.generation.sampling import Ids, Logits, Uniforms, draw, keep_nucleus, keep_top_k, keep_typical
from marstts.io.config import Config

ALL_TYPICAL = 0.999
"""A larger mass switches typical sampling off, as published."""


class TokenSampling(Config):
    """Sampling of speech tokens. Names and defaults are the release's."""

    temperature: float = Field(0.7, gt=0)

    top_k: int | None = Field(200, ge=0, le=2**20)
    """Ids that may be drawn; 0 or None = all."""

    top_p: float = Field(0.2, ge=0)
    """Nucleus: 0 = greedy, 1 or more = all."""

    typical_p: float = Field(1.0, gt=0)
    """Mass of locally typical ids (arXiv:2202.00666); above 0.999 = all."""

    freq_penalty: float = 3.0
    """Subtracted from an id's logit for each time it is among the last ids."""

    presence_penalty: float = 0.4
    """Subtracted once from the logit of an id that is among the last ids."""

    rep_penalty_window: int = Field(80, gt=0, le=2**16)
    """Number of generated ids that count as the last ones."""

    eos_penalty_decay: float = 0.5
    """Exponent of the tokens that are missing to the estimated length."""

    eos_penalty_factor: float = 1.0
    """Scale of what is subtracted from the end's logit before the estimated length."""

    eos_estimated_gen_length_factor: float = Field(1.0, ge=0)
    """Estimated speech tokens per character of text."""


def penalize_repetition(
    logits: Logits, generated: Sequence[Sequence[int]], *, frequency: float, presence: float, window: int
) -> Logits:
    """Subtract `frequency` · count + `presence` from ids among the last `window` generated: (B, V) -> (B, V)."""
    penalized = logits.copy()
    for row, ids in zip(penalized, generated, strict=True):
        recent, counts = np.unique(np.asarray(ids[-window:], dtype=np.int64), return_counts=True)
        row[recent] -= (frequency * counts + presence).astype(np.float32)
    return penalized


def penalize_early_end(
    logits: Logits, num_generated: int, estimate: int, *, end: int, decay: float, factor: float
) -> Logits:
    """Subtract `factor` · (missing tokens)^`decay` from the end's logit until `estimate` is passed: (V,) -> (V,)."""
    if num_generated > estimate:
        return logits
    penalized = logits.copy()
    penalized[end] -= np.float32(factor * max(estimate - num_generated, 1) ** decay)
    return penalized


def filter_logits(logits: Logits, config: TokenSampling, top_p: ArrayLike | None = None) -> Logits:
    """Temperature, then top-k, top-p and typical sampling: (B, V) -> (B, V).

    `top_p`, a number or (B,), replaces the configuration's.
    """
    kept = (logits / np.float32(config.temperature)).astype(np.float32)
    if config.top_k:
        kept = keep_top_k(kept, config.top_k)
    kept = keep_nucleus(kept, config.top_p if top_p is None else top_p)
    return keep_typical(kept, config.typical_p) if config.typical_p <= ALL_TYPICAL else kept


def sample_tokens(
    logits: Logits,
    generated: Sequence[Sequence[int]],
    estimates: Sequence[int | None],
    config: TokenSampling,
    uniforms: Uniforms,
    *,
    first_legal: int,
    end: int,
    top_p: ArrayLike | None = None,
) -> Ids:
    """The next token of each row: logits (B, V), uniforms (B,) -> (B,).

    `generated`: each row's tokens so far; `estimates`: how many it will have, None = unknown; `first_legal`: ids below
    it are text and cannot be drawn; `end` is the id that ends speech; `top_p`, a number or (B,), replaces the
    configuration's.
    """
    histories: list[Sequence[int]] = [ids if len(ids) > 1 else () for ids in generated]
    legal = penalize_repetition(
        logits,
        histories,
        frequency=config.freq_penalty,
        presence=config.presence_penalty,
        window=config.rep_penalty_window,
    )
    legal[:, :first_legal] = -np.inf
    for row, (ids, estimate) in enumerate(zip(generated, estimates, strict=True)):
        if estimate is not None:
            legal[row] = penalize_early_end(
                legal[row],
                len(ids),
                estimate,
                end=end,
                decay=config.eos_penalty_decay,
                factor=config.eos_penalty_factor,
            )
    return draw(filter_logits(legal, config, top_p), uniforms)
