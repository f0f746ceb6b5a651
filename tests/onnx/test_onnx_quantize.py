"""Linear maps of exported graphs in int8: rounding errors, and results compared with single precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from safetensors.numpy import save_file

from marstts.errors import CheckpointError
from marstts.io.stored_tensors import stored_tensors
from marstts.onnx.quantize import (
    BlockRounding,
    Rounding,
    StaticRounding,
    TensorRounding,
    add_rounded,
    read_graph,
    replace_linear,
    set_external,
    uint8_range,
    weights_by_use,
)
from marstts.onnx.session import Session, open_session

WEIGHTS = "weights.safetensors"
RNG = np.random.default_rng(0)
TENSORS = {
    "first.weight": RNG.normal(size=(32, 64)).astype(np.float16),
    "second.weight": RNG.normal(size=(16, 32)).astype(np.float32),
    "table": RNG.normal(size=(16, 16)).astype(np.float32),
}


@pytest.mark.parametrize(("inputs", "blocks"), [(48, 3), (64, 1), (256, 4)])
def test_rounding_in_blocks_leaves_at_most_half_a_step_per_weight(inputs: int, blocks: int) -> None:
    weight = np.random.default_rng(0).normal(size=(5, inputs)).astype(np.float16)
    weight[3] = 0
    tensors: dict[str, np.ndarray] = {}
    assert add_rounded(tensors, "w", weight, BlockRounding((64, 32, 16)))
    assert tensors["w"].shape == (5, blocks, inputs // blocks) and tensors["w"].dtype == np.uint8
    steps = tensors["w.scale"]
    back = (tensors["w"].astype(np.float32) - 128) * steps[:, :, None]
    error = np.abs(back - weight.reshape(back.shape))
    assert (error <= steps[:, :, None] / 2 * 1.0001).all() and (back[3] == 0).all()


def test_rounding_by_tensor_uses_seven_bits_and_leaves_at_most_half_a_step_per_weight() -> None:
    weight = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float16)
    weight[3] = 0
    tensors: dict[str, np.ndarray] = {}
    assert add_rounded(tensors, "w", weight, TensorRounding())
    codes, scale = tensors["w"], tensors["w.scale"]
    assert codes.shape == (40, 5) and codes.dtype == np.int8 and np.abs(codes).max() == 63
    assert codes.flags["C_CONTIGUOUS"], "the file holds rows"
    error = np.abs(codes * scale - weight.T)
    assert (error <= scale / 2 * 1.0001).all() and (codes[:, 3] == 0).all()


def graph(folder: Path) -> Path:
    """x (N, 64) through two linear maps, one of them stored in half precision, and a product with a table."""
    save_file(TENSORS, folder / WEIGHTS)
    stored, initializers = stored_tensors(folder / WEIGHTS), []
    for name, tensor in TENSORS.items():
        kind = TensorProto.FLOAT16 if tensor.dtype == np.float16 else TensorProto.FLOAT
        proto = TensorProto(name=name, dims=tensor.shape, data_type=kind, data_location=TensorProto.EXTERNAL)
        set_external(proto, stored[name], WEIGHTS)
        initializers.append(proto)
    nodes = [
        helper.make_node("Cast", ["first.weight"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["wide"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "turned"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "second.weight"], ["output"], transB=1),
        helper.make_node("MatMul", ["output", "table"], ["scaled"]),
        helper.make_node("Add", ["table", "table"], ["twice"]),
        helper.make_node("MatMul", ["scaled", "twice"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(*end) for end in (("x", TensorProto.FLOAT, ["n", 64]), ("y", 1, ["n", 16]))]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], initializers),
        opset_imports=[helper.make_opsetid("", 20)], ir_version=10,
    )  # fmt: skip
    (folder / "old.onnx").write_bytes(model.SerializeToString())
    return folder / "old.onnx"


RANGES = {"first.weight": (-4.0, 4.0), "second.weight": (-30.0, 30.0)}


@pytest.mark.parametrize("rounding", [BlockRounding(), TensorRounding(), StaticRounding(RANGES)])
def test_a_rounded_graph_computes_nearly_the_same(tmp_path: Path, rounding: Rounding) -> None:
    rounded = rounded_graph(tmp_path, rounding)
    x = np.random.default_rng(1).normal(size=(7, 64)).astype(np.float32)
    [expected] = open_session(tmp_path / "old.onnx", 1).run(None, {"x": x})
    [found] = rounded.run(None, {"x": x})
    assert 0 < np.linalg.norm(found - expected) / np.linalg.norm(expected) < 0.03


def rounded_graph(folder: Path, rounding: Rounding) -> Session:
    """The graph with both of its linear maps rounded."""
    names = {stored.offset: name for name, stored in stored_tensors(graph(folder).with_name(WEIGHTS)).items()}
    model = read_graph(folder / "old.onnx", names)
    linear, other = weights_by_use(model.graph, names)
    assert (linear, other) == ({"first.weight", "second.weight", "table"}, {"table"})

    tensors: dict[str, np.ndarray] = {"table": TENSORS["table"]}
    for name in linear - other:
        assert add_rounded(tensors, name, TENSORS[name], rounding)
    target = folder / "int8"
    target.mkdir()
    save_file(tensors, target / WEIGHTS)
    replace_linear(model, names, linear - other, stored_tensors(target / WEIGHTS), WEIGHTS, rounding)
    kinds = {node.op_type for node in model.graph.node} - {"QuantizeLinear"}
    assert kinds == {rounding.operator, "Add", "MatMul"}, "casts are gone"
    (target / "new.onnx").write_bytes(model.SerializeToString())
    return open_session(target / "new.onnx", 1)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 3.0), (0.5, 2.0), (-7.0, -1.0), (0.0, 0.0)])
def test_static_ranges_cover_zero_and_their_ends(low: float, high: float) -> None:
    step, zero = uint8_range(low, high)
    ends = (0 - int(zero)) * float(step), (255 - int(zero)) * float(step)
    assert ends[0] <= min(low, 0) + float(step) and ends[1] >= max(high, 0) - float(step)


def test_rows_of_static_rounding_do_not_influence_one_another(tmp_path: Path) -> None:
    session = rounded_graph(tmp_path, StaticRounding(RANGES))
    x = np.random.default_rng(1).normal(size=(7, 64)).astype(np.float32)
    [together] = session.run(None, {"x": x})
    for row in range(len(x)):
        [alone] = session.run(None, {"x": x[row : row + 1]})
        assert np.abs(alone[0] - together[row]).max() < 1e-4


def test_graphs_that_are_corrupt_or_of_other_weights_are_refused(tmp_path: Path) -> None:
    path = graph(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"old\.onnx: expected an exported graph, but it is corrupt or belongs to"
    ):
        read_graph(path, {})
    path.write_bytes(b"no graph")
    with pytest.raises(CheckpointError, match="corrupt"):
        read_graph(path, {})
