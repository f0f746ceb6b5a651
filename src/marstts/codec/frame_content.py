"""Level 0 of a `codec.frame_codec`: codes that follow the phones.

Upstream: embeddings of the base codec's codes by frame.  Downstream: `frame_codec`.
A small network reads the embeddings of a frame and its neighbors and gives the distribution of the phone at two moments
of the frame.  The code is that of the nearest of some distributions (Hellinger distance).  Such codes can be predicted
from text, and they say which phone the other levels have to sound like; the idea is that of SpeechTokenizer
(arXiv:2308.16692), with phones in place of another model's features.
Shapes: T frames · W width of a frame's vector · H hidden units · P phones · C codes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

CONTEXT = 3
"""Frames before and after a frame that its phones are read from."""

WINDOW = 2 * CONTEXT + 1

MOMENTS = 2
"""Moments in a frame whose phones are classified: a quarter and three quarters of it."""

LAYERS = 3


@dataclass(frozen=True, eq=False)
class ContentClassifier:
    """The network, and the distributions that codes stand for."""

    weights: tuple[Floats, ...]
    """One matrix per layer: (H, WINDOW · W), (H, H), (MOMENTS · P, H)."""

    biases: tuple[Floats, ...]
    """One vector per layer: (H,), (H,), (MOMENTS · P,)."""

    centers: Floats
    """(C, MOMENTS · P) square roots of probabilities."""

    def codes(self, vectors: Floats) -> NDArray[np.int64]:
        """Vectors of a whole recording (T, W) -> the code of each frame (T,)."""
        return nearest(self.root_probabilities(vectors), self.centers)

    def root_probabilities(self, vectors: Floats) -> Floats:
        """Vectors of a whole recording (T, W) -> (T, MOMENTS · P) square roots of the phones' probabilities."""
        hidden = windows(vectors)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = np.maximum(hidden @ weight.T + bias, 0)
        logits = (hidden @ self.weights[-1].T + self.biases[-1]).reshape(len(vectors), MOMENTS, -1)
        powers = np.exp(logits - logits.max(axis=2, keepdims=True))
        return np.sqrt(powers / powers.sum(axis=2, keepdims=True)).reshape(len(vectors), -1).astype(np.float32)

    def tensors(self) -> dict[str, Floats]:
        """All arrays by their names in the codec's file."""
        named = {f"content.{place}.weight": weight for place, weight in enumerate(self.weights)}
        return named | {f"content.{place}.bias": bias for place, bias in enumerate(self.biases)} | {
            "content.centers": self.centers
        }  # fmt: skip

    @staticmethod
    def shapes(width: int, hidden: int, phones: int, codes: int) -> dict[str, tuple[int, ...]]:
        """The shapes of `tensors` by name, for W, H, P and C."""
        shapes: dict[str, tuple[int, ...]] = {"content.centers": (codes, MOMENTS * phones)}
        outputs, inputs = (hidden, hidden, MOMENTS * phones), (WINDOW * width, hidden, hidden)
        for place, (size, inside) in enumerate(zip(outputs, inputs, strict=True)):
            shapes[f"content.{place}.weight"], shapes[f"content.{place}.bias"] = (size, inside), (size,)
        return shapes

    @classmethod
    def of_tensors(cls, tensors: dict[str, Floats]) -> ContentClassifier:
        """The inverse of `tensors`; other names are ignored."""
        weights = tuple(tensors[f"content.{place}.weight"] for place in range(LAYERS))
        return cls(
            weights, tuple(tensors[f"content.{place}.bias"] for place in range(LAYERS)), tensors["content.centers"]
        )


def windows(vectors: Floats) -> Floats:
    """Vectors (T, W) -> (T, WINDOW · W): those of each frame and its neighbors, zeros beyond the ends."""
    padded = np.pad(vectors, ((CONTEXT, CONTEXT), (0, 0)))
    return np.concatenate([padded[first : first + len(vectors)] for first in range(WINDOW)], axis=1)


def nearest(vectors: Floats, entries: Floats) -> NDArray[np.int64]:
    """Index of the entry (K, W) nearest to each vector (N, W): (N,)."""
    scores = vectors @ entries.T - 0.5 * np.square(entries).sum(axis=1)
    return np.asarray(scores.argmax(axis=1), dtype=np.int64)
