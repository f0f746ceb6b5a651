"""PyTorch modules → ONNX graphs whose weights stay in one safetensors file.

Upstream: the torch models.  Downstream: `onnx.session`, which opens graph and weights without PyTorch.
The weights are stored once, as safetensors, usually in half precision. Fine-tuning loads the same file that the graphs
refer to (ONNX external data), so a bundle holds no second copy, and the two cannot differ.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.errors import CheckpointError, require
from marstts.io.files import write_file
from marstts.io.precision import WeightFormat
from marstts.io.stored_tensors import Stored, stored_tensors
from marstts.onnx.build import TYPES

SMALLEST_SHARED = 64
"""Initializers with fewer elements stay inside the graph."""

SCALE = ".scale"
"""Suffix of the name of an int8 tensor's scales."""

SMALLEST_SCALE = 1e-12


@dataclass(frozen=True)
class Graph:
    """One module to export."""

    module: Any
    """A torch module in evaluation mode, on the CPU, in float32."""
    inputs: Mapping[str, Any]
    """Example tensors by name, in the order of the module's arguments."""
    outputs: Sequence[str]
    dynamic: Mapping[str, Mapping[int, str]]
    """Axes that vary, per input, and a name for each."""


def export_graphs(
    folder: Path,
    weights_file: str,
    model: Any,
    graphs: Mapping[str, Graph],
    storage: WeightFormat = WeightFormat.FLOAT16,
    int8: tuple[str, ...] = (),
) -> None:
    """Write `folder/weights_file` and `folder/NAME.onnx` for each graph. `model` has all parameters.

    The model's parameters are first rounded in place to the stored format, so that graphs and model agree. Parameters
    of two and more dimensions whose names start with one of `int8` are stored as integers with one scale per row.
    """
    torch = require("torch", "train")
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    dtype = getattr(torch, storage.value)
    state: dict[str, Any] = {}
    for name, tensor in model.state_dict().items():
        if name.startswith(int8) and tensor.ndim > 1:
            state |= integers(name, tensor)
        else:
            state[name] = tensor.to(dtype).contiguous()
    save_file(state, folder / weights_file)
    stored = stored_tensors(folder / weights_file)
    rounded = dequantized(state)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(rounded[name])
    values = {name: tensor.float().numpy() for name, tensor in rounded.items()}
    for name, graph in graphs.items():
        share_weights(export_one(graph), values, stored, weights_file, folder / f"{name}.onnx")


def integers(name: str, tensor: Any) -> dict[str, Any]:
    """A tensor (out, …) as int8 and its scales (out, 1, …), by their names in a weights file."""
    scale = tensor.float().abs().amax(dim=tuple(range(1, tensor.ndim)), keepdim=True).clamp(min=SMALLEST_SCALE) / 127
    return {name: (tensor / scale).round().char().contiguous(), f"{name}{SCALE}": scale}


