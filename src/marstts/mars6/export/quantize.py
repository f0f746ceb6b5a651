"""MARS6 in eight-bit integers: the weights that every patch reads, at a quarter of single precision's bytes.

Upstream: a folder written by `graphs.export_mars6`.  Downstream: `engines.onnx`, which runs the folder written here;
`bundled`, which trains its weights further in single precision.
Not in the paper. Speed is bounded by reading weights from memory, so that integers are two to three times as
fast. Decoder weights have one scale per output and block of inputs; activations are rounded while speaking, by row and
block, too (`decoder_graphs.linear`: `MatMulNBits` of ONNX Runtime).
The encoder, embeddings, norms, biases and the maps into the two decoders stay as they are.
Shapes: D width · C codes per level.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.errors import CheckpointError, require
from marstts.io.config import read_config, write_config
from marstts.io.precision import WeightFormat
from marstts.io.stored_tensors import stored_tensors
from marstts.mars6.config import CONFIG_FILE, WEIGHTS_FILE, Mars6Config
from marstts.mars6.export.decoder_graphs import LOCAL
from marstts.mars6.export.encoder_graph import write_graphs

LAYER_WEIGHTS = re.compile(
    r"(global|local)_decoder\.layers\.\d+\."
    r"(attention\.(query|key_value|output)|cross_attention\.(query|output)|feed_forward\.(inner|output))\.weight"
)
"""Decoder weights that become integers, in addition to the rows that make logits. The cross-attention's keys and
values are made once per sentence, by the encoder's graph.
"""

HEADS = f"{LOCAL}.output.weight"

BLOCKS = (64, 32, 16)
"""Numbers of inputs that may share a scale; the first that divides their number is used. No larger blocks: ONNX Runtime
would add in another order where a row is multiplied alone than where it is one of a pair.
"""

SCALE = ".scale"
"""Suffix of the name of a rounded weight's scales."""

SMALLEST_SCALE = np.float32(1e-12)


def copy_mars6(folder: Path, target: Path, weights: WeightFormat | None) -> None:
    """Write `target`, the MARS6 in `folder` with graphs as of this version; weights in int8, or as they are."""
    if weights is WeightFormat.INT8:
        quantize(folder, target)
        return
    target.mkdir(parents=True, exist_ok=True)
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        shutil.copyfile(folder / name, target / name)
    write_graphs(read_config(Mars6Config, folder / CONFIG_FILE), target, WEIGHTS_FILE)


def quantize(folder: Path, target: Path) -> None:
    """Write `target`, an int8 version of the MARS6 in `folder` that stands by itself.

    Raises CheckpointError where there is nothing to round any more.
    """
    from safetensors.numpy import load_file, save_file

    if is_int8(folder):
        raise CheckpointError(f"{folder}: these weights are int8 already; give the bundle they were made from")
    config = read_config(Mars6Config, folder / CONFIG_FILE)
    tensors: dict[str, NDArray[np.generic]] = {}
    for name, weight in load_file(folder / WEIGHTS_FILE).items():
        if name == HEADS:
            for level in range(len(config.patch_layout)):
                rows = [*range(level * config.codebook_size, (level + 1) * config.codebook_size), config.eos]
                add_blocks(tensors, f"{LOCAL}.output.{level}.weight", weight[rows])
        elif LAYER_WEIGHTS.fullmatch(name):
            add_blocks(tensors, name, weight)
        else:
            tensors[name] = weight
    target.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target / WEIGHTS_FILE)
    (target / WEIGHTS_FILE).chmod(0o644)  # safetensors writes for the owner's eyes only
    write_config(config, target / CONFIG_FILE)
    write_graphs(config, target, WEIGHTS_FILE)


def is_int8(folder: Path) -> bool:
    """Return True where the weights of the MARS6 in `folder` are int8, by this version or an older one."""
    return any(stored.dtype in ("U8", "I8") for stored in stored_tensors(folder / WEIGHTS_FILE).values())


def add_blocks(tensors: dict[str, NDArray[np.generic]], name: str, weight: NDArray[np.generic]) -> None:
    """Add a weight (out, in) as uint8 (out, blocks, block), 128 standing for zero, and its scales (out, blocks).

    Raises CheckpointError where its inputs make no blocks.
    """
    block = next((size for size in BLOCKS if weight.shape[1] % size == 0), None)
    if block is None:
        raise CheckpointError(
            f"{name} has {weight.shape[1]} inputs; int8 needs multiples of {BLOCKS[-1]}, so keep it in float32"
        )
    wide = weight.astype(np.float32).reshape(len(weight), -1, block)
    scale = np.maximum(np.abs(wide).max(axis=2), SMALLEST_SCALE) / np.float32(127)
    tensors[name] = (np.rint(wide / scale[:, :, None]) + 128).astype(np.uint8)
    tensors[f"{name}{SCALE}"] = scale


def dequantized(tensors: Mapping[str, Any], num_levels: int) -> dict[str, Any]:
    """The tensors of an int8 weights file under the names and in the shapes that they had before, in float32.

    What is not as `quantize` writes it stays as it is, or is left out.
    """
    torch = require("torch", "torch")
    result = dict(tensors)
    for name, weight in tensors.items():
        scale = result.pop(f"{name}{SCALE}", None) if weight.dtype == torch.uint8 else None
        if scale is not None and weight.ndim == 3 and scale.shape == weight.shape[:2]:
            result[name] = ((weight.float() - 128) * scale[:, :, None]).flatten(1)
    heads = [result.pop(f"{LOCAL}.output.{level}.weight", None) for level in range(num_levels)]
    if all(head is not None and head.ndim == 2 and head.shape[1] == heads[0].shape[1] for head in heads):
        result[HEADS] = torch.cat([*(head[:-1] for head in heads), heads[-1][-1:]])  # the last row of each is EOS
    return result
