"""MARS5 in eight-bit integers: the weights of all linear maps, in the graphs that `graphs` writes.

Upstream: a folder with graphs and weights in half or single precision.  Downstream: `engines.onnx`, which runs the
folder written here.
Weights have one scale per output and block of inputs; activations are rounded by row and block while speaking, so that
products are made of integers. Embeddings, norms, biases and positions stay as they are.
Each graph keeps its nodes but the linear maps, which become ONNX Runtime's `MatMulNBits`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from marstts.errors import CheckpointError, require
from marstts.file_errors import printable_name
from marstts.mars5.folder import AR_FILE, CONFIG_FILE, NAR_FILE, SPEECH_FILE, TEXT_FILE
from marstts.reading import read_regular_file
from marstts.stored_tensors import Stored, stored_tensors

MAX_GRAPH_BYTES = 2**28

BLOCKS = (128, 64, 32, 16)
"""Numbers of inputs that may share a scale; the first that divides their number is used."""

ROUND_TO_INT8 = 4
"""`MatMulNBits`' word for rounding activations, too."""

MOVES = ("Cast", "Transpose", "Identity")
"""Nodes between a stored weight and the linear map that reads it."""


def is_int8(folder: Path) -> bool:
    """Return True where the weights of the AR in a model's folder are int8."""
    return any(stored.dtype == "U8" for stored in stored_tensors(folder / AR_FILE).values())


def quantize(folder: Path, target: Path) -> None:
    """Write `target`, an int8 version of the MARS5 with graphs in `folder`; CheckpointError for one that is int8."""
    if is_int8(folder):
        raise CheckpointError(
            f"{printable_name(folder)}: its weights are int8 already; give the bundle that it was quantized from"
        )
    target.mkdir(parents=True, exist_ok=True)
    for name in (CONFIG_FILE, TEXT_FILE, SPEECH_FILE):
        shutil.copyfile(folder / name, target / name)
    for weights_file, prefix in ((AR_FILE, "ar_"), (NAR_FILE, "nar_")):
        quantize_graphs(folder, target, weights_file, sorted(folder.glob(f"{prefix}*.onnx")))


def quantize_graphs(folder: Path, target: Path, weights_file: str, paths: Iterable[Path]) -> None:
    """Write the weights of one model, rounded, and its graphs."""
    onnx = require("onnx", "train")
    stored = stored_tensors(folder / weights_file)
    names = {tensor.offset: name for name, tensor in stored.items()}
    contents = {path.name: read_regular_file(path, MAX_GRAPH_BYTES, CheckpointError) for path in paths}
    graphs = {name: onnx.load_from_string(content) for name, content in contents.items()}
    linear, other = set[str](), set[str]()
    for model in graphs.values():
        used, rest = weights_by_use(model.graph, names)
        linear |= used
        other |= rest
    tensors: dict[str, NDArray[Any]] = {}
    for name, weight in load_file(folder / weights_file).items():
        block = next((size for size in BLOCKS if weight.ndim == 2 and weight.shape[1] % size == 0), None)
        if name in linear - other and block is not None:
            add_rounded(tensors, name, weight, block)
        else:
            tensors[name] = weight
    save_file(tensors, target / weights_file)
    (target / weights_file).chmod(0o644)  # safetensors writes for the owner alone
    rounded = {name for name, tensor in tensors.items() if tensor.dtype == np.uint8}
    for file, model in graphs.items():
        replace_linear(model, names, rounded, stored_tensors(target / weights_file), weights_file)
        (target / file).write_bytes(model.SerializeToString())


def weights_by_use(graph: Any, names: dict[int, str]) -> tuple[set[str], set[str]]:
    """Names of the stored tensors that only linear maps read, and of those that something else reads."""
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


def add_rounded(tensors: dict[str, NDArray[Any]], name: str, weight: NDArray[Any], block: int) -> None:
    """weight (out, in) -> uint8 (out, blocks, block), 128 standing for zero, and `name`.scale (out, blocks)."""
    wide = weight.astype(np.float32).reshape(len(weight), -1, block)
    scale = np.maximum(np.abs(wide).max(axis=2), np.float32(1e-12)) / np.float32(127)
    tensors[name] = (np.rint(wide / scale[:, :, None]) + 128).astype(np.uint8)
    tensors[f"{name}.scale"] = scale


def replace_linear(
    model: Any, names: dict[int, str], rounded: set[str], stored: dict[str, Stored], weights_file: str
) -> None:
    """Make linear maps of rounded weights `MatMulNBits`, and point everything else to the new weights file."""
    onnx = require("onnx", "train")
    graph, sources = model.graph, stored_sources(model.graph, names)
    for tensor in graph.initializer:
        if tensor.external_data:
            name = names[offset_of(tensor)]
            set_external(tensor, stored[name], weights_file)
    added: dict[str, Any] = {}
    for node in graph.node:
        if node.op_type not in ("MatMul", "Gemm") or sources.get(node.input[1]) not in rounded:
            continue
        name = sources[node.input[1]]
        outputs, blocks, block = stored[name].shape
        inputs = [node.input[0], f"{name}.int8", f"{name}.scale", "", "", *node.input[2:3]]
        for value, source, kind in (
            (inputs[1], name, onnx.TensorProto.UINT8),
            (inputs[2], f"{name}.scale", onnx.TensorProto.FLOAT),
        ):
            added[value] = onnx.TensorProto(name=value, dims=list(stored[source].shape), data_type=kind)
            added[value].data_location = onnx.TensorProto.EXTERNAL
            set_external(added[value], stored[source], weights_file)
        node.CopyFrom(
            onnx.helper.make_node(
                "MatMulNBits", inputs, list(node.output), domain="com.microsoft", bits=8,
                accuracy_level=ROUND_TO_INT8, K=blocks * block, N=outputs, block_size=block,
            )
        )  # fmt: skip
    graph.initializer.extend(added.values())
    drop_unused(graph)
    if not any(entry.domain == "com.microsoft" for entry in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))


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
