"""Keys and values of the rows of a running batch, for the ONNX engine: those of the text, and the global decoder's.

Upstream: outputs of the graphs.  Downstream: `engines.onnx`.
Both are values, though several may lie in one buffer: a buffer has room for later rows, and the global decoder's also
for later positions, so that what is added is written without copying the rest. Only the newest value of a buffer may be
extended in place; any other is copied. `keep_rows` removes rows in place and ends all earlier values of a buffer.
Shapes: B rows · M memory positions · N positions in the KV cache of the global decoder · L, H, d layers, heads and head
width. KV: an axis of two, keys and values. Caches are (KV, L, B, H, M or N, d).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CAPACITY_STEP = 64
"""Positions that a cache grows by, five seconds of speech: more would be read in vain, less copied more often."""

MEMORY_STEP, ROWS_STEP = 32, 8
"""The same for positions of the text, and for rows, once there are several."""


class Buffer:
    """Keys and values of rows and positions, of which the first are in use."""

    def __init__(self, caches: Sequence[NDArray[np.float32]], positions: int, *, spare_rows: bool = False) -> None:
        """Copy the rows of all caches, each (KV, L, any, H, any, d), with room for `positions`."""
        kinds, layers, _, heads, _, width = caches[0].shape
        rows = sum(cache.shape[2] for cache in caches)
        capacity = round_up(rows, ROWS_STEP) if spare_rows and rows > 1 else rows
        self.cache = np.empty((kinds, layers, capacity, heads, positions, width), np.float32)
        self._newest: Callable[[], object] = lambda: None
        self._layers: tuple[NDArray[np.float32], ...] = ()
        self.write_rows(0, caches)

    @property
    def newest(self) -> object:
        """The value that uses all that was written so far; only it may be extended in place. None once it is gone."""
        return self._newest()

    @newest.setter
    def newest(self, value: object) -> None:
        self._newest = weakref.ref(value)  # the value holds the buffer: a cycle would keep both until a collection

    def layers(self, rows: int) -> tuple[NDArray[np.float32], ...]:
        """The first rows as the graphs take them, (rows, H, positions, d): keys of each layer, then their values.

        Views, made once for as long as the number of rows stays the same: a step of one row shares them with the last.
        """
        if not self._layers or len(self._layers[0]) != rows:
            kinds, layers = self.cache.shape[:2]
            self._layers = tuple(self.cache[kind, layer, :rows] for kind in range(kinds) for layer in range(layers))
        return self._layers

    def write_rows(self, first: int, caches: Sequence[NDArray[np.float32]]) -> None:
        """Write the rows of all caches from row `first`, each with zeros behind its positions."""
        for cache in caches:
            end, length = first + cache.shape[2], min(cache.shape[4], self.cache.shape[4])
            self.cache[:, :, first:end, :, :length] = cache[:, :, :, :, :length]
            self.cache[:, :, first:end, :, length:] = 0.0
            first = end

    def move_rows(self, rows: Sequence[int], length: int) -> None:
        """Write the first `length` positions of row `rows[i]` to row i; no row may move to a later place."""
        for place, row in enumerate(rows):
            assert row >= place, "a row that was not moved yet would be lost"
            if row != place:
                self.cache[:, :, place, :, :length] = self.cache[:, :, row, :, :length]

    def wastes(self, rows: int, positions: int, step: int) -> bool:
        """Return True where a new buffer for this many rows and positions would be much smaller."""
        return (
            2 * round_up(rows, ROWS_STEP) <= self.cache.shape[2]
            or round_up(positions, step) + step < self.cache.shape[4]
        )

    def has_room(self, rows: int, positions: int) -> bool:
        """Return True where this many rows of this many positions fit."""
        return rows <= self.cache.shape[2] and positions <= self.cache.shape[4]


@dataclass(frozen=True, eq=False)
class Memory:
    """The encoder's output as the cross-attention's keys and values."""

    buffer: Buffer

    bias: NDArray[np.float32]
    """(B, M), see `attention_bias`."""

    rows: tuple[Memory, ...] = ()
    """Each row as it was before it was joined, for one that leaves; empty for a memory that was not joined."""

    @classmethod
    def of(cls, cache: NDArray[np.float32], bias: NDArray[np.float32]) -> Memory:
        """The memory of these rows, in a buffer without room for more rows."""
        length = round_up(bias.shape[1], MEMORY_STEP)
        return cls(Buffer([cache], length), fit_axis(bias, 1, length, -np.inf))

    @property
    def cache(self) -> NDArray[np.float32]:
        """(KV, L, B, H, M, d)."""
        return self.buffer.cache[:, :, : len(self.bias)]

    @property
    def length(self) -> int:
        """Positions that some row attends to."""
        return int(np.flatnonzero(np.isfinite(self.bias).any(axis=0)).max(initial=-1)) + 1

    def select(self, rows: Sequence[int]) -> Memory:
        """Return only these rows, without what is padding in all of them."""
        parts = [Memory(self.buffer, self.bias[row : row + 1]) for row in rows]
        length = max(part.length for part in parts)
        if len(rows) == 1 and self.rows:
            return self.rows[rows[0]]
        if len(rows) == 1:
            return Memory.of(self.cache[:, :, rows[0] : rows[0] + 1, :, :length], parts[0].bias[:, :length])
        caches, alone = [self.cache[:, :, row : row + 1] for row in rows], self.rows_alone(rows)
        return self.copied(caches, [part.bias for part in parts], length, alone)

    def rows_alone(self, rows: Sequence[int]) -> tuple[Memory, ...]:
        """Each of these rows as it was before it was joined, if that is known of all."""
        return tuple(self.rows[row] for row in rows) if self.rows else ()

    def keep_rows(self, rows: Sequence[int]) -> Memory:
        """Return only these rows, moved in place if they can be; no value of this buffer may be used any more."""
        bias, buffer = self.bias[rows], self.buffer
        length = Memory(buffer, bias).length
        if buffer.newest is not self or buffer.wastes(len(rows), length, MEMORY_STEP):
            return self.select(rows)
        buffer.move_rows(rows, length)
        return self.newest_of(buffer, [bias], self.rows_alone(rows))

    @classmethod
    def join(cls, memories: Sequence[Memory]) -> Memory:
        """The rows of all, shorter memories padded with what is not attended to."""
        caches, biases = [memory.cache for memory in memories], [memory.bias for memory in memories]
        buffer, length = memories[0].buffer, max(memory.length for memory in memories)
        parts = [memory.rows or ((memory,) if len(memory.bias) == 1 else ()) for memory in memories]
        alone = sum(parts, ()) if all(parts) else ()
        if buffer.newest is not memories[0] or not buffer.has_room(sum(map(len, biases)), length):
            return cls.copied(caches, biases, length, alone)
        buffer.write_rows(len(biases[0]), caches[1:])
        return cls.newest_of(buffer, biases, alone)

    @classmethod
    def copied(
        cls,
        caches: Sequence[NDArray[np.float32]],
        biases: Sequence[NDArray[np.float32]],
        length: int,
        alone: tuple[Memory, ...],
    ) -> Memory:
        """Copy rows, with their first `length` positions, to a buffer that has room for more."""
        return cls.newest_of(Buffer(caches, round_up(length, MEMORY_STEP), spare_rows=True), biases, alone)

    @classmethod
    def newest_of(cls, buffer: Buffer, biases: Sequence[NDArray[np.float32]], alone: tuple[Memory, ...]) -> Memory:
        """The value of all rows of a buffer that are in use."""
        fitted = np.concatenate([fit_axis(bias, 1, buffer.cache.shape[4], -np.inf) for bias in biases])
        buffer.newest = memory = cls(buffer, fitted, alone)
        return memory


@dataclass(frozen=True, eq=False)
class DecoderKVCache:
    """A KV cache of the global decoder."""

    buffer: Buffer

    lengths: NDArray[np.int64]
    """(B,) N of each row; later positions of the buffer belong to other states."""

    @classmethod
    def empty(cls, layers: int, batch: int, heads: int, width: int) -> DecoderKVCache:
        """The cache before the start vector: no positions, capacity 0."""
        return cls(Buffer([np.zeros((2, layers, batch, heads, 0, width), np.float32)], 0), np.zeros(batch, np.int64))

    @classmethod
    def copied(
        cls, caches: Sequence[NDArray[np.float32]], lengths: NDArray[np.int64], *, spare_rows: bool = False
    ) -> DecoderKVCache:
        """Copy the first lengths[b] positions of caches (KV, L, rows, H, any, d) to a new buffer, with one to spare."""
        buffer = Buffer(caches, round_up(int(lengths.max()) + 1, CAPACITY_STEP), spare_rows=spare_rows)
        buffer.newest = copy = cls(buffer, lengths)
        return copy

    @property
    def cache(self) -> NDArray[np.float32]:
        """(KV, L, B, H, capacity, d)."""
        return self.buffer.cache[:, :, : len(self.lengths)]

    @property
    def bias(self) -> NDArray[np.float32]:
        """(B, capacity), see `attention_bias`."""
        bias = np.full((len(self.lengths), self.buffer.cache.shape[4]), -np.inf, np.float32)
        for row, length in zip(bias, self.lengths.tolist(), strict=True):
            row[:length] = 0.0
        return bias

    def extended(self, cache: NDArray[np.float32]) -> DecoderKVCache:
        """One more position per row, cache (KV, L, B, H, 1, d)."""
        buffer, lengths = self.buffer, self.lengths.tolist()
        if buffer.newest is not self or max(lengths) == buffer.cache.shape[4]:
            buffer = self.copied([self.cache], self.lengths, spare_rows=True).buffer
        for row, position in enumerate(lengths):
            buffer.cache[:, :, row, :, position] = cache[:, :, row, :, 0]
        buffer.newest = extended = DecoderKVCache(buffer, self.lengths + 1)
        return extended

    def select(self, rows: Sequence[int]) -> DecoderKVCache:
        """Return only these rows."""
        lengths = self.lengths[list(rows)]
        used = self.cache[:, :, :, :, : lengths.max()]
        return self.copied([used[:, :, row : row + 1] for row in rows], lengths, spare_rows=True)

    def keep_rows(self, rows: Sequence[int]) -> DecoderKVCache:
        """Return only these rows, moved in place if they can be; no value of this buffer may be used any more."""
        lengths, buffer = self.lengths[rows], self.buffer
        longest = int(lengths.max())
        if buffer.newest is not self or buffer.wastes(len(rows), longest + 1, CAPACITY_STEP):
            return self.select(rows)
        buffer.move_rows(rows, longest)
        buffer.newest = kept = DecoderKVCache(buffer, lengths)
        return kept

    @classmethod
    def join(cls, parts: Sequence[DecoderKVCache]) -> DecoderKVCache:
        """The rows of all, with capacity for one more position."""
        lengths = np.concatenate([part.lengths for part in parts])
        caches = [part.cache[:, :, :, :, : part.lengths.max()] for part in parts]
        buffer = parts[0].buffer
        if buffer.newest is not parts[0] or not buffer.has_room(len(lengths), int(lengths.max()) + 1):
            return cls.copied(caches, lengths, spare_rows=True)
        buffer.write_rows(len(parts[0].lengths), caches[1:])
        buffer.newest = joined = cls(buffer, lengths)
        return joined


def round_up(number: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-number // step) * step


def fit_axis(array: NDArray[np.float32], axis: int, size: int, value: float = 0.0) -> NDArray[np.float32]:
    """The array cut to `size` on one axis, or with `value` behind it up to there."""
    fitted = np.full((*array.shape[:axis], size, *array.shape[axis + 1 :]), value, array.dtype)
    kept = (*[slice(None)] * axis, slice(min(size, array.shape[axis])))
    fitted[kept] = array[kept]
    return fitted


def attention_bias(mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The bias on attention scores: 0 where the mask is True, else minus infinity."""
    return np.where(mask, np.float32(0), np.float32(-np.inf))
