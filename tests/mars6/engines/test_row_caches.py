"""Caches of a running batch: rows that are joined in place leave earlier values as they were."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from marstts.mars6.engines.row_caches import (
    CAPACITY_STEP,
    MEMORY_STEP,
    ROWS_STEP,
    DecoderKVCache,
    Memory,
    attention_bias,
)


def keys_and_values(rows: int, positions: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((2, 3, rows, 2, positions, 4)).astype(np.float32)


def memory(rows: int, positions: int, seed: int) -> Memory:
    return Memory.of(keys_and_values(rows, positions, seed), attention_bias(np.ones((rows, positions), bool)))


def attended(one: Memory, row: int) -> NDArray[np.float32]:
    return one.cache[:, :, row, :, np.isfinite(one.bias[row])]


@pytest.mark.parametrize("newcomer_positions", [3, 9, MEMORY_STEP + 1])
def test_memories_are_joined_with_what_was_there(newcomer_positions: int) -> None:
    first, second, third = memory(1, 5, 0), memory(1, 8, 1), memory(2, newcomer_positions, 2)
    two = Memory.join([first, second])
    four = Memory.join([two, third])
    other = Memory.join([two, first])  # of the same two rows, whose buffer has gone on
    for joined, parts in ((two, [first, second]), (four, [first, second, third]), (other, [first, second, first])):
        rows = [(part, row) for part in parts for row in range(len(part.bias))]
        assert len(joined.bias) == len(rows)
        for place, (part, row) in enumerate(rows):
            np.testing.assert_array_equal(attended(joined, place), attended(part, row))
    kept = four.select([3, 1])
    np.testing.assert_array_equal(attended(kept, 0), attended(third, 1))
    np.testing.assert_array_equal(attended(kept, 1), attended(second, 0))


def test_rows_are_joined_without_a_copy_while_there_is_room() -> None:
    batch = Memory.join([memory(1, 5, 0), memory(1, 8, 1)])
    for seed in range(ROWS_STEP - 2):
        grown = Memory.join([batch, memory(1, 6, seed)])
        assert np.shares_memory(grown.cache, batch.cache)
        batch = grown
    assert not np.shares_memory(Memory.join([batch, memory(1, 6, 9)]).cache, batch.cache)


def test_a_cache_that_was_joined_can_still_go_on_by_itself() -> None:
    alone = DecoderKVCache.copied([keys_and_values(1, 4, 0)], np.array([4]))
    two = DecoderKVCache.join([alone, DecoderKVCache.copied([keys_and_values(1, 2, 1)], np.array([2]))])
    three = DecoderKVCache.join([two, DecoderKVCache.copied([keys_and_values(1, 3, 2)], np.array([3]))])
    assert np.shares_memory(three.cache, two.cache)
    step = keys_and_values(2, 1, 3)
    grown, later = two.extended(step), three.extended(keys_and_values(3, 1, 4))
    for row, length in enumerate((4, 2)):
        np.testing.assert_array_equal(grown.cache[:, :, row, :, :length], two.cache[:, :, row, :, :length])
        np.testing.assert_array_equal(grown.cache[:, :, row, :, length], step[:, :, row, :, 0])
        np.testing.assert_array_equal(later.cache[:, :, row, :, :length], two.cache[:, :, row, :, :length])
        assert not np.array_equal(later.cache[:, :, row, :, length], grown.cache[:, :, row, :, length])
    assert list(grown.lengths) == [5, 3] and list(later.lengths) == [5, 3, 4]


def test_rows_that_leave_are_replaced_by_the_last_ones_without_a_copy_of_the_others() -> None:
    parts = [memory(1, 5 + seed, seed) for seed in range(6)]
    batch = Memory.join(parts)
    kept = batch.keep_rows([0, 5, 2, 4])
    assert np.shares_memory(kept.cache, batch.cache)
    for place, row in enumerate((0, 5, 2, 4)):
        np.testing.assert_array_equal(attended(kept, place), attended(parts[row], 0))
    grown = Memory.join([kept, memory(1, 4, 9)])
    assert np.shares_memory(grown.cache, batch.cache)
    np.testing.assert_array_equal(attended(grown, 3), attended(parts[4], 0))

    caches = [DecoderKVCache.copied([keys_and_values(1, 4 + seed, seed)], np.array([4 + seed])) for seed in range(4)]
    running = DecoderKVCache.join(caches)
    left = running.keep_rows([3, 1, 2])
    assert np.shares_memory(left.cache, running.cache) and list(left.lengths) == [7, 5, 6]
    for place, row in enumerate((3, 1, 2)):
        length = caches[row].lengths[0]
        np.testing.assert_array_equal(left.cache[:, :, place, :, :length], caches[row].cache[:, :, 0, :, :length])
    new = keys_and_values(3, 1, 8)
    np.testing.assert_array_equal(left.extended(new).cache[:, :, 0, :, 7], new[:, :, 0, :, 0])


def test_a_buffer_that_is_far_too_large_is_left_for_a_smaller_one() -> None:
    short, long = (DecoderKVCache.copied([keys_and_values(1, n, 0)], np.array([n])) for n in (3, 3 * CAPACITY_STEP))
    assert DecoderKVCache.join([short, long]).keep_rows([0]).cache.shape[4] == CAPACITY_STEP
    many = DecoderKVCache.join([short] * (2 * ROWS_STEP + 1))
    assert not np.shares_memory(many.keep_rows([0, 1]).cache, many.cache)
    wordy = Memory.join([memory(1, 5, 0), memory(1, 3 * MEMORY_STEP, 1)])
    assert wordy.keep_rows([0]).cache.shape[4] < wordy.cache.shape[4]
