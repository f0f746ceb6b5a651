"""Bootstrap intervals: how far a score could move with other sentences of the same kind.

Upstream: per-sentence counts from `score`.  Downstream: `report`.

Every score is a ratio of sums over sentences (errors over characters, right over choices, a mean over a count), so one
function serves all. Sentences are drawn again with replacement; speakers are not, so that the intervals speak of new
sentences by the same speakers. Percentile method, 95 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
COVERAGE = 0.95


@dataclass(frozen=True)
class Interval:
    """A score and the bounds of its 95 % interval."""

    value: float
    low: float
    high: float

    def format(self, digits: int) -> str:
        """E.g. `0.123 [0.101, 0.147]`."""
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float], *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval | None:
    """Sum of numerators over sum of denominators, one of each per sentence; None where the latter sum to 0."""
    top, bottom = np.asarray(numerators, float), np.asarray(denominators, float)
    if bottom.sum() == 0:
        return None
    drawn = draw_sentences(len(top), resamples, seed)
    return percentile_interval(top.sum() / bottom.sum(), top[drawn].sum(axis=1), bottom[drawn].sum(axis=1))


def paired_quotient_interval(
    numerators: Sequence[float],
    denominators: Sequence[float],
    other_numerators: Sequence[float],
    other_denominators: Sequence[float],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval | None:
    """One system's ratio over another's on the same sentences, drawn together; None where the quotient is undefined."""
    top, bottom, other_top, other_bottom = (
        np.asarray(values, float) for values in (numerators, denominators, other_numerators, other_denominators)
    )
    if bottom.sum() == 0 or other_top.sum() == 0 or other_bottom.sum() == 0:
        return None
    drawn = draw_sentences(len(top), resamples, seed)
    value = (top.sum() / bottom.sum()) / (other_top.sum() / other_bottom.sum())
    return percentile_interval(
        value,
        top[drawn].sum(axis=1) * other_bottom[drawn].sum(axis=1),
        bottom[drawn].sum(axis=1) * other_top[drawn].sum(axis=1),
    )


def draw_sentences(count: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """(resamples, count) indices of sentences, drawn with replacement; the same for every system."""
    return np.random.default_rng(seed).integers(0, count, (resamples, count))


def percentile_interval(value: float, tops: NDArray[np.float64], bottoms: NDArray[np.float64]) -> Interval:
    """The interval from resampled sums (resamples,); resamples whose ratio is undefined are left out."""
    defined = bottoms > 0
    tail = 100 * (1 - COVERAGE) / 2
    low, high = np.percentile(tops[defined] / bottoms[defined], [tail, 100 - tail])
    return Interval(float(value), float(low), float(high))


Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Numbers of N sentences (..., N, K), K each -> one score (...); NaN where it is undefined."""


def ratio(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of the first numbers over that of the second: (..., N, 2) -> (...)."""
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
    return Interval(value, *bounds(statistic(numbers[draw_sentences(len(numbers), resamples, seed)])))


def bootstrap_difference(
    numbers: NDArray[np.float64],
    other: NDArray[np.float64],
    statistic: Statistic,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval | None:
    """How much higher one system's statistic is than another's on the same N sentences, drawn together.

    Both (N, K). An interval with 0 inside is a difference within the noise. None where a statistic is undefined.
    """
    value = float(statistic(numbers) - statistic(other)) if len(numbers) else np.nan
    if np.isnan(value):
        return None
    drawn = draw_sentences(len(numbers), resamples, seed)
    return Interval(value, *bounds(statistic(numbers[drawn]) - statistic(other[drawn])))


def bounds(scores: NDArray[np.float64]) -> tuple[float, float]:
    """The ends of the interval of resampled scores; those that are undefined are left out."""
    tail = 100 * (1 - COVERAGE) / 2
    low, high = np.nanpercentile(scores, [tail, 100 - tail])
    return float(low), float(high)
