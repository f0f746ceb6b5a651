"""Codebooks of a `codec.frame_codec.FrameCodec`: content by k-means, and an order in which similar codes are neighbors.

Upstream: a corpus tokenized by the mini codec, and its weights.  Downstream: `codec.frame_codec`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from marstts.codec.frame_codec import (
    CONFIG_FILE,
    TENSORS_FILE,
    FrameCodebooks,
    FrameCodecFolder,
    frame_vectors,
    nearest,
)
from marstts.codec.mini import MiniCodecFolder
from marstts.config import read_config, write_config

ITERATIONS = 25


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


def fit_frame_codebooks(
    frames: NDArray[np.int64],
    tables: NDArray[np.float32],
    weights: NDArray[np.float32],
    content_size: int,
    rng: np.random.Generator,
) -> FrameCodebooks:
    """Codes of the base by frame (N, 4), its tables (3, C, E) and weights of the distances (W,) -> all codebooks."""
    vectors = frame_vectors(frames, tables)
    content = means(vectors, k_means(vectors * weights, content_size, rng), content_size)
    return FrameCodebooks(tables, content, weights, np.stack([similar_order(table) for table in tables]))


def k_means(points: NDArray[np.float32], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The cluster (N,) of each point (N, W); clusters that lose all points restart at random ones."""
    centers = points[rng.choice(len(points), size, replace=len(points) < size)]
    codes = nearest(points, centers)
    for _ in range(ITERATIONS):
        centers = means(points, codes, size)
        empty = np.flatnonzero(np.bincount(codes, minlength=size) == 0)
        centers[empty] = points[rng.integers(len(points), size=len(empty))]
        codes = nearest(points, centers)
    return codes


def means(points: NDArray[np.float32], codes: NDArray[np.int64], size: int) -> NDArray[np.float32]:
    """The mean of the points (N, W) of each code (N,): (size, W), zeros where a code has none."""
    counts = np.bincount(codes, minlength=size).clip(1)
    sums = np.stack([np.bincount(codes, weights=column, minlength=size) for column in points.T], axis=1)
    return (sums / counts[:, None]).astype(np.float32)


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
    save_file({one.name: getattr(codebooks, one.name) for one in fields(codebooks)}, folder / TENSORS_FILE)
    (folder / TENSORS_FILE).chmod(0o644)  # safetensors writes for the owner alone
    described = FrameCodecFolder(name=name, base=base, content_size=len(codebooks.content))
    write_config(described, folder / CONFIG_FILE)
