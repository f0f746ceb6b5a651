"""Speaker verification: similarity of embeddings, and the equal error rate.

Upstream: embeddings of any `SpeakerEncoder`.  Downstream: `training.speaker`, synthesis, metrics and evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def cosine(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """Cosine similarity of two embeddings (E,); 0 where one is all zeros."""
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(np.dot(first, second)) / norms if norms > 0 else 0.0


def trials(embeddings: NDArray[np.float32], speakers: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosine similarities of all pairs of embeddings (N, E): pairs of the same speaker, and of different speakers."""
    unit = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-8)
    first, second = np.triu_indices(len(unit), k=1)
    similarities = (unit @ unit.T)[first, second]
    names = np.asarray(speakers)
    same = names[first] == names[second]
    return similarities[same], similarities[~same]


def equal_error_rate(same: NDArray[np.float32], different: NDArray[np.float32]) -> float:
    """The error rate at the threshold where false rejections and false acceptances are equally frequent.

    It is the mean of both rates at the threshold where they are closest; 0 is perfect, 0.5 is chance.
    """
    thresholds = np.unique(np.concatenate([same, different]))
    rejected = np.searchsorted(np.sort(same), thresholds, side="left") / len(same)
    accepted = 1 - np.searchsorted(np.sort(different), thresholds, side="left") / len(different)
    closest = int(np.argmin(np.abs(rejected - accepted)))
    return float(rejected[closest] + accepted[closest]) / 2
