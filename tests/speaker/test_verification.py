"""Speaker verification trials and their equal error rate."""

from __future__ import annotations

import numpy as np
import pytest

from marstts.speaker.base import equal_error_rate, trials


def test_every_pair_is_compared_once() -> None:
    embeddings = np.array([[2.0, 0.0], [0.0, 3.0], [5.0, 0.0], [1.0, 1.0]], np.float32)
    same, different = trials(embeddings, ["anna", "bert", "anna", "carl"])
    np.testing.assert_allclose(same, [1.0])
    half = 2**-0.5
    np.testing.assert_allclose(np.sort(different), [0.0, 0.0, half, half, half], atol=1e-6)


def test_separated_scores_give_no_errors_and_swapped_ones_only_errors() -> None:
    low, high = np.linspace(0.0, 0.4, 7, dtype=np.float32), np.linspace(0.5, 1.0, 5, dtype=np.float32)
    assert equal_error_rate(high, low) == 0.0
    assert equal_error_rate(low, high) == 1.0


def test_equal_error_rate_matches_a_search_over_thresholds() -> None:
    rng = np.random.default_rng(3)
    same, different = rng.normal(1.0, 1.0, 401).astype(np.float32), rng.normal(-1.0, 1.0, 703).astype(np.float32)
    pairs = [(np.mean(same < t), np.mean(different >= t)) for t in np.sort(np.concatenate([same, different]))]
    refused, accepted = min(pairs, key=lambda pair: abs(pair[0] - pair[1]))
    assert equal_error_rate(same, different) == pytest.approx((refused + accepted) / 2)
    assert equal_error_rate(same, different) == pytest.approx(0.1587, abs=0.02)  # the normal distribution's beyond 1
