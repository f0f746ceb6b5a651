"""MARS6 in eight-bit integers: the weights that every patch reads, at a quarter of single precision's bytes.

Upstream: a folder written by `graphs.export_mars6`.  Downstream: `engines.onnx`, which runs the folder written here.
Not in the paper. Speed is bounded by reading weights from memory, so that integers are two to three times as
fast. Decoder weights have one scale per output and block of inputs; activations are rounded while speaking, by row and
block, too (`decoder_graphs.linear`). The encoder's have one scale per output, and its activations one per prompt.
Embeddings, norms, biases and the maps into the two decoders stay as they are.
Shapes: D width · C codes per level.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marstts.errors import CheckpointError
from marstts.io.config import read_config, write_config
from marstts.io.precision import WeightFormat
from marstts.mars6.config import CONFIG_FILE, WEIGHTS_FILE, Mars6Config
from marstts.mars6.export.decoder_graphs import LOCAL, write_decoder_graphs
from marstts.onnx.build import stored_tensors
from marstts.onnx.quantize import (
    BlockRounding,
    TensorRounding,
    add_rounded,
    read_graph,
    replace_linear,
    weights_by_use,
)

ENCODER_FILE = "encoder.onnx"

LAYER_WEIGHTS = re.compile(
    r"(global|local)_decoder\.layers\.\d+\."
    r"(attention\.(query|key_value|output)|cross_attention\.(query|output)|feed_forward\.(inner|output))\.weight"
)
"""Decoder weights that become integers, in addition to the rows that make logits. The cross-attention's keys and
values are made once per sentence, by the encoder's graph.
"""

HEADS = f"{LOCAL}.output.weight"

ROUNDING = BlockRounding((64, 32, 16))
"""No larger blocks: ONNX Runtime would add in another order where a row is multiplied alone than where it is one of a
pair.
"""

ENCODER_ROUNDING = TensorRounding()
"""A prompt is encoded alone, so its tokens may share a scale."""

SPEAKER_SLOTS = "encoder.slots."
"""Weights that turn the speaker embeddings into positions of the encoder: a voice is not rounded."""


def copy_mars6(folder: Path, target: Path, weights: WeightFormat | None) -> None:
    """Write `target`, the MARS6 in `folder` with decoder graphs as of this version; weights in int8, or as they are."""
    if weights is WeightFormat.INT8:
        quantize(folder, target)
        return
    target.mkdir(parents=True, exist_ok=True)
    for name in (CONFIG_FILE, WEIGHTS_FILE, ENCODER_FILE):
        shutil.copyfile(folder / name, target / name)
    write_decoder_graphs(read_config(Mars6Config, folder / CONFIG_FILE), target, WEIGHTS_FILE)


def quantize(folder: Path, target: Path) -> None:
    """Write `target`, an int8 version of the MARS6 in `folder` that stands by itself.

    Raises CheckpointError where there is nothing to round any more, or no graph of the encoder.
    """
    from safetensors.numpy import load_file, save_file

    if is_int8(folder):
        raise CheckpointError(f"{folder}: these weights are int8 already; give the bundle they were made from")
    if not (folder / ENCODER_FILE).is_file():
        raise CheckpointError(f"{folder}: no {ENCODER_FILE} here; make the bundle with graphs first")
    config = read_config(Mars6Config, folder / CONFIG_FILE)
    names = {stored.offset: name for name, stored in stored_tensors(folder / WEIGHTS_FILE).items()}
    encoder = read_graph(folder / ENCODER_FILE, names)
    linear, other = weights_by_use(encoder.graph, names)
    encoder_weights = {name for name in linear - other if not name.startswith(SPEAKER_SLOTS)}
    tensors: dict[str, NDArray[np.generic]] = {}
    for name, weight in load_file(folder / WEIGHTS_FILE).items():
        if name == HEADS:
            for level in range(len(config.patch_layout)):
                rows = [*range(level * config.codebook_size, (level + 1) * config.codebook_size), config.eos]
                add_blocks(tensors, f"{LOCAL}.output.{level}.weight", weight[rows])
        elif LAYER_WEIGHTS.fullmatch(name):
            add_blocks(tensors, name, weight)
        elif name in encoder_weights:
            add_rounded(tensors, name, weight, ENCODER_ROUNDING)
        else:
            tensors[name] = weight
    target.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target / WEIGHTS_FILE)
    (target / WEIGHTS_FILE).chmod(0o644)  # safetensors writes for the owner's eyes only
    write_config(config, target / CONFIG_FILE)
    stored = stored_tensors(target / WEIGHTS_FILE)
    replace_linear(encoder, names, encoder_weights, stored, WEIGHTS_FILE, ENCODER_ROUNDING)
    (target / ENCODER_FILE).write_bytes(encoder.SerializeToString())
    write_decoder_graphs(config, target, WEIGHTS_FILE)


def is_int8(folder: Path) -> bool:
    """Return True where the weights of the MARS6 in `folder` are int8, by this version or an older one."""
    return any(stored.dtype in ("U8", "I8") for stored in stored_tensors(folder / WEIGHTS_FILE).values())


def add_blocks(tensors: dict[str, NDArray[np.generic]], name: str, weight: NDArray[np.generic]) -> None:
    """Add a weight (out, in) in blocks; CheckpointError where its inputs make none."""
    if not add_rounded(tensors, name, weight, ROUNDING):
        raise CheckpointError(
            f"{name} has {weight.shape[1]} inputs; int8 needs multiples of {ROUNDING.blocks[-1]}, so keep it in float32"
        )
