"""Codebooks of a `codec.frame_codec.FrameCodec`: distances of codes, and an order in which similar ones are neighbors.

Upstream: the mini codec's weights, `frame_content` (level 0).  Downstream: `codec.frame_codec`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from marstts.codec.frame_codec import (
    CONFIG_FILE,
    TENSORS_FILE,
    FrameCodebooks,
    FrameCodecFolder,
)
from marstts.codec.frame_content import MOMENTS, ContentClassifier
from marstts.codec.mini import MiniCodecFolder
from marstts.io.config import read_config, write_config


def metric_tables(
    entries: Sequence[NDArray[np.float32]], projections: Sequence[NDArray[np.float32]]
) -> NDArray[np.float32]:
    """Codebooks (K, E) and their projections to latents (D, E) -> (levels, K, E).

    Distances of the result are those of the projected entries.
    """
    tables = []
    for table, projection in zip(entries, projections, strict=True):
        unit = table / np.linalg.norm(table, axis=1, keepdims=True)
        tables.append(unit @ np.linalg.qr(projection)[1].T)
    return np.stack(tables).astype(np.float32)


def similar_order(table: NDArray[np.float32]) -> NDArray[np.int64]:
    """Entries (C, E), C a power of two -> (C,) place of each entry in an order in which neighbors are similar.

    The entries are halved at the median of their principal axis, and the halves again.
    """
    order = [np.arange(len(table))]
    while len(order[0]) > 1:
        order = [half for part in order for half in halves(part, table)]
    places = np.empty(len(table), np.int64)
    places[np.concatenate(order)] = np.arange(len(table))
    return places


def halves(part: NDArray[np.int64], table: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of entries, divided at the median of the entries' principal axis."""
    centered = table[part] - table[part].mean(axis=0)
    axis = np.linalg.svd(centered, full_matrices=False)[2][0]
    ranked = part[np.argsort(centered @ axis, kind="stable")]
    return ranked[: len(part) // 2], ranked[len(part) // 2 :]


def frame_codebooks(tables: NDArray[np.float32], content: ContentClassifier) -> FrameCodebooks:
    """Tables of the base (3, C, E), and level 0 -> all codebooks."""
    return FrameCodebooks(tables, content, np.stack([similar_order(table) for table in tables]))


def packaged_tables(folder: Path) -> NDArray[np.float32]:
    """The codebooks of a mini codec's folder, where distances are those of its latents: (levels, K, E)."""
    weights = load_file(folder / "codec.safetensors")
    strides = read_config(MiniCodecFolder, folder / "config.json").model.strides
    names = [f"quantizer.levels.{level}" for level in range(len(strides))]
    entries = [weights[f"{name}.entries"].astype(np.float32) for name in names]
    projections = [weights[f"{name}.project_out.weight"][:, :, 0].astype(np.float32) for name in names]
    return metric_tables(entries, projections)


def write_frame_codec(folder: Path, codebooks: FrameCodebooks, *, name: str, base: str) -> None:
    """Write a folder that `codec.frame_codec.FrameCodec` opens."""
    folder.mkdir(parents=True, exist_ok=True)
    content = codebooks.content
    save_file({"tables": codebooks.tables, "places": codebooks.places, **content.tensors()}, folder / TENSORS_FILE)
    (folder / TENSORS_FILE).chmod(0o644)  # safetensors writes for the owner alone
    described = FrameCodecFolder(
        name=name, base=base, content_size=len(content.centers), hidden_width=len(content.biases[0]),
        phones=content.centers.shape[1] // MOMENTS,
    )  # fmt: skip
    write_config(described, folder / CONFIG_FILE)
