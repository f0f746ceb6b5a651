"""The tensors of a safetensors file: types, shapes and positions, from its header alone.

Upstream: safetensors files, which are untrusted.  Downstream: `onnx.session`, `onnx.build` and `onnx.export`, whose
graphs refer to these tensors; `data.shards`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from marstts.errors import CheckpointError, MarsError
from marstts.io.reading import open_regular, printable_name

MAX_WEIGHTS_BYTES = 64 * 2**30
MAX_HEADER_BYTES = 16 * 2**20
"""Longest list of tensors of a safetensors file."""


@dataclass(frozen=True)
class Stored:
    """A tensor in a safetensors file."""

    dtype: str
    """Name of the type in safetensors: F16, F32, U8, …"""

    shape: tuple[int, ...]
    offset: int
    """Position of its first byte in the file."""

    length: int
    """Number of bytes."""

    def rows(self, first: int, last: int) -> Stored:
        """The rows from `first` up to, not including, `last` along the first axis."""
        assert 0 <= first < last <= self.shape[0], f"rows {first} to {last} of {self.shape}"
        size = self.length // self.shape[0]
        return Stored(self.dtype, (last - first, *self.shape[1:]), self.offset + first * size, (last - first) * size)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The keys and values of an object; ValueError where a key occurs twice: readers differ in which they choose."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def stored_tensors(
    path: Path, kind: type[MarsError] = CheckpointError, max_header_bytes: int = MAX_HEADER_BYTES
) -> dict[str, Stored]:
    """Types, shapes and positions of the tensors of a safetensors file, by name; `kind` if it is none."""
    with open_regular(path, MAX_WEIGHTS_BYTES, kind) as file:
        header_size = int.from_bytes(file.read(8), "little")
        content = file.read(header_size) if header_size <= max_header_bytes else b""
    try:
        with safe_open(path, "numpy"):  # checks types, shapes and positions
            header = json.loads(content.decode("utf-8"), object_pairs_hook=_without_repetition)
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        what = "weights" if kind is CheckpointError else "arrays"
        raise kind(
            f"{printable_name(path)}: expected {what} as a safetensors file, but this is none, or corrupt or cut short"
        ) from error
    header.pop("__metadata__", None)
    return {
        name: Stored(entry["dtype"], tuple(entry["shape"]), 8 + header_size + first, last - first)
        for name, entry in header.items()
        for first, last in [entry["data_offsets"]]
    }
