"""The linear maps of exported graphs in eight-bit integers.

Upstream: graphs of `onnx.export`, whose weights lie in a safetensors file.  Downstream: the models' int8 versions.
A graph keeps its nodes but the linear maps. Embeddings, norms, biases and positions stay as they are.
Three kinds of rounding. `BlockRounding` rounds activations by row and block of inputs, so that rows do not influence
one another. `TensorRounding` rounds them all with one scale; it is two to three times as fast on many rows, but only
for graphs that run one item at a time. `StaticRounding` rounds them by ranges that were measured before: as fast, and
rows do not influence one another, but values beyond the ranges are clipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from marstts.errors import CheckpointError, require
from marstts.io.file_errors import printable_name
from marstts.io.reading import read_regular_file
from marstts.io.stored_tensors import Stored

MAX_GRAPH_BYTES = 2**28

MOVES = ("Cast", "Transpose", "Identity")
"""Nodes between a stored weight and the linear map that reads it."""

SCALE = ".scale"
"""Suffix of the name of a rounded weight's scales."""

MICROSOFT = "com.microsoft"
"""Domain of ONNX Runtime's operators."""

SMALLEST_SCALE = np.float32(1e-12)


class Rounding(Protocol):
    """A layout of rounded weights, and the operator of ONNX Runtime that reads it."""

    @property
    def operator(self) -> str:
        """Name of the operator."""
        ...

    def rounded(self, weight: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]] | None:
        """weight (out, in) -> integers and scales; None where its sizes do not fit."""
        ...

    def nodes(self, onnx: Any, linear: LinearMap) -> tuple[list[Any], list[Any]]:
        """The nodes that compute a linear map, and initializers that they need in addition to the stored ones."""
        ...


@dataclass(frozen=True)
class LinearMap:
    """Names of the values of a linear map in a graph."""

    x: str
    output: str

    bias: tuple[str, ...]
    """At most one."""

    weight: str
    scale: str

    stored_weight: str
    """Name of the weight in the weights file."""

    shape: tuple[int, ...]
    """Shape of the rounded weight."""


@dataclass(frozen=True)
class BlockRounding:
    """`MatMulNBits`: uint8 (out, blocks, block), 128 standing for zero, and scales (out, blocks)."""

    blocks: tuple[int, ...] = (128, 64, 32, 16)
    """Numbers of inputs that may share a scale; the first that divides their number is used."""

    operator: str = "MatMulNBits"

    def rounded(self, weight: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]] | None:
        """See `Rounding.rounded`."""
        block = next((size for size in self.blocks if weight.shape[1] % size == 0), None)
        if block is None:
            return None
        wide = weight.astype(np.float32).reshape(len(weight), -1, block)
        scale = np.maximum(np.abs(wide).max(axis=2), SMALLEST_SCALE) / np.float32(127)
        return (np.rint(wide / scale[:, :, None]) + 128).astype(np.uint8), scale

    def nodes(self, onnx: Any, linear: LinearMap) -> tuple[list[Any], list[Any]]:
        """See `Rounding.nodes`; level 4 rounds activations to eight bits, too."""
        outputs, blocks, block = linear.shape
        sizes = {"bits": 8, "accuracy_level": 4, "K": blocks * block, "N": outputs, "block_size": block}
        inputs = [linear.x, linear.weight, linear.scale, "", "", *linear.bias]
        return [onnx.helper.make_node(self.operator, inputs, [linear.output], domain=MICROSOFT, **sizes)], []


