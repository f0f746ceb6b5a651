"""Revisions: digests of tensors, wherever they lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from marstts.errors import CheckpointError
from marstts.onnx.graph import Model
from marstts.onnx.revision import MIN_WEIGHTS, revision_of


def write(folder: Path, **tensors: np.ndarray) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "weights.safetensors")
    return folder


def write_graph(path: Path, numbers: int, value: float) -> None:
    """A graph with one tensor that lies in it."""
    model = Model()
    model.graph.initializer.add(
        name="w", dims=[numbers], data_type=1, raw_data=np.full(numbers, value, np.float32).tobytes()
    )
    path.write_bytes(model.SerializeToString())


def test_a_revision_does_not_depend_on_the_order_in_a_file(tmp_path: Path):
    a, b = np.arange(3.0), np.ones((2, 5))
    first, second = write(tmp_path / "one", a=a, b=b), write(tmp_path / "two", b=b, a=a)
    assert revision_of({"part": first}) == revision_of({"part": second})


@pytest.mark.parametrize(
    "tensors",
    [
        {"a": np.arange(3.0), "b": np.ones((2, 5))},
        {"a": np.arange(3.0) + 1e-9, "c": np.ones((2, 5))},
        {"a": np.arange(3.0), "c": np.ones((5, 2))},
        {"a": np.arange(3.0), "c": np.ones((2, 5), np.float32)},
        {"a": np.arange(3.0)},
    ],
    ids=["name", "value", "shape", "type", "missing"],
)
def test_every_difference_of_a_tensor_makes_another_revision(tensors: dict[str, np.ndarray], tmp_path: Path):
    before = write(tmp_path / "before", a=np.arange(3.0), c=np.ones((2, 5)))
    after = write(tmp_path / "after", **tensors)
    assert revision_of({"part": before}) != revision_of({"part": after})


def test_parts_and_descriptions_count(tmp_path: Path):
    folder = write(tmp_path / "one", a=np.arange(3.0))
    found = {
        revision_of(parts)
        for parts in (
            {"codec": folder},
            {"identity": folder},
            {"codec": folder, "identity": {"kind": "toy", "size": 3}},
            {"codec": folder, "identity": {"size": 4, "kind": "toy"}},
        )
    }
    assert len(found) == 4
    assert revision_of({"a": {"x": 1, "y": 2}}) == revision_of({"a": {"y": 2, "x": 1}})


def test_weights_that_lie_in_a_graph_count_and_its_constants_do_not(tmp_path: Path):
    folder = write(tmp_path / "one", a=np.arange(3.0))
    plain = revision_of({"part": folder})
    write_graph(folder / "net.onnx", 7, 1.0)
    assert revision_of({"part": folder}) == plain
    write_graph(folder / "net.onnx", MIN_WEIGHTS, 1.0)
    one = revision_of({"part": folder})
    write_graph(folder / "net.onnx", MIN_WEIGHTS, 2.0)
    assert len({plain, one, revision_of({"part": folder})}) == 3


def test_a_file_that_is_none_of_tensors_is_named(tmp_path: Path):
    folder = write(tmp_path / "one", a=np.arange(3.0))
    (folder / "net.onnx").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match=r"net\.onnx: this ONNX graph"):
        revision_of({"part": folder})
