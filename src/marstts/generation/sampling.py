"""Sampling: rows of logits in, one id per row out.

Upstream: the decoders' logits, with -inf where an id is forbidden.  Downstream: `generation.loop`.
All functions are pure: inputs stay untouched, and randomness comes in as uniform numbers, one per row and draw. A
row's result does not depend on the other rows.

B rows · V ids · K recent ids
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Logits = NDArray[np.float32]
Ids = NDArray[np.int64]
Uniforms = NDArray[np.float64]

NO_ID = -1
"""Padding of a history that is shorter than K."""


def draw(logits: Logits, uniforms: Uniforms) -> Ids:
    """One id per row, by inverting the cumulative distribution: logits (B, V), uniforms (B,) in [0, 1) -> (B,).

    The pick is the first id whose cumulative softmax probability (in id order) is strictly greater than the uniform.
    """
    cumulative = np.cumsum(_weights(logits), axis=1)  # (B, V)
    thresholds = np.asarray(uniforms, np.float64) * cumulative[:, -1]
    return np.argmax(cumulative > thresholds[:, None], axis=1)


def keep_nucleus(logits: Logits, top_p: ArrayLike) -> Logits:
    """Forbid all but the most probable ids that together reach `top_p`, the one that crosses it included.

    logits (B, V), top_p a number or (B,) -> (B, V).  0 keeps the single best id (greedy); 1 or more keeps all.
    """
    top_p = np.broadcast_to(np.asarray(top_p, np.float64), len(logits))
    kept = _keep_until(logits, order=np.argsort(-logits, axis=1, kind="stable"), mass=top_p)
    return np.where(top_p[:, None] >= 1, logits, kept)


def keep_top_k(logits: Logits, k: int) -> Logits:
    """Forbid ids below the k-th largest logit of their row: (B, V) -> (B, V).  Ties with the k-th stay."""
    assert k >= 1, "at least one id must remain"
    if k >= logits.shape[1]:
        return logits.copy()
    kth_largest = np.partition(logits, -k, axis=1)[:, -k, None]
    return _forbid(logits, logits < kth_largest)


def keep_typical(logits: Logits, mass: float) -> Logits:
    """Forbid ids whose surprisal is far from the entropy, keeping the most typical that reach `mass`.

    logits (B, V) -> (B, V); 1 or more keeps all.  Locally typical sampling, arXiv:2202.00666.
    """
    if mass >= 1:
        return logits.copy()
    probabilities = _probabilities(logits)
    surprisal = -np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    entropy = np.sum(probabilities * surprisal, axis=1, keepdims=True)
    deviation = np.where(np.isneginf(logits), np.inf, np.abs(surprisal - entropy))
    return _keep_until(logits, order=np.argsort(deviation, axis=1, kind="stable"), mass=np.full(len(logits), mass))


def repetition_ratio(recent: Ids, pick: Ids) -> NDArray[np.float64]:
    """Fraction of its row's history that equals each pick, rounded to two decimals as published.

    recent (B, K) padded with -1, pick (B,) -> (B,).  The ratio is over the ids without padding; without any it is 0.
    """
    num_equal = np.count_nonzero(recent == pick[:, None], axis=1)
    num_known = np.count_nonzero(recent != NO_ID, axis=1)
    return np.round(num_equal / np.maximum(num_known, 1), 2)


def repetition_aware_sample(
    logits: Logits,
    recent: Ids,
    *,
    top_p: ArrayLike,
    max_ratio: ArrayLike,
    uniforms: Uniforms,
    second_uniforms: Uniforms,
) -> Ids:
    """Nucleus-sample; where the pick is too frequent in `recent`, draw again from the full distribution.

    logits (B, V), recent (B, K) padded with -1, top_p and max_ratio numbers or (B,), uniforms and second_uniforms (B,)
    -> (B,).
    MARS6 (arXiv:2501.05787), Sec. IV-B1, after VALL-E 2 (arXiv:2406.05370).
    """
    pick = draw(keep_nucleus(logits, top_p), uniforms)
    is_repetitive = repetition_ratio(recent, pick) > np.asarray(max_ratio, np.float64)
    return np.where(is_repetitive, draw(logits, second_uniforms), pick)


def _keep_until(logits: Logits, order: Ids, mass: NDArray[np.float64]) -> Logits:
    """Forbid, in the `order` (B, V) of each row, ids after the one whose cumulative probability exceeds `mass`."""
    cumulative = np.cumsum(np.take_along_axis(_probabilities(logits), order, axis=1), axis=1)
    late = np.zeros(logits.shape, bool)
    late[:, 1:] = cumulative[:, :-1] > mass[:, None]  # one to the right: the id that crosses stays, so one always does
    dropped = np.empty_like(late)
    np.put_along_axis(dropped, order, late, axis=1)
    return _forbid(logits, dropped)


def _forbid(logits: Logits, dropped: NDArray[np.bool_]) -> Logits:
    return np.where(dropped, logits.dtype.type(-np.inf), logits)


def _probabilities(logits: Logits) -> NDArray[np.float64]:
    weights = _weights(logits)
    return weights / weights.sum(axis=1, keepdims=True)


def _weights(logits: Logits) -> NDArray[np.float64]:
    """Unnormalized softmax: the best id of each row has weight 1."""
    best = logits.max(axis=1, keepdims=True)
    assert np.isfinite(best).all(), "each row has at least one allowed id, and none is NaN or infinite"
    return np.exp(logits.astype(np.float64) - best)
