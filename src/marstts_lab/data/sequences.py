"""Sequences of codes in safetensors files: pack many into a few tensors, read them back with checks.

All sequences of one kind are concatenated per level, with offsets in patches; embeddings are one tensor per role.

Upstream: `data.pairs`, `data.mined_takes`.  Downstream: their files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from marstts.codec.base import Codes
from marstts.errors import DataError
from marstts.io.reading import open_regular

Tensors = Mapping[str, NDArray[Any]]

MAX_BYTES = 8 * 2**30
"""Largest file that is read."""

EMBEDDING = "embedding"
"""First word of the names of embedding tensors; the role follows."""


def pack(name: str, sequences: Sequence[Codes], layout: Sequence[int]) -> dict[str, NDArray[Any]]:
    """The tensors of sequences: `name.0`, `name.1`, … uint16 per level, `name.offsets` (N + 1,) in patches."""
    counts = [len(codes[0]) // layout[0] for codes in sequences]
    tensors: dict[str, NDArray[Any]] = {
        f"{name}.{level}": np.concatenate([np.zeros(0, np.uint16), *(c[level].astype(np.uint16) for c in sequences)])
        for level in range(len(layout))
    }
    return {**tensors, f"{name}.offsets": np.cumsum([0, *counts]).astype(np.int64)}


def unpack(name: str, tensors: Tensors, row: int) -> Codes:
    """The codes of one row, the inverse of `pack`; KeyError, IndexError or ValueError where they are not there."""
    offsets = tensors[f"{name}.offsets"]
    if not 0 <= row < len(offsets) - 1:
        raise IndexError(f"row {row} of {len(offsets) - 1}")
    levels = [tensors[f"{name}.{level}"] for level in range(sum(key.startswith(f"{name}.") for key in tensors) - 1)]
    total = max(1, int(offsets[-1]))
    layout = [len(level) // total for level in levels]
    start, stop = int(offsets[row]), int(offsets[row + 1])
    if not 0 <= start <= stop <= total or any(len(level) % total for level in levels):
        raise ValueError(f"the offsets of {name} do not fit its codes")
    return tuple(level[start * n : stop * n].astype(np.int64) for level, n in zip(levels, layout, strict=True))


def pack_embeddings(prefix: str, rows: Sequence[Mapping[str, NDArray[np.float32]]]) -> dict[str, NDArray[Any]]:
    """The tensors of embeddings by role: `prefix.role` (N, E) float32. All rows have the same roles."""
    roles = rows[0].keys() if rows else ()
    return {f"{prefix}.{role}": np.stack([row[role] for row in rows]).astype(np.float32) for role in roles}


def unpack_embeddings(prefix: str, tensors: Tensors, row: int) -> dict[str, NDArray[np.float32]]:
    """The embeddings of one row by role, the inverse of `pack_embeddings`; KeyError where there are none."""
    found = {
        name.removeprefix(f"{prefix}."): values[row].astype(np.float32)
        for name, values in tensors.items()
        if name.startswith(f"{prefix}.")
    }
    if not found:
        raise KeyError(prefix)
    if any(values.ndim != 1 for values in found.values()):
        raise ValueError(f"the tensors {prefix} should have two dimensions")
    return found


def load_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """All tensors of a safetensors file; DataError where it is none."""
    open_regular(path, MAX_BYTES, DataError).close()
    try:
        return load_file(path)
    except (OSError, SafetensorError, KeyError, ValueError) as error:  # KeyError: a type that numpy does not have
        raise DataError(f"{path}: expected a safetensors file of codes and embeddings, but {error}") from error
