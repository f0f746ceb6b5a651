"""MARS5 in eight-bit integers: the weights of all linear maps, in the graphs that `graphs` writes.

Upstream: a folder with graphs and weights in half or single precision.  Downstream: `engines.onnx`, which runs the
folder written here.
Weights have one scale per output and block of inputs; activations are rounded by row and block while speaking, so that
products are made of integers, and rows do not influence one another (`onnx_quantize.BlockRounding`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from marstts.errors import CheckpointError
from marstts.io.file_errors import printable_name
from marstts.io.stored_tensors import stored_tensors
from marstts.mars5.folder import AR_FILE, CONFIG_FILE, NAR_FILE, SPEECH_FILE, TEXT_FILE
from marstts.onnx.quantize import BlockRounding, add_rounded, read_graph, replace_linear, weights_by_use

ROUNDING = BlockRounding()


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
    names = {tensor.offset: name for name, tensor in stored_tensors(folder / weights_file).items()}
    graphs = {path.name: read_graph(path, names) for path in paths}
    linear, other = set[str](), set[str]()
    for model in graphs.values():
        used, rest = weights_by_use(model.graph, names)
        linear |= used
        other |= rest
    tensors: dict[str, NDArray[Any]] = {}
    rounded = set[str]()
    for name, weight in load_file(folder / weights_file).items():
        if name in linear - other and add_rounded(tensors, name, weight, ROUNDING):
            rounded.add(name)
        else:
            tensors[name] = weight
    save_file(tensors, target / weights_file)
    (target / weights_file).chmod(0o644)  # safetensors writes for the owner alone
    for file, model in graphs.items():
        replace_linear(model, names, rounded, stored_tensors(target / weights_file), weights_file, ROUNDING)
        (target / file).write_bytes(model.SerializeToString())
