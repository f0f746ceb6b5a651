"""Bootstrap intervals against independent truth: closed forms and full enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from marstts_lab.metrics.intervals import (
    Interval,
    bootstrap,
    bootstrap_difference,
    ratio,
    ratio_interval,
)


def test_interval_of_a_mean_agrees_with_the_normal_closed_form():
    values = np.random.default_rng(5).normal(3.0, 2.0, 400)
    interval = ratio_interval(values, np.ones(400), resamples=5000)
    half_width = 1.96 * values.std() / np.sqrt(400)
    assert interval.value == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - half_width, abs=0.07 * half_width)
    assert interval.high == pytest.approx(values.mean() + half_width, abs=0.07 * half_width)


def test_interval_of_a_fraction_agrees_with_the_binomial():
    right = np.repeat([1.0, 0.0], [240, 60])
    interval = ratio_interval(right, np.ones(300), resamples=5000)
    half_width = 1.96 * np.sqrt(0.8 * 0.2 / 300)
    assert interval.high - interval.low == pytest.approx(2 * half_width, rel=0.07)


def test_interval_of_two_sentences_matches_enumeration():
    # draws: first twice 2/20, both 4/12, second twice 6/4, with probabilities 1/4, 1/2, 1/4
    assert ratio_interval([1, 3], [10, 2]) == Interval(pytest.approx(4 / 12), pytest.approx(0.1), pytest.approx(1.5))


def test_the_score_is_a_ratio_of_sums_not_a_mean_of_ratios():
    assert ratio_interval([0, 9], [1, 90]).value == pytest.approx(9 / 91)


def test_a_score_over_nothing_is_none():
    assert ratio_interval([0, 0], [0, 0]) is None


def test_resamples_with_an_undefined_ratio_are_left_out():
    interval = ratio_interval([1, 0], [2, 0])
    assert interval == Interval(0.5, 0.5, 0.5)


def test_the_same_scores_give_the_same_interval():
    errors, lengths = [1, 5, 2, 0, 7], [10, 12, 9, 11, 30]
    assert ratio_interval(errors, lengths) == ratio_interval(errors, lengths)


def test_intervals_are_formatted_with_their_digits():
    assert Interval(0.12345, 0.1, 0.2).format(2) == "0.12 [0.10, 0.20]"


def test_ratio_interval_is_the_bootstrap_of_a_ratio():
    errors, lengths = [1.0, 5.0, 2.0, 0.0, 7.0], [10.0, 12.0, 9.0, 11.0, 30.0]
    assert bootstrap(np.stack([errors, lengths], axis=1), ratio) == ratio_interval(errors, lengths)
    assert bootstrap(np.zeros((3, 2)), ratio) is None and bootstrap(np.zeros((0, 2)), ratio) is None


def test_paired_differences_agree_with_the_normal_closed_form():
    rng = np.random.default_rng(2)
    common = rng.normal(0.0, 5.0, 300)
    first, second = common + rng.normal(0.5, 1.0, 300), common + rng.normal(0.0, 1.0, 300)
    numbers = [np.stack([values, np.ones(300)], axis=1) for values in (first, second)]
    found = bootstrap_difference(*numbers, ratio, resamples=5000)
    half_width = 1.96 * (first - second).std() / np.sqrt(300)
    assert found.value == pytest.approx((first - second).mean())
    assert found.high - found.low == pytest.approx(2 * half_width, rel=0.07)
    assert bootstrap(numbers[0], ratio).high - bootstrap(numbers[0], ratio).low > 4 * half_width  # unpaired: far wider


def test_difference_of_a_system_and_itself_is_zero():
    numbers = np.array([[1.0, 4.0], [2.0, 5.0], [0.0, 3.0]])
    assert bootstrap_difference(numbers, numbers, ratio) == Interval(0.0, 0.0, 0.0)


def test_intervals_match_resampling_by_hand():
    rng = np.random.default_rng(4)
    numbers = np.stack([rng.integers(0, 9, 40), rng.integers(5, 20, 40)], axis=1).astype(float)
    drawn = numbers[np.random.default_rng(0).integers(0, 40, (2000, 40))].sum(axis=1)
    expected = np.percentile(drawn[:, 0] / drawn[:, 1], [2.5, 97.5])
    found = bootstrap(numbers, ratio)
    assert (found.low, found.high) == pytest.approx(tuple(expected))


def test_interval_of_one_sentence_is_its_value():
    assert bootstrap(np.array([[1.0, 4.0]]), ratio) == Interval(0.25, 0.25, 0.25)
