"""Codebooks of a `codec.residual.ResidualCodec`, by k-means on the codes of a corpus.

Upstream: a corpus tokenized by the mini codec, and its weights.  Downstream: `codec.residual`.
Level by level, each codebook is the k-means of what the levels before have left (arXiv:2107.03312, Sec. III-C).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from marstts.codec.mini import MiniCodecFolder
from marstts.codec.residual import CONFIG_FILE, TENSORS_FILE, ResidualCodecFolder, nearest
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


def fit_codebooks(
    vectors: NDArray[np.float32],
    first_weights: NDArray[np.float32],
    levels: int,
    size: int,
    first_size: int,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Vectors (N, W) -> codebooks (levels, size, W); the first level uses only its first `first_size` entries."""
    rest, codebooks = vectors.astype(np.float32), []
    for level in range(levels):
        weights = first_weights if level == 0 else np.ones_like(first_weights)
        count = first_size if level == 0 else size
        codes = k_means(rest * weights, count, rng)
        entries = means(rest, codes, count)
        entries = np.concatenate((entries, np.repeat(entries[:1], size - count, axis=0)))  # never the nearest
        codebooks.append(entries)
        rest = rest - entries[nearest(rest * weights, entries * weights)]
    return np.stack(codebooks)


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


def write_residual_codec(
    folder: Path,
    tables: NDArray[np.float32],
    codebooks: NDArray[np.float32],
    first_weights: NDArray[np.float32],
    *,
    name: str,
    base: str,
    frames_per_patch: int,
) -> None:
    """Write a folder that `codec.residual.ResidualCodec` opens."""
    levels, size, _ = codebooks.shape
    described = ResidualCodecFolder(
        name=name, base=base, levels=levels, codebook_size=size, frames_per_patch=frames_per_patch
    )
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"tables": tables, "codebooks": codebooks, "first_weights": first_weights}, folder / TENSORS_FILE)
    (folder / TENSORS_FILE).chmod(0o644)  # safetensors writes for the owner alone
    write_config(described, folder / CONFIG_FILE)
