"""95 % intervals of a listening test.

Upstream: answers, grouped.  Downstream: `analysis`, `preference`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marstts.metrics.intervals import COVERAGE, RESAMPLES, Interval


def cluster_interval(clusters: Sequence[Sequence[int]]) -> Interval | None:
    """The mean of all numbers, and its bootstrap interval where whole clusters are resampled (percentile method).

    None for fewer than two clusters, which do not show how much clusters differ.
    """
    if len(clusters) < 2:
        return None
    from scipy import stats  # half a second of imports that serving the page need not wait for

    sums = np.array([sum(cluster) for cluster in clusters], dtype=float)
    counts = np.array([len(cluster) for cluster in clusters], dtype=float)
    found = stats.bootstrap(
        (sums, counts), lambda top, bottom, axis: top.sum(axis=axis) / bottom.sum(axis=axis), paired=True,
        vectorized=True, n_resamples=RESAMPLES, confidence_level=COVERAGE, method="percentile",
        rng=np.random.default_rng(0),
    )  # fmt: skip
    bounds = found.confidence_interval
    return Interval(float(sums.sum() / counts.sum()), float(bounds.low), float(bounds.high))
