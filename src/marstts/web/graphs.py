"""Graphs for the tab: each file with its own weights, in integers as they are stored, multiplied in single precision.

Upstream: the graphs of a bundle, which keep their weights next to them.  Downstream: `site`; ONNX Runtime Web.
A browser opens no second file, and its runtime multiplies `MatMulNBits` by widening the weights at every call. So the
weights stay integers in the file, and nodes widen them once, when the graph is opened. Activations are not rounded:
the numbers are those of the PyTorch engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.io.reading import read_regular_file
from marstts.onnx.graph import parse_model, tensors_elsewhere
from marstts.onnx.session import MAX_GRAPH_BYTES, MappedWeights

ZERO = 128
"""The integer that stands for 0."""

ONNX_TYPES = {"float32": 1, "int64": 7}
FLOAT, INT, INTS = 1, 2, 7
"""TensorProto.FLOAT; AttributeProto.INT and INTS."""


def self_contained(path: Path) -> bytes:
    """The graph at `path` as one file, for ONNX Runtime Web; CheckpointError where it is corrupt."""
    model = parse_model(read_regular_file(path, MAX_GRAPH_BYTES))
    files: dict[str, MappedWeights] = {}
    for tensor, place, _ in tensors_elsewhere(model.graph):
        weights = files.setdefault(place.file, MappedWeights(path, place.file))
        tensor.raw_data = weights.array(tensor, place).tobytes()
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    widen_products(model.graph)
    return bytes(model.SerializeToString())


def widen_products(graph: Any) -> None:
    """Replace every `MatMulNBits` of a graph, and of those in it, by its weights in single precision and `MatMul`."""
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                widen_products(attribute.g)
        if node.op_type == "MatMulNBits":
            Widening(graph, node).write()
        else:
            graph.node.append(node)


class Widening:
    """Writes the nodes that take the place of one `MatMulNBits`."""

    def __init__(self, graph: Any, node: Any) -> None:
        self.graph, self.node = graph, node
        sizes = {each.name: each.i for each in node.attribute}
        assert sizes["bits"] == 8, "weights of this project are bytes"
        self.outputs, self.blocks = sizes["N"], sizes["K"] // sizes["block_size"]
        self.size, self.inputs = sizes["block_size"], sizes["K"]

    def write(self) -> None:
        """x (rows, K) times codes (N, blocks, size) with scales (N, blocks), and the bias, if there is one."""
        x, codes, scales, *rest = self.node.input
        bias = rest[2] if len(rest) > 2 else ""
        wide = self.op("Sub", self.op("Cast", codes, to=FLOAT), self.constant(np.array(ZERO, np.float32)))
        wide = self.reshape(wide, self.outputs, self.blocks, self.size)
        wide = self.op("Mul", wide, self.reshape(scales, self.outputs, self.blocks, 1))
        weight = self.op("Transpose", self.reshape(wide, self.outputs, self.inputs), perm=[1, 0])
        if bias:
            self.op("Add", self.op("MatMul", x, weight), bias, output=self.node.output[0])
        else:
            self.op("MatMul", x, weight, output=self.node.output[0])

    def reshape(self, value: str, *shape: int) -> str:
        return self.op("Reshape", value, self.constant(np.array(shape, np.int64)))

    def constant(self, values: NDArray[Any]) -> str:
        """The name of a new constant."""
        name = f"{self.node.output[0]}.constant.{len(self.graph.initializer)}"
        tensor = self.graph.initializer.add(name=name, data_type=ONNX_TYPES[values.dtype.name])
        tensor.dims.extend(values.shape)
        tensor.raw_data = values.tobytes()
        return name

    def op(self, kind: str, *inputs: str, output: str = "", **attributes: int | list[int]) -> str:
        """The output of a new node."""
        name = output or f"{self.node.output[0]}.{kind.lower()}.{len(self.graph.node)}"
        node = self.graph.node.add(op_type=kind, input=inputs, output=[name])
        for key, value in attributes.items():
            if isinstance(value, int):
                node.attribute.add(name=key, i=value, type=INT)
            else:
                node.attribute.add(name=key, ints=value, type=INTS)
        return name
