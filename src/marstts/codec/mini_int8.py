"""The mini codec's decoder in eight-bit integers: half the time for the same audio, but for rounding.

Upstream: a folder of `training.codec.export`, and recordings.  Downstream: `marstts quantize`; `mini.MiniCodec` runs
the folder written here.
The linear maps of the graphs `decoder` and `filters` take most of the time and become integers. Their activations are
rounded by fixed ranges (`onnx_quantize.StaticRounding`), so that a chunk of a stream is what it is in the whole
utterance. The encoder, the pitch and the maps of the timbre embedding stay as they are.
Ranges are measured on recordings and belong to the weights, so they stand in the codec's `config.json`.
Shapes: T patches · P codes of a patch.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform
from marstts.codec.mini import CONFIG_FILE, WEIGHTS_FILE, MiniCodec, MiniCodecFolder
from marstts.errors import CheckpointError, require
from marstts.io.config import read_config, write_config
from marstts.io.file_errors import printable_name
from marstts.io.stored_tensors import stored_tensors
from marstts.onnx.quantize import (
    StaticRounding,
    add_rounded,
    read_graph,
    replace_linear,
    stored_sources,
    weights_by_use,
)
from marstts.onnx.session import open_session

ROUNDED_GRAPHS = ("decoder", "filters")

TAIL = 0.00001
"""Fraction of the activations at either end that are clipped."""

MAX_SAMPLES = 200_000
"""Activations of a linear map and recording that are kept to find the range."""

Ranges = dict[str, tuple[float, float]]
"""Smallest and largest input of each linear map by the name of its stored weight."""


def is_int8(folder: Path) -> bool:
    """Whether the decoder of the codec in `folder` is int8."""
    return any(stored.dtype == "I8" for stored in stored_tensors(folder / WEIGHTS_FILE).values())


def measure_ranges(folder: Path, recordings: Iterable[Waveform]) -> Ranges:
    """Ranges of the decoder's activations for the codes and timbres of recordings, at least one.

    Raises CheckpointError for a codec that is int8 already, or whose graphs are malformed.
    """
    refuse_int8(folder)
    codec = MiniCodec(folder)
    found: dict[str, list[NDArray[np.float32]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        sessions = {name: open_with_activations(folder, name, Path(temporary)) for name in ROUNDED_GRAPHS}
        for waveform in recordings:
            feeds: dict[str, NDArray[Any]] = {"codes": codec.patches(codec.encode(waveform))[None]}
            if codec.timbre_width:
                feeds["timbre"] = codec.timbre_embedding(waveform)[None]
            for name in ROUNDED_GRAPHS:
                session, activations = sessions[name]
                first, *values = session.run([session.get_outputs()[0].name, *activations.values()], feeds)
                feeds = {"hidden": first, **{key: value for key, value in feeds.items() if key == "timbre"}}
                for weight, value in zip(activations, values, strict=True):
                    found.setdefault(weight, []).append(thinned(value))
    return {weight: bounds_of(np.concatenate(values)) for weight, values in found.items()}


def known_ranges(folder: Path) -> Ranges:
    """The ranges that the codec brings; empty where they were never measured."""
    return read_config(MiniCodecFolder, folder / CONFIG_FILE, CheckpointError).activation_ranges


def open_with_activations(folder: Path, name: str, temporary: Path) -> tuple[Any, dict[str, str]]:
    """A session of a graph that also returns the inputs of its linear maps, and their names by stored weight."""
    onnx = require("onnx", "train")
    names = names_by_offset(folder)
    model = read_graph(folder / f"{name}.onnx", names)
    rounded, sources = rounded_weights(model, names), stored_sources(model.graph, names)
    activations = {
        sources[node.input[1]]: node.input[0]
        for node in model.graph.node
        if node.op_type == "MatMul" and sources.get(node.input[1]) in rounded
    }
    for value in dict.fromkeys(activations.values()):
        model.graph.output.append(onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, None))
    (temporary / f"{name}.onnx").write_bytes(model.SerializeToString())
    if not (temporary / WEIGHTS_FILE).exists():
        shutil.copyfile(folder / WEIGHTS_FILE, temporary / WEIGHTS_FILE)
    return open_session(temporary / f"{name}.onnx"), activations


def thinned(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Values evenly chosen from all, and both extremes, (N,)."""
    flat = values.reshape(-1)
    return np.append(flat[:: -(-len(flat) // MAX_SAMPLES)], [flat.min(), flat.max()])


def bounds_of(values: NDArray[np.float32]) -> tuple[float, float]:
    """The range of values without their tails."""
    low, high = np.quantile(values, [TAIL, 1 - TAIL])
    return float(low), float(high)


def quantize_codec(folder: Path, target: Path, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Write `target`, the codec with an int8 decoder; `ranges` are those of `measure_ranges`.

    Raises CheckpointError for a codec that is int8 already, and where ranges are missing.
    """
    refuse_int8(folder)
    names = names_by_offset(folder)
    graphs = {path.name: read_graph(path, names) for path in sorted(folder.glob("*.onnx"))}
    rounded = {weight for name in ROUNDED_GRAPHS for weight in rounded_weights(graphs[f"{name}.onnx"], names)}
    if missing := sorted(rounded - ranges.keys()):
        raise CheckpointError(
            f"{printable_name(folder)}: no range of activations is known of {len(missing)} linear maps, e.g. "
            f"{missing[0]}; measure them on recordings with --recordings"
        )
    rounding, tensors = StaticRounding(ranges), dict[str, NDArray[Any]]()
    for name, weight in load_tensors(folder).items():
        if name not in rounded:
            tensors[name] = weight
        else:
            add_rounded(tensors, name, weight, rounding)
    target.mkdir(parents=True, exist_ok=True)
    save_tensors(tensors, target)
    for file, model in graphs.items():
        replace_linear(model, names, rounded, stored_tensors(target / WEIGHTS_FILE), WEIGHTS_FILE, rounding)
        (target / file).write_bytes(model.SerializeToString())
    described = read_config(MiniCodecFolder, folder / CONFIG_FILE)
    write_config(described.model_copy(update={"activation_ranges": dict(ranges)}), target / CONFIG_FILE)


def rounded_weights(model: Any, names: dict[int, str]) -> set[str]:
    """Names of the stored weights of a graph that become integers: those of linear maps over time."""
    linear, other = weights_by_use(model.graph, names)
    sources = stored_sources(model.graph, names)
    once = {sources[node.input[1]] for node in model.graph.node if node.op_type == "Gemm" and node.input[1] in sources}
    return linear - other - once


def names_by_offset(folder: Path) -> dict[int, str]:
    """Names of the stored tensors by their first bytes."""
    return {stored.offset: name for name, stored in stored_tensors(folder / WEIGHTS_FILE).items()}


def refuse_int8(folder: Path) -> None:
    """Raise CheckpointError for a codec that is int8 already."""
    if is_int8(folder):
        raise CheckpointError(f"{printable_name(folder)}: its decoder is int8 already; give the codec it was made from")


def load_tensors(folder: Path) -> dict[str, NDArray[Any]]:
    """The stored tensors."""
    from safetensors.numpy import load_file

    return load_file(folder / WEIGHTS_FILE)


def save_tensors(tensors: dict[str, NDArray[Any]], folder: Path) -> None:
    """Write the weights file."""
    from safetensors.numpy import save_file

    save_file(tensors, folder / WEIGHTS_FILE)
    (folder / WEIGHTS_FILE).chmod(0o644)  # safetensors writes for the owner alone
