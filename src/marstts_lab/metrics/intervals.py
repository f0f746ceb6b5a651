"""Bootstrap intervals: how far a score could move with other sentences of the same kind.

Upstream: per-sentence counts of `scores`.  Downstream: `evaluation.report`, `preference`, `marstts_listening_test`.

A score is a statistic of one row of numbers per sentence: a ratio of sums (errors over characters, a mean over a
count) or any other function. `scipy.stats.bootstrap` resamples sentences with replacement; speakers are not resampled,
so intervals hold for new sentences by the same speakers. Percentile method, 95 %, a fixed seed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marstts.errors import require

RESAMPLES = 2000
COVERAGE = 0.95

Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Numbers of N sentences (..., N, K) -> one score (...); NaN where it is undefined."""


@dataclass(frozen=True)
class Interval:
    """A score and the bounds of its 95 % interval."""

    value: float
    low: float
    high: float

    def format(self, digits: int) -> str:
        """E.g. `0.123 [0.101, 0.147]`."""
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def ratio(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of the first numbers over the sum of the second: (..., N, 2) -> (...)."""
    sums = numbers.sum(axis=-2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sums[..., 1] > 0, sums[..., 0] / sums[..., 1], np.nan)


def bootstrap(
    numbers: NDArray[np.float64], statistic: Statistic, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval | None:
    """The statistic of numbers (N, K) and its interval; None where it is undefined."""
    value = float(statistic(numbers)) if len(numbers) else np.nan
    if np.isnan(value):
        return None
    if len(numbers) == 1:  # every resample is the sample
        return Interval(value, value, value)

    def of_rows(rows: NDArray[np.int64], axis: int) -> NDArray[np.float64]:
        return statistic(numbers[np.moveaxis(rows, axis, -1)])

    return Interval(value, *bounds(bootstrap_distribution(np.arange(len(numbers)), of_rows, resamples, seed)))


def bootstrap_distribution(
    items: NDArray[np.int64], statistic: Callable[..., Any], resamples: int, seed: int
) -> NDArray[np.float64]:
    """(resamples,) statistics of `items` (N >= 2) drawn with replacement, by `scipy.stats.bootstrap`."""
    stats = require("scipy.stats", "eval")
    with warnings.catch_warnings():  # scipy warns of degenerate and undefined resamples; `bounds` leaves these out
        warnings.simplefilter("ignore")
        found = stats.bootstrap(
            (items,),
            statistic,
            n_resamples=resamples,
            vectorized=True,
            method="percentile",
            confidence_level=COVERAGE,
            rng=np.random.default_rng(seed),
        )
    return np.asarray(found.bootstrap_distribution)


def bootstrap_difference(
    numbers: NDArray[np.float64],
    other: NDArray[np.float64],
    statistic: Statistic,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval | None:
    """Difference of two systems' statistic on the same N sentences, resampled together.

    Both (N, K). The interval contains 0 where the difference is within the noise. None where a statistic is undefined.
    """
    width = numbers.shape[-1]

    def difference(both: NDArray[np.float64]) -> NDArray[np.float64]:
        return statistic(both[..., :width]) - statistic(both[..., width:])

    return bootstrap(np.concatenate([numbers, other], axis=-1), difference, resamples=resamples, seed=seed)


def ratio_interval(
    numerators: ArrayLike, denominators: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval | None:
    """Sum of numerators over sum of denominators, one of each per sentence; None where the latter sum to 0."""
    return bootstrap(np.array([numerators, denominators], float).T, ratio, resamples=resamples, seed=seed)


def bounds(scores: NDArray[np.float64]) -> tuple[float, float]:
    """Ends of the interval of resampled scores (resamples,); undefined ones are left out."""
    tail = 100 * (1 - COVERAGE) / 2
    low, high = np.nanpercentile(scores, [tail, 100 - tail])
    return float(low), float(high)
