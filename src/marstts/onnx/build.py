"""Writing an ONNX graph node by node, over weights that stay in a safetensors file.

Upstream: a safetensors file, of which only the header is read.  Downstream: `mars6.export`.
For what PyTorch's exporter cannot express: loops that sample inside the graph, caches without copies, integer
arithmetic. Weights are named where they are used and stored once; casts and joins of them are nodes that ONNX Runtime
computes when it opens the graph. They belong to the graph that computes with them, even if it is the body of a loop:
ONNX Runtime does not pack weights of an outer graph, and then takes twice as long for every product.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marstts.errors import CheckpointError, require
from marstts.io.files import write_file
from marstts.io.stored_tensors import Stored, stored_tensors

__all__ = ["EXPORT_PACKAGES", "GraphBuilder", "Stored", "stored_tensors"]

EXPORT_PACKAGES = ("torch", "onnx", "onnxscript")
"""Packages that writing graphs needs; commands check them before they work."""

OPSET, CONTRIB_OPSET, IR_VERSION = 18, 1, 10
CONTRIB = "com.microsoft"
"""Operators that ONNX Runtime adds to the standard."""

TYPES = {"F16": "FLOAT16", "F32": "FLOAT", "U8": "UINT8", "I8": "INT8"}
"""Names of the types of weights in safetensors, and in ONNX."""


class GraphBuilder:
    """Builds one graph. Values are named by strings, which the methods return."""

    def __init__(self, weights: Mapping[str, Stored], weights_file: str, parent: GraphBuilder | None = None) -> None:
        """`weights_file` is the name of the file, next to the graph, that holds `weights`."""
        self.onnx = require("onnx", "train")
        self.weights, self.weights_file, self.parent = weights, weights_file, parent
        self.root: GraphBuilder = parent.root if parent else self
        self.nodes: list[Any] = []
        self.prepared: list[Any] = []
        """Nodes that depend on weights alone; they come before all others."""
        self.initializers: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.names = 0
        self.suffix = f" in {self.new_name('graph')}" if parent else ""
        """End of the names of weights in an inner graph: an outer graph may use the same weights."""

    def new_name(self, hint: str) -> str:
        """A name that is not used yet in the whole model."""
        self.root.names += 1
        return f"{hint}.{self.root.names}"

    def op(
        self, kind: str, *inputs: str | ArrayLike | None, domain: str = "", name: str = "", **attributes: Any
    ) -> str:
        """The first output of a new node. Inputs that are not names are constants; None omits an optional input."""
        return self.ops(kind, *inputs, outputs=1, domain=domain, name=name, **attributes)[0]

    def ops(
        self,
        kind: str,
        *inputs: str | ArrayLike | None,
        outputs: int,
        domain: str = "",
        name: str = "",
        **attributes: Any,
    ) -> list[str]:
        """All outputs of a new node; arguments as in `op`."""
        names = [name] if name else [self.new_name(kind.lower()) for _ in range(outputs)]
        sources = [
            value if isinstance(value, str) else "" if value is None else self.constant(value) for value in inputs
        ]
        self.nodes.append(self.onnx.helper.make_node(kind, sources, names, domain=domain, **attributes))
        return names

    def prepare(self, kind: str, *inputs: str | ArrayLike, **attributes: Any) -> str:
        """The output of a node that depends on weights alone; the same request twice gives one node."""
        sources = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        details = "".join(f",{key}={value}" for key, value in attributes.items())
        name = f"{kind.lower()}({','.join(sources)}{details}){self.suffix}"
        if all(name not in node.output for node in self.prepared):
            self.prepared.append(self.onnx.helper.make_node(kind, sources, [name], **attributes))
        return name

    def constant(self, value: ArrayLike) -> str:
        """A small array inside the graph; Python's numbers and lists are int64 or float32."""
        array = np.asarray(value)
        if not isinstance(value, np.ndarray | np.generic):
            array = array.astype(np.int64 if array.dtype.kind in "iu" or not array.size else np.float32)
        name = f"constant.{array.dtype}{list(array.shape)}.{hashlib.sha256(array.tobytes()).hexdigest()[:16]}"
        if name not in self.root.initializers:
            self.root.initializers[name] = self.onnx.numpy_helper.from_array(array, name)
        return name

    def weight(self, name: str, rows: tuple[int, int] | None = None) -> str:
        """A weight in its stored type, or some of its rows."""
        stored = self.weights[name] if rows is None else self.weights[name].rows(*rows)
        label = (name if rows is None else f"{name}[{rows[0]}:{rows[1]}]") + self.suffix
        if label not in self.initializers:
            tensor = self.onnx.TensorProto(name=label, dims=list(stored.shape))
            tensor.data_type = self.onnx.TensorProto.DataType.Value(TYPES[stored.dtype])
            tensor.data_location = self.onnx.TensorProto.EXTERNAL
            for key, value in (("location", self.weights_file), ("offset", stored.offset), ("length", stored.length)):
                tensor.external_data.add(key=key, value=str(value))
            self.initializers[label] = tensor
        return label

    def as_float32(self, name: str, rows: tuple[int, int] | None = None) -> str:
        """A weight in single precision."""
        weight = self.weight(name, rows)
        if self.weights[name].dtype == "F32":
            return weight
        return self.prepare("Cast", weight, to=self.onnx.TensorProto.FLOAT)

    def joined(self, parts: Sequence[str], axis: int) -> str:
        """Concatenation of prepared weights."""
        return parts[0] if len(parts) == 1 else self.prepare("Concat", *parts, axis=axis)

    def cast(self, value: str, to: str) -> str:
        """A value converted to ONNX's type of this name."""
        return self.op("Cast", value, to=self.onnx.TensorProto.DataType.Value(to))

    def input(self, name: str, dtype: str, shape: Sequence[int | str] | None) -> str:
        """A new input; dimensions that vary have names, None is any shape."""
        self.inputs.append(self.value(name, dtype, shape))
        return name

    def output(self, value: str, name: str, dtype: str) -> None:
        """Make `value` an output called `name`."""
        self.op("Identity", value, name=name)
        self.outputs.append(self.value(name, dtype))

    def value(self, name: str, dtype: str, shape: Sequence[int | str] | None = None) -> Any:
        """The declaration of an input or output."""
        return self.onnx.helper.make_tensor_value_info(name, self.onnx.TensorProto.DataType.Value(dtype), shape)

    def body(self) -> GraphBuilder:
        """An inner graph, of a loop or a branch, which may use all values of this one."""
        return GraphBuilder(self.weights, self.weights_file, self)

    def graph(self, name: str) -> Any:
        """The finished graph."""
        return self.onnx.helper.make_graph(
            self.prepared + self.nodes, name, self.inputs, self.outputs, list(self.initializers.values())
        )

    def save(self, path: Path) -> None:
        """Write the graph; the weights file must be next to it."""
        helper = self.onnx.helper
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, CONTRIB_OPSET)]
        model = helper.make_model(self.graph(path.stem), opset_imports=opsets, ir_version=IR_VERSION)
        write_file(path, model.SerializeToString(), CheckpointError)
