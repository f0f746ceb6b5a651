"""Headers of safetensors files: where tensors lie, and malformed headers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from marstts.errors import CheckpointError
from marstts.io.stored_tensors import Stored, stored_tensors


def test_positions_are_those_of_the_values(tmp_path: Path):
    values = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(5, dtype=np.uint8)}
    save_file(values, tmp_path / "x.safetensors", {"format": "pt"})
    content, found = (tmp_path / "x.safetensors").read_bytes(), stored_tensors(tmp_path / "x.safetensors")
    assert {name: (one.dtype, one.shape) for name, one in found.items()} == {"a": ("F32", (2, 3)), "b": ("U8", (5,))}
    for name, value in values.items():
        assert content[found[name].offset :][: found[name].length] == value.tobytes()
    row = found["a"].rows(1, 2)
    assert content[row.offset :][: row.length] == values["a"][1].tobytes() and row.shape == (1, 3)


def header(values: object) -> bytes:
    text = values if isinstance(values, bytes) else json.dumps(values).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"x", (2**62).to_bytes(8, "little"), header(b"[]"), header(b"{"), header(b"\xff" * 9),
        header({"a": 3}), header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 9]}}),
        header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]}}),
        header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}),
        header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0]}}),
        header({"a": {"dtype": 7, "shape": [2], "data_offsets": [0, 8]}}),
        header({"a": {"dtype": "F32", "shape": [2**63], "data_offsets": [0, 8]}}),
        header(b'{"a":' + b"[" * 3000), header(b'{"a": 1' + b"0" * 5000 + b"}"),
    ],
)  # fmt: skip
def test_malformed_headers_are_refused_in_one_sentence(tmp_path: Path, content: bytes):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"x\.safetensors: expected weights as a safetensors file") as error:
        stored_tensors(tmp_path / "x.safetensors")
    assert "\n" not in str(error.value)


def test_a_tensor_knows_its_rows():
    assert Stored("F16", (4, 3), 100, 24).rows(2, 4) == Stored("F16", (2, 3), 112, 12)