def dequantized(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a weights file, those in int8 multiplied by their scales; one without scales is left out."""
    result = dict(tensors)
    for name, tensor in tensors.items():
        if str(tensor.dtype) == "torch.int8":
            scale = tensors.get(f"{name}{SCALE}")
            del result[name]
            if scale is not None and scale.shape == (*tensor.shape[:1], *(1,) * (tensor.ndim - 1)):
                result[name] = tensor.float() * result.pop(f"{name}{SCALE}")
    return result


def lossless_format(*models: Any) -> WeightFormat:
    """Half precision where no parameter of these modules loses by it, else single."""
    torch = require("torch", "train")
    parameters = (parameter for model in models for parameter in model.parameters())
    fits = all(torch.equal(parameter, parameter.half().to(parameter.dtype)) for parameter in parameters)
    return WeightFormat.FLOAT16 if fits else WeightFormat.FLOAT32


def export_one(graph: Graph) -> Any:
    """The plain ONNX model, weights inside."""
    torch, onnx = require("torch", "train"), require("onnx", "train")
    names = sorted({axis for axes in graph.dynamic.values() for axis in axes.values()})
    dimensions = {name: torch.export.Dim(name, min=1) for name in names}
    shapes = {
        name: {axis: dimensions[label] for axis, label in graph.dynamic.get(name, {}).items()} for name in graph.inputs
    }
    with tempfile.TemporaryDirectory() as temporary, torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="# The axis name")  # two inputs share an axis: that is meant
        warnings.filterwarnings("ignore", category=FutureWarning)  # names that PyTorch itself still uses
        path = Path(temporary) / "graph.onnx"
        torch.onnx.export(
            graph.module.eval(), tuple(graph.inputs.values()), str(path), dynamo=True, verbose=False,
            input_names=list(graph.inputs), output_names=list(graph.outputs),
            dynamic_shapes=tuple(shapes.values()), external_data=False, opset_version=20,
        )  # fmt: skip
        return onnx.load(str(path))


def share_weights(
    model: Any, values: Mapping[str, NDArray[np.float32]], stored: Mapping[str, Stored], weights_file: str,
    path: Path,
) -> None:  # fmt: skip
    """Replace each initializer that equals a tensor of the weights file (or its transpose) by a reference, and save."""
    onnx = require("onnx", "train")
    by_size: dict[int, list[str]] = {}
    for name, value in values.items():
        by_size.setdefault(value.size, []).append(name)
    kept, nodes = [], []
    for initializer in model.graph.initializer:
        array = onnx.numpy_helper.to_array(initializer)
        match = find_tensor(array, by_size.get(array.size, []), values) if array.size >= SMALLEST_SHARED else None
        if match is None:
            kept.append(initializer)
            continue
        source, transposed = match
        steps: list[tuple[str, list[str], dict[str, Any]]] = []  # from the stored tensor to the initializer
        if stored[source].dtype != "F32":
            steps.append(("Cast", [], {"to": onnx.TensorProto.FLOAT}))
        if stored[source].dtype == "I8":
            scale = external_tensor(f"{initializer.name}{SCALE}", stored[f"{source}{SCALE}"], weights_file)
            kept.append(scale)
            steps.append(("Mul", [scale.name], {}))
        if transposed:
            steps.append(("Transpose", [], {"perm": [1, 0]}))
        elif array.shape != values[source].shape:
            shape = onnx.numpy_helper.from_array(np.array(array.shape, np.int64), f"{initializer.name}.shape")
            kept.append(shape)
            steps.append(("Reshape", [shape.name], {}))
        chain = [*(f"{initializer.name}.{step}" for step in range(len(steps))), initializer.name]
        kept.append(external_tensor(chain[0], stored[source], weights_file))
        for (kind, more, attributes), (source, target) in zip(steps, pairwise(chain), strict=True):
            nodes.append(onnx.helper.make_node(kind, [source, *more], [target], **attributes))
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    body = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(nodes + body)
    for node in model.graph.node:  # the exporter's notes on source files are of no use in the graph
        del node.metadata_props[:]
        node.doc_string = ""
    del model.graph.value_info[:]
    write_file(path, model.SerializeToString(), CheckpointError)


def find_tensor(
    array: NDArray[Any], candidates: Sequence[str], values: Mapping[str, NDArray[np.float32]]
) -> tuple[str, bool] | None:
    """The name of a tensor holding these values, and whether it must be transposed."""
    if array.dtype != np.float32:
        return None
    for name in candidates:
        value = values[name]
        if np.array_equal(value.reshape(-1), array.reshape(-1)) and (value.ndim < 2 or value.shape == array.shape):
            return name, False
        if value.ndim == 2 and array.shape == value.shape[::-1] and np.array_equal(value.T, array):
            return name, True
        if value.ndim != array.ndim and np.array_equal(value.reshape(-1), array.reshape(-1)):
            return name, False
    return None


def external_tensor(name: str, stored: Stored, weights_file: str) -> Any:
    """An initializer whose bytes lie in the weights file."""
    onnx = require("onnx", "train")
    tensor = onnx.TensorProto(name=name, dims=stored.shape, data_type=getattr(onnx.TensorProto, TYPES[stored.dtype]))
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", weights_file), ("offset", str(stored.offset)), ("length", str(stored.length))):
        tensor.external_data.add(key=key, value=value)
    return tensor
