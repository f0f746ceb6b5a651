"""The tensors of a safetensors file: types, shapes and positions, from its header alone.

Upstream: safetensors files, which are untrusted.  Downstream: `onnx_build` and `onnx.export`, whose graphs
refer to these tensors; `data.shards`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from marstts.errors import CheckpointError, MarsError
from marstts.io.file_errors import printable_name
from marstts.io.reading import open_regular, parse_object

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


def stored_tensors(
    path: Path, kind: type[MarsError] = CheckpointError, max_header_bytes: int = MAX_HEADER_BYTES
) -> dict[str, Stored]:
    """Types, shapes and positions of the tensors of a safetensors file, by name; `kind` if it is none."""
    with open_regular(path, MAX_WEIGHTS_BYTES, kind) as file:
        size = os.fstat(file.fileno()).st_size
        header_size = int.from_bytes(file.read(8), "little")
        if not 2 <= header_size <= min(max_header_bytes, size - 8):
            raise not_safetensors(path, kind)
        content = file.read(header_size)
    try:
        header = parse_object(content.decode("utf-8"), "header", kind)
        entries = {name: Entry.model_validate(entry) for name, entry in header.items() if name != "__metadata__"}
    except (MarsError, ValueError) as error:  # pydantic's and Unicode's errors are ValueErrors
        raise not_safetensors(path, kind) from error
    if any(entry.data_offsets[1] > size - 8 - header_size for entry in entries.values()):
        raise not_safetensors(path, kind)
    return {name: entry.stored(8 + header_size) for name, entry in entries.items()}


def not_safetensors(path: Path, kind: type[MarsError]) -> MarsError:
    """The error for a file that is malformed."""
    what = "weights" if kind is CheckpointError else "arrays"
    return kind(f"{printable_name(path)}: expected {what} as safetensors, but the file is malformed or cut")


Count = Annotated[int, Field(ge=0, lt=2**63)]


class Entry(BaseModel):
    """A tensor in the header of a safetensors file."""

    model_config = ConfigDict(strict=True)

    dtype: str
    shape: list[Count]
    data_offsets: Annotated[list[Count], Field(min_length=2, max_length=2)]

    @model_validator(mode="after")
    def _has_a_length(self) -> Entry:
        if self.data_offsets[0] > self.data_offsets[1]:
            raise ValueError("a tensor ends before it begins")
        return self

    def stored(self, start: int) -> Stored:
        """The tensor, where `start` is the position of the first byte after the header."""
        first, last = self.data_offsets
        return Stored(self.dtype, tuple(self.shape), start + first, last - first)
