"""Sampling against the slow, obvious version, and against decisions recorded from the published classes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from marstts.generation.sampling import (
    draw,
    keep_nucleus,
    keep_top_k,
    keep_typical,
    repetition_aware_sample,
    repetition_ratio,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "mars6"


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return json.loads((GOLDEN / "io.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def golden_tensors() -> dict[str, NDArray[np.float32]]:
    tensors = load_file(GOLDEN / "io.safetensors")
    return {name: tensor for name, tensor in tensors.items() if name.startswith("filter.")}


@pytest.fixture
def logits() -> NDArray[np.float32]:
    """(6, 23), about a third forbidden."""
    rng = np.random.default_rng(7)
    values = 2 * rng.standard_normal((6, 23)).astype(np.float32)
    return np.where(rng.random(values.shape) < 0.3, np.float32(-np.inf), values)


def softmax(row: NDArray[np.float32]) -> list[float]:
    weights = [math.exp(value - max(row)) for value in row.tolist()]
    return [weight / sum(weights) for weight in weights]


def slow_draw(row: NDArray[np.float32], uniform: float) -> int:
    cumulative = 0.0
    for index, probability in enumerate(softmax(row)):
        cumulative += probability
        if cumulative > uniform:
            return index
    raise AssertionError("the uniform lies below 1")


def slow_nucleus(row: NDArray[np.float32], top_p: float) -> set[int]:
    probabilities = softmax(row)
    kept, cumulative = set(), 0.0
    for index in sorted(range(len(row)), key=lambda i: -probabilities[i]):
        kept.add(index)
        cumulative += probabilities[index]
        if cumulative > top_p:
            break
    return kept


def allowed(row: NDArray[np.float32]) -> set[int]:
    return set(np.flatnonzero(np.isfinite(row)).tolist())


def history(ids: list[int], size: int) -> NDArray[np.int64]:
    """(1, size): the latest ids, padded with -1."""
    latest = ids[-size:]
    return np.array([[-1] * (size - len(latest)) + latest], np.int64)


def test_draw_inverts_the_cumulative_distribution(logits: NDArray[np.float32]) -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        uniforms = rng.random(len(logits))
        expected = [slow_draw(row, uniform) for row, uniform in zip(logits, uniforms, strict=True)]
        assert draw(logits, uniforms).tolist() == expected


def test_draw_never_gives_a_forbidden_id_even_at_the_ends_of_the_interval() -> None:
    rng = np.random.default_rng(2)
    row = rng.standard_normal((1, 4097)).astype(np.float32) * 10
    row[:, [0, 1, 4095, 4096]] = -np.inf
    for uniform in (0.0, np.nextafter(1.0, 0.0)):
        assert np.isfinite(row[0, draw(row, np.array([uniform]))[0]])


def test_drawn_frequencies_follow_the_probabilities() -> None:
    probabilities = np.array([0.5, 0.25, 0.15, 0.1])
    rows = np.repeat(np.log(probabilities)[None].astype(np.float32), 20_000, axis=0)
    counts = np.bincount(draw(rows, np.random.default_rng(3).random(len(rows))), minlength=4)
    assert counts / len(rows) == pytest.approx(probabilities, abs=0.015)


def test_a_rows_draw_does_not_depend_on_other_rows(logits: NDArray[np.float32]) -> None:
    uniforms = np.linspace(0.05, 0.95, len(logits))
    together = draw(keep_nucleus(logits, 0.7), uniforms)
    alone = [draw(keep_nucleus(logits[[b]], 0.7), uniforms[[b]])[0] for b in range(len(logits))]
    assert together.tolist() == alone


def test_nucleus_keeps_ids_up_to_the_one_that_crosses(logits: NDArray[np.float32]) -> None:
    top_p = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 0.95])
    kept = keep_nucleus(logits, top_p)
    for row, original, p in zip(kept, logits, top_p, strict=True):
        assert allowed(row) == slow_nucleus(original, p)
        assert row[np.isfinite(row)].tolist() == original[np.isfinite(row)].tolist()


def test_nucleus_of_zero_is_greedy_and_of_one_is_off(logits: NDArray[np.float32]) -> None:
    assert [allowed(row) for row in keep_nucleus(logits, 0.0)] == [{best} for best in logits.argmax(axis=1)]
    assert np.array_equal(keep_nucleus(logits, 1.0), logits)
    assert np.array_equal(keep_nucleus(logits, np.full(len(logits), 1.5)), logits)


def test_nucleus_of_zero_breaks_ties_in_favor_of_the_lowest_id() -> None:
    assert allowed(keep_nucleus(np.zeros((1, 5), np.float32), 0.0)[0]) == {0}


def test_top_k_keeps_the_largest_and_ties() -> None:
    row = np.array([[3, 1, 2, 2, 0]], np.float32)
    assert [allowed(keep_top_k(row, k)[0]) for k in (1, 2, 5, 9)] == [{0}, {0, 2, 3}, set(range(5)), set(range(5))]


def test_typical_prefers_expected_surprisal_over_high_probability() -> None:
    # Entropy is about 1.19 nats: the id of probability 0.25 (1.39 nats) is nearer to it than the best one (0.6 nats).
    row = np.log(np.array([[0.55, 0.25, 0.1, 0.05, 0.05]])).astype(np.float32)
    assert allowed(keep_typical(row, 0.2)[0]) == {1}
    assert allowed(keep_typical(row, 0.5)[0]) == {0, 1}


def test_typical_never_allows_a_forbidden_id(logits: NDArray[np.float32]) -> None:
    for mass in (0.0, 0.5, 0.99, 1.0):
        for row, original in zip(keep_typical(logits, mass), logits, strict=True):
            assert allowed(row) <= allowed(original)
            assert allowed(row)
    assert np.array_equal(keep_typical(logits, 1.0), logits)


def test_filters_agree_with_the_published_classes(
    golden: dict[str, Any], golden_tensors: dict[str, NDArray[np.float32]]
) -> None:
    logits, settings = golden_tensors["filter.logits"], golden["filter"]
    for i, top_p in enumerate(settings["top_p"]):
        assert np.array_equal(keep_nucleus(logits, top_p), golden_tensors[f"filter.top_p.{i}"])
    for i, top_k in enumerate(settings["top_k"]):
        assert np.array_equal(keep_top_k(logits, top_k), golden_tensors[f"filter.top_k.{i}"])
    for i, (top_k, top_p) in enumerate(settings["top_k_then_top_p"]):
        assert np.array_equal(keep_nucleus(keep_top_k(logits, top_k), top_p), golden_tensors[f"filter.top_k_top_p.{i}"])


def test_repetition_ratio_agrees_with_the_published_classes(golden: dict[str, Any]) -> None:
    decisions = set()
    for case in golden["ras"]:
        recent = history(case["history"] or [], case["K"])
        ratio = repetition_ratio(recent, np.array([case["candidate"]]))[0]
        assert ratio == pytest.approx(case["ratio"] or 0.0, abs=1e-12)
        assert (ratio > case["t_r"]) == case["resample"]
        decisions.add(case["resample"])
    assert decisions == {True, False}


def test_repetition_is_measured_over_the_unpadded_history() -> None:
    recent = np.array([[-1, -1, -1, 4], [-1, -1, 4, 5], [4, 4, 4, 5], [-1, -1, -1, -1]])
    assert repetition_ratio(recent, np.full(4, 4)).tolist() == [1.0, 0.5, 0.75, 0.0]


def test_a_repetitive_pick_is_drawn_again_from_the_unfiltered_distribution() -> None:
    row = np.log(np.array([0.6, 0.3, 0.1])).astype(np.float32)
    logits = np.stack([row, row, row])
    recent = np.array([[0, 1, 1, 1], [2, 1, 1, 1], [-1, -1, -1, -1]])  # only the first row's history holds the pick
    ids = repetition_aware_sample(
        logits, recent, top_p=0.2, max_ratio=0.09, uniforms=np.full(3, 0.5), second_uniforms=np.full(3, 0.95)
    )
    assert ids.tolist() == [2, 0, 0]


def test_a_ratio_equal_to_the_threshold_is_not_repetitive() -> None:
    logits = np.log(np.array([[0.6, 0.3, 0.1]])).astype(np.float32)
    recent = np.array([[0] + [1] * 10])  # 1 / 11 rounds to 0.09
    for max_ratio, expected in ((0.09, 0), (0.08, 2)):
        ids = repetition_aware_sample(
            logits,
            recent,
            top_p=0.0,
            max_ratio=max_ratio,
            uniforms=np.array([0.5]),
            second_uniforms=np.array([0.95]),
        )
        assert ids.tolist() == [expected]


def test_sampling_leaves_its_inputs_untouched(logits: NDArray[np.float32]) -> None:
    recent = np.tile(np.arange(5), (len(logits), 1))
    uniforms = np.linspace(0.1, 0.9, len(logits))
    top_p = np.linspace(0.0, 1.2, len(logits))
    copies = [array.copy() for array in (logits, recent, uniforms, top_p)]
    repetition_aware_sample(logits, recent, top_p=top_p, max_ratio=0.0, uniforms=uniforms, second_uniforms=uniforms)
    keep_top_k(logits, 99)[:] = 0
    keep_typical(logits, 2.0)[:] = 0
    keep_nucleus(logits, 2.0)[:] = 0
    for array, copy in zip((logits, recent, uniforms, top_p), copies, strict=True):
        assert np.array_equal(array, copy)


def test_filters_keep_single_precision(logits: NDArray[np.float32]) -> None:
    assert {f.dtype for f in (keep_nucleus(logits, 0.5), keep_top_k(logits, 3), keep_typical(logits, 0.5))} == {
        np.dtype(np.float32)
    }
