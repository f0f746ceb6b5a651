"""The packaged model on another processor: numbers that are rounded otherwise, and so other takes.

A test that speaks must hold for any take. Here, half-precision weights and the scales of int8 weights are multiplied by
(1 ± 1e-4), at random, and matrices of int8 are not rounded to int8 on the other side (`accuracy_level`).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

RELATIVE = 1e-4

FORMATS = {"F16": np.float16, "F32": np.float32}
"""Number formats of weights in half precision, and of scales."""


def write_perturbed(bundle: Path, folder: Path, seed: int) -> None:
    """Write a copy of a bundle with perturbation number `seed`."""
    shutil.copytree(bundle, folder)
    rng = np.random.default_rng(seed)
    for path in sorted(folder.rglob("*.safetensors")):
        perturb_weights(path, rng)
    for path in sorted(folder.rglob("*.onnx")):
        compute_in_float(path)


def perturb_weights(path: Path, rng: np.random.Generator) -> None:
    """Perturb all tensors of floating point where they lie: graphs name them by their place in the file."""
    content = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(content[:8], "little")
    for name, entry in sorted(json.loads(content[8:begin]).items()):
        if name != "__metadata__" and entry["dtype"] in FORMATS:
            first, last = (begin + offset for offset in entry["data_offsets"])
            values = np.frombuffer(content[first:last], FORMATS[entry["dtype"]])
            content[first:last] = perturbed(values, rng).tobytes()
    path.write_bytes(content)


def perturbed(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The values times (1 ± 1e-4), rounded up or down at random: to the nearest, half precision would not change."""
    exact = values.astype(np.float64) * (1 + RELATIVE * rng.choice([-1.0, 1.0], values.shape))
    nearest = exact.astype(values.dtype)
    other = np.nextafter(nearest, np.where(exact > nearest, np.inf, -np.inf).astype(values.dtype))
    gap = np.abs(other.astype(np.float64) - nearest)
    share = np.divide(np.abs(exact - nearest), gap, out=np.zeros_like(gap), where=np.isfinite(gap) & (gap > 0))
    return np.where(rng.random(values.shape) < share, other, nearest)


def compute_in_float(path: Path) -> None:
    """Set `accuracy_level` to 0 where it is 4, in inner graphs too."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    if any([lower_accuracy(node) for graph in graphs_of(model.graph) for node in graph.node]):
        path.write_bytes(model.SerializeToString())


def graphs_of(graph: Any) -> list[Any]:
    """A graph and its inner graphs."""
    inner = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return [graph, *(found for one in inner for found in graphs_of(one))]


def lower_accuracy(node: Any) -> bool:
    """Set the attribute of one node; returns whether it was 4."""
    found = [attribute for attribute in node.attribute if attribute.name == "accuracy_level" and attribute.i == 4]
    for attribute in found:
        attribute.i = 0
    return bool(found)
