"""Penalties, filters and draws of the AR."""

from __future__ import annotations

import numpy as np
import pytest

from marstts.mars5.sampling import TokenSampling, filter_logits, penalize_early_end, penalize_repetition, sample_tokens

LOGITS = np.random.default_rng(0).standard_normal((3, 11)).astype(np.float32)
PLAIN = TokenSampling(temperature=1.0, top_k=0, top_p=1.0, freq_penalty=0, presence_penalty=0, eos_penalty_factor=0)


def pick(
    logits: np.ndarray, generated: list[list[int]], config: TokenSampling, uniform: float = 0.5, **kw: int
) -> list:
    uniforms = np.full(len(logits), uniform)
    options = {"first_legal": 4, "end": 10} | kw
    return sample_tokens(logits, generated, [None] * len(logits), config, uniforms, **options).tolist()


def test_repetition_costs_by_count_within_the_window() -> None:
    before = LOGITS.copy()
    penalized = penalize_repetition(LOGITS, [[5, 7, 5], [], [9] * 5], frequency=2, presence=0.5, window=2)
    difference = LOGITS - penalized
    expected = np.zeros((3, 11), np.float32)
    expected[0, [5, 7]], expected[2, 9] = 2.5, 4.5
    np.testing.assert_allclose(difference, expected, atol=1e-6)
    assert np.array_equal(LOGITS, before)


def test_the_first_token_alone_is_not_penalized() -> None:
    config = PLAIN.model_copy(update={"presence_penalty": 50.0, "top_p": 0.0})
    logits = np.zeros((2, 11), np.float32)
    logits[:, 6] = 3
    assert pick(logits, [[6], [6, 5]], config)[0] == 6
    assert pick(logits, [[6], [6, 5]], config)[1] != 6


def test_the_end_costs_until_the_estimated_length() -> None:
    row = LOGITS[0]
    for generated, cost in ((0, 2 * 4**0.5), (3, 2.0), (4, 2.0), (5, 0.0)):
        penalized = penalize_early_end(row, generated, 4, end=10, decay=0.5, factor=2)
        np.testing.assert_allclose(row - penalized, [0] * 10 + [cost], atol=1e-6)


def test_an_estimate_delays_the_end_in_its_own_row_only() -> None:
    config = PLAIN.model_copy(update={"top_p": 0.0, "eos_penalty_factor": 9.0})
    logits = np.zeros((2, 11), np.float32)
    logits[:, 10], logits[:, 5] = 4, 3
    assert sample_tokens(logits, [[], []], [20, None], config, np.zeros(2), first_legal=4, end=10).tolist() == [5, 10]


def test_text_is_never_drawn() -> None:
    logits = np.zeros((1, 11), np.float32)
    logits[0, 3] = 100
    assert {pick(logits, [[]], PLAIN, uniform)[0] for uniform in np.linspace(0, 0.999, 50)} == set(range(4, 11))
    assert pick(logits, [[]], PLAIN, first_legal=3) == [3]


@pytest.mark.parametrize("all_ids", [0, None])
def test_top_k_of_nothing_keeps_all(all_ids: int | None) -> None:
    config = PLAIN.model_copy(update={"top_k": all_ids})
    assert np.array_equal(filter_logits(LOGITS, config), LOGITS)


def test_filters_narrow_the_choice() -> None:
    def count(**changes: float) -> list[int]:
        return np.isfinite(filter_logits(LOGITS, PLAIN.model_copy(update=changes))).sum(axis=1).tolist()

    assert count(top_k=3) == [3] * 3
    assert count(top_p=0.0) == [1] * 3
    assert max(count(typical_p=0.3)) < 11 and count(typical_p=0.9995) == [11] * 3
    assert sum(count(top_p=0.6, temperature=0.3)) < sum(count(top_p=0.6, temperature=3.0))


@pytest.mark.parametrize(
    "wrong", [{"temperature": 0}, {"top_k": -1}, {"typical_p": 0}, {"rep_penalty_window": 0}, {"x": 1}]
)
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TokenSampling(**wrong)
