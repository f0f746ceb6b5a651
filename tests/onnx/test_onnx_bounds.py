"""Graphs of strangers that would use all memory, or all time, are refused or fail in one sentence."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marstts.errors import CheckpointError
from marstts.onnx.session import CheckedGraph, open_session

onnx = pytest.importorskip("onnx")
helper, TensorProto = onnx.helper, onnx.TensorProto
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def graph_of(nodes: list[Any], constants: dict[str, list[int]], opset: int = 18) -> bytes:
    """A graph from x (n, 4) to y."""
    initializers = [helper.make_tensor(name, INT64, [len(values)], values) for name, values in constants.items()]
    x, y = helper.make_tensor_value_info("x", FLOAT, ["n", 4]), helper.make_tensor_value_info("y", FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10).SerializeToString()


HUGE_GRAPHS = {
    "constant": ([helper.make_node("ConstantOfShape", ["n"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])],
                 {"n": [2**20, 2**20, 4]}),
    "half a machine": ([helper.make_node("ConstantOfShape", ["n"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])],
                       {"n": [2**35 // 4 * 9, 1]}),
    "expanded": ([helper.make_node("Expand", ["x", "n"], ["y"])], {"n": [2**20, 2**20, 4]}),
    "padded": ([helper.make_node("Pad", ["x", "n"], ["y"])], {"n": [0, 0, 2**40, 4]}),
    "tiled": ([helper.make_node("Tile", ["x", "n"], ["y"])], {"n": [2**40, 4]}),
}  # fmt: skip


@pytest.mark.parametrize("which", HUGE_GRAPHS)
def test_graphs_that_ask_for_terabytes_are_one_sentence(which: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.onnx"
    path.write_bytes(graph_of(*HUGE_GRAPHS[which]))
    with pytest.raises(CheckpointError) as caught:
        CheckedGraph(path, {"x": (None, 4)}, {"y": (None, 4)}).run({"x": np.zeros((1, 4), np.float32)}, [(1, 4)])
    assert "\n" not in str(caught.value)


def loop(rounds: str, body_nodes: list[Any], name: str = "y") -> Any:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), *body_nodes], "body",
        [value("i", INT64, []), value("go", BOOL, []), value("before", FLOAT, None)],
        [value("on", BOOL, []), value("after", FLOAT, None)],
    )  # fmt: skip
    return helper.make_node("Loop", [rounds, "", "x"], [name], body=body)


DOUBLE = helper.make_node("Add", ["before", "before"], ["after"])
ENDLESS = {
    "many rounds": ([loop("n", [DOUBLE])], {"n": [2**62]}),
    "negative rounds": ([loop("n", [DOUBLE])], {"n": [-1]}),
    "two numbers of rounds": ([loop("n", [DOUBLE])], {"n": [3, 3]}),
    "rounds without number": ([loop("", [DOUBLE])], {}),
    "a constant without name": ([loop("", [DOUBLE])], {"": [0]}),
    "computed rounds": ([helper.make_node("Mul", ["m", "m"], ["n"]), loop("n", [DOUBLE])], {"m": [2**30]}),
    "a loop within a loop": ([loop("n", [loop("n", [DOUBLE], "after")])], {"n": [900]}),
}

SCAN = helper.make_node("Scan", ["x"], ["y"], num_scan_inputs=1, body=helper.make_graph(
    [helper.make_node("Identity", ["row"], ["out"])], "body",
    [helper.make_tensor_value_info("row", FLOAT, [4])], [helper.make_tensor_value_info("out", FLOAT, [4])],
))  # fmt: skip
BRANCH = helper.make_graph([loop("n", [DOUBLE], "z")], "branch", [], [helper.make_tensor_value_info("z", FLOAT, None)])
ENDLESS |= {
    "a scan": ([SCAN], {}),
    "a loop in a branch": ([helper.make_node("If", ["x"], ["y"], then_branch=BRANCH, else_branch=BRANCH)], {"n": [3]}),
    "a constant that a node replaces": ([helper.make_node("Shape", ["x"], ["n"]), loop("n", [DOUBLE])], {"n": [3]}),
}


@pytest.mark.parametrize("which", ENDLESS)
def test_loops_that_may_not_end_are_refused(which: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.onnx"
    path.write_bytes(graph_of(*ENDLESS[which]))
    with pytest.raises(CheckpointError, match="a loop that is not known to end within 1000 rounds"):
        open_session(path)


@pytest.mark.parametrize("name", ["graph", "node", "input"])
def test_a_loop_hidden_behind_a_long_key_is_refused(name: str, tmp_path: Path) -> None:
    content = graph_of(*ENDLESS["many rounds"])
    key = {"graph": b"\x3a", "node": b"\x0a", "input": b"\x5a"}[name]
    hidden = bytes([key[0] | 0x80, 0x80, 0x80, 0x80, 0x10])
    path = tmp_path / "graph.onnx"
    path.write_bytes(content.replace(key, hidden, 1))
    with pytest.raises(CheckpointError):
        open_session(path)


def test_a_loop_of_a_constant_number_of_rounds_is_run(tmp_path: Path) -> None:
    path = tmp_path / "graph.onnx"
    path.write_bytes(graph_of([loop("n", [DOUBLE])], {"n": [5]}))
    assert np.array_equal(open_session(path).run(None, {"x": np.ones((2, 4), np.float32)})[0], np.full((2, 4), 32.0))


@pytest.mark.parametrize("is_inner", [False, True])
def test_graphs_of_very_many_nodes_are_refused_at_once(is_inner: bool, tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["before" if is_inner else "x"], ["after"])] * 50_000
    path = tmp_path / "graph.onnx"
    path.write_bytes(graph_of([loop("n", nodes)] if is_inner else [*nodes, DOUBLE], {"n": [2]}))
    started = time.process_time()
    with pytest.raises(CheckpointError, match="more than 50000 nodes"):
        open_session(path)
    assert time.process_time() - started < 2.0