@dataclass(frozen=True)
class TensorRounding:
    """`DynamicQuantizeMatMul`: int8 (in, out) and scales (out,).

    Seven bits are used: with eight, processors without VNNI overflow when they add products in pairs.
    """

    operator: str = "DynamicQuantizeMatMul"

    def rounded(self, weight: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """See `Rounding.rounded`."""
        wide = weight.astype(np.float32).T
        scale = np.maximum(np.abs(wide).max(axis=0), SMALLEST_SCALE) / np.float32(63)
        return np.ascontiguousarray(np.rint(wide / scale).astype(np.int8)), scale

    def nodes(self, onnx: Any, linear: LinearMap) -> tuple[list[Any], list[Any]]:
        """See `Rounding.nodes`."""
        inputs = [linear.x, linear.weight, linear.scale, "", *linear.bias]
        return [onnx.helper.make_node(self.operator, inputs, [linear.output], domain=MICROSOFT)], []


@dataclass(frozen=True)
class StaticRounding:
    """`QuantizeLinear` and `MatMulIntegerToFloat`: weights as in `TensorRounding`, activations as uint8."""

    ranges: Mapping[str, tuple[float, float]]
    """Smallest and largest input of each linear map by the name of its stored weight."""

    operator: str = "MatMulIntegerToFloat"

    def rounded(self, weight: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """See `Rounding.rounded`."""
        return TensorRounding().rounded(weight)

    def nodes(self, onnx: Any, linear: LinearMap) -> tuple[list[Any], list[Any]]:
        """See `Rounding.nodes`."""
        step, zero = uint8_range(*self.ranges[linear.stored_weight])
        names = [f"{linear.output}.{part}" for part in ("step", "zero", "rounded")]
        constants = [
            onnx.numpy_helper.from_array(value, name) for value, name in zip((step, zero), names, strict=False)
        ]
        inputs = [names[2], linear.weight, names[0], linear.scale, names[1], "", *linear.bias]
        return [
            onnx.helper.make_node("QuantizeLinear", [linear.x, *names[:2]], names[2:]),
            onnx.helper.make_node(self.operator, inputs, [linear.output], domain=MICROSOFT),
        ], constants


def uint8_range(low: float, high: float) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Step and zero point with which uint8 covers a range and zero."""
    low, high = min(low, 0.0), max(high, 0.0)
    step = max((high - low) / 255, float(SMALLEST_SCALE))
    return np.array(step, np.float32), np.array(round(-low / step), np.uint8)


def read_graph(path: Path, names: dict[int, str]) -> Any:
    """The graph of a file, without its external weights, which are the tensors of these names by their first bytes.

    Raises CheckpointError where the graph cannot be read, or belongs to other weights.
    """
    onnx = require("onnx", "train")
    content = read_regular_file(path, MAX_GRAPH_BYTES, CheckpointError)
    try:
        model = onnx.load_from_string(content)
        stored_sources(model.graph, names)
    except Exception as error:  # protobuf's classes of exceptions
        raise CheckpointError(
            f"{printable_name(path)}: expected an exported graph, but it is corrupt or belongs to other weights"
        ) from error
    return model


def weights_by_use(graph: Any, names: dict[int, str]) -> tuple[set[str], set[str]]:
    """Names of the stored tensors that linear maps read, and of those that something else reads.

    `names` are those of the tensors in the weights file by their first bytes.
    """
    sources = stored_sources(graph, names)
    linear, other = set[str](), set[str]()
    for node in graph.node:
        if node.op_type in MOVES:
            continue
        for position, value in enumerate(node.input):
            if value in sources:
                is_linear = node.op_type in ("MatMul", "Gemm") and position == 1
                (linear if is_linear else other).add(sources[value])
    return linear, other


def stored_sources(graph: Any, names: dict[int, str]) -> dict[str, str]:
    """The stored tensor that a value of the graph is, perhaps cast or transposed: by the value's name."""
    sources = {tensor.name: names[offset_of(tensor)] for tensor in graph.initializer if tensor.external_data}
    for node in graph.node:  # in the order of computation
        if node.op_type in MOVES and node.input[0] in sources:
            sources[node.output[0]] = sources[node.input[0]]
    return sources


def add_rounded(tensors: dict[str, NDArray[Any]], name: str, weight: NDArray[Any], rounding: Rounding) -> bool:
    """Add a weight (out, in) as integers, and its scales; False where its sizes do not fit."""
    rounded = rounding.rounded(weight) if weight.ndim == 2 else None
    if rounded is not None:
        tensors[name], tensors[f"{name}{SCALE}"] = rounded
    return rounded is not None


def replace_linear(
    model: Any, names: dict[int, str], rounded: set[str], stored: dict[str, Stored], weights_file: str, kind: Rounding
) -> None:
    """Make linear maps of the rounded weights integer operators, and point all weights to the new file.

    `names` are those of the old weights file, `stored` the tensors of the new one.
    """
    onnx = require("onnx", "train")
    graph, sources = model.graph, stored_sources(model.graph, names)
    for tensor in graph.initializer:
        if tensor.external_data:
            set_external(tensor, stored[names[offset_of(tensor)]], weights_file)
    added: dict[str, Any] = {}
    nodes: list[Any] = []
    for node in graph.node:
        name = sources.get(node.input[1]) if node.op_type in ("MatMul", "Gemm") else None
        if name not in rounded:
            nodes.append(node)
            continue
        linear = LinearMap(
            x=node.input[0],
            output=node.output[0],
            bias=tuple(node.input[2:3]),
            weight=f"{name}.int8",
            scale=f"{name}{SCALE}",
            stored_weight=name,
            shape=stored[name].shape,
        )
        for value, source in ((linear.weight, name), (linear.scale, f"{name}{SCALE}")):
            added[value] = external_tensor(onnx, value, stored[source], weights_file)
        made, constants = kind.nodes(onnx, linear)
        nodes += made
        added |= {constant.name: constant for constant in constants}
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(added.values())
    drop_unused(graph)
    if not any(entry.domain == MICROSOFT for entry in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))


def external_tensor(onnx: Any, name: str, stored: Stored, weights_file: str) -> Any:
    """An initializer whose values are a tensor of the weights file."""
    kinds = {"U8": onnx.TensorProto.UINT8, "I8": onnx.TensorProto.INT8, "F32": onnx.TensorProto.FLOAT}
    tensor = onnx.TensorProto(name=name, dims=list(stored.shape), data_type=kinds[stored.dtype])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    set_external(tensor, stored, weights_file)
    return tensor


def offset_of(tensor: Any) -> int:
    """First byte of an external initializer in its file."""
    return int(next(entry.value for entry in tensor.external_data if entry.key == "offset"))


def set_external(tensor: Any, stored: Stored, weights_file: str) -> None:
    """Point an initializer to a tensor of the weights file."""
    del tensor.external_data[:]
    for key, value in (("location", weights_file), ("offset", str(stored.offset)), ("length", str(stored.length))):
        tensor.external_data.add(key=key, value=value)


def drop_unused(graph: Any) -> None:
    """Remove casts and transposes of weights that nothing reads any more, and those weights."""
    while True:
        used = {value for node in graph.node for value in node.input} | {value.name for value in graph.output}
        kept = [node for node in graph.node if used & set(node.output)]
        if len(kept) == len(graph.node):
            break
        del graph.node[:]
        graph.node.extend(kept)
    initializers = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(initializers)
