"""The terms of a loss, whatever is trained: a name for the log, a weight, and a value.

Upstream: the losses of each model.  Downstream: its task, which minimizes `total` and logs `values`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

from torch import Tensor


class Loss(NamedTuple):
    """One term of a loss: a scalar that is logged, and minimized where its weight is above 0."""

    name: str
    weight: float
    value: Tensor


def total(losses: Iterable[Loss]) -> Tensor:
    """The weighted sum, in the order of the losses: the scalar to minimize."""
    return cast(Tensor, sum(loss.weight * loss.value for loss in losses if loss.weight))


def values(losses: Iterable[Loss]) -> dict[str, Tensor]:
    """What to log: the values by name, without weights and gradients."""
    return {loss.name: loss.value.detach() for loss in losses}
