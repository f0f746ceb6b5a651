"""Trains level 0 of a `codec.frame_codec`: a classifier of phones, and k-means of its distributions.

Upstream: `phone_loss` (phone alignments), embeddings of codes by frame.  Downstream: `frame_codec`.
Shapes: T frames · W width of a frame's vector · N frames of all recordings · P phones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from marstts.codec.frame_content import MOMENTS, ContentClassifier, Floats, nearest, windows
from marstts.training.codec.phone_loss import PHONES, PhoneAlignment, phone_ids_at

STEPS, BATCH, LEARNING_RATE, WEIGHT_DECAY, LABEL_SMOOTHING = 6000, 512, 2e-3, 1e-2, 0.05

CLUSTERED_FRAMES = 40_000
"""Frames that k-means reads."""

ITERATIONS = 25


def phones_of_frames(alignment: PhoneAlignment, frames: int, frame_seconds: float) -> NDArray[np.int64]:
    """The phone (frames, MOMENTS) at each moment of each frame."""
    moments = (np.arange(MOMENTS) + 0.5) / MOMENTS
    times = (np.arange(frames)[:, None] + moments) * frame_seconds
    return phone_ids_at(alignment, times.reshape(-1)).reshape(frames, MOMENTS)


def fit_content(
    recordings: Sequence[tuple[Floats, NDArray[np.int64]]], size: int, hidden: int, seed: int, *, steps: int = STEPS
) -> ContentClassifier:
    """Vectors (T, W) and phones (T, MOMENTS) of each recording -> a classifier with `size` codes.

    Adam on the cross-entropy of the phones, then k-means on the square roots of their probabilities.
    """
    inputs = torch.from_numpy(np.concatenate([windows(vectors) for vectors, _ in recordings]))
    labels = torch.from_numpy(np.concatenate([phones for _, phones in recordings]))
    network = phone_network(inputs.shape[1], hidden, seed)
    train(network, inputs, labels, seed, steps)
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    weights = tuple(layer.weight.detach().numpy() for layer in layers)
    biases = tuple(layer.bias.detach().numpy() for layer in layers)
    unclustered = ContentClassifier(weights, biases, np.zeros((1, biases[-1].size), np.float32))
    rng = np.random.default_rng(seed)
    points = np.concatenate([unclustered.root_probabilities(vectors) for vectors, _ in recordings])
    points = points[rng.permutation(len(points))[:CLUSTERED_FRAMES]]
    return ContentClassifier(weights, biases, means(points, k_means(points, size, rng), size))


def phone_network(inputs: int, hidden: int, seed: int) -> nn.Sequential:
    """(N, inputs) -> (N, MOMENTS · P) logits."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, MOMENTS * len(PHONES)),
        )  # fmt: skip


def train(network: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, seed: int, steps: int) -> None:
    """Cross-entropy of the phones of random frames; the learning rate falls to zero."""
    optimizer = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = torch.randint(len(inputs), (BATCH,), generator=generator)
        logits = network(inputs[rows]).reshape(-1, len(PHONES))
        loss = F.cross_entropy(logits, labels[rows].reshape(-1), label_smoothing=LABEL_SMOOTHING)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        falling.step()


def k_means(points: Floats, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The cluster (N,) of each point (N, W); clusters that lose all points restart at random ones."""
    centers = points[rng.choice(len(points), size, replace=len(points) < size)]
    codes = nearest(points, centers)
    for _ in range(ITERATIONS):
        centers = means(points, codes, size)
        empty = np.flatnonzero(np.bincount(codes, minlength=size) == 0)
        centers[empty] = points[rng.integers(len(points), size=len(empty))]
        codes = nearest(points, centers)
    return codes


def means(points: Floats, codes: NDArray[np.int64], size: int) -> Floats:
    """The mean of the points (N, W) of each code (N,): (size, W), zeros where a code has none."""
    counts = np.bincount(codes, minlength=size).clip(1)
    sums = np.stack([np.bincount(codes, weights=column, minlength=size) for column in points.T], axis=1)
    return (sums / counts[:, None]).astype(np.float32)
