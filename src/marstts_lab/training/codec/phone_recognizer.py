"""A phone recognizer on the features of a codec's frozen speech recognizer: training by CTC, and export.

Upstream: a codec of kind mini with a recognizer, and recordings with their texts.
Downstream: `codec.mini`; takes are checked by it (`synthesis.words.pronunciation`).
CTC: Graves et al., "Connectionist Temporal Classification" (ICML 2006). The network is a linear layer, and blocks of a
depthwise convolution and a feed-forward layer, as in ConvNeXt (arXiv:2201.03545), on frozen features.
Shapes: B batch · T positions (50 Hz) · C features · D width · K labels, the blank first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from marstts.codec.mini import PHONES_GRAPH
from marstts.onnx.export import Graph, export_graphs
from marstts.text.phones import LABELS

WEIGHTS_FILE = "phones.safetensors"

WIDTH, BLOCKS, KERNEL = 160, 3, 9

BATCH, LEARNING_RATE, WARMUP = 24, 2e-3, 100
NEIGHBORS = 80
"""Recordings of similar length that a batch is drawn from."""

MAX_MASKED = 8
"""Positions of a recording that are set to zero."""


@dataclass(frozen=True, eq=False)
class Example:
    """What is learned from one recording."""

    versions: tuple[NDArray[np.float16], ...]
    """(T, C) each: features of the recording, and of what the codec makes of it."""

    labels: tuple[int, ...]
    """Its phones, from 1."""


class Block(nn.Module):
    """A depthwise convolution over time, and a feed-forward layer, around which its input is added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, width, KERNEL, padding=KERNEL // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 3 * width)
        self.narrow = nn.Linear(3 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        nearby = self.norm(self.convolution(x.transpose(1, 2)).transpose(1, 2))
        return x + self.narrow(F.gelu(self.widen(nearby)))


class PhoneRecognizer(nn.Module):
    """Features -> log-probabilities of CTC's blank and the phones."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.feature_norm = nn.LayerNorm(features)
        self.project = nn.Linear(features, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH) for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.output = nn.Linear(WIDTH, 1 + len(LABELS))

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """features (B, T, C), mask (B, T, 1) with zeros after the end -> (B, T, K)."""
        x = self.project(self.feature_norm(features))
        for block in self.blocks:
            x = block(x if mask is None else x * mask)
        return self.output(self.norm(x)).log_softmax(dim=2)


@dataclass(frozen=True, eq=False)
class ExampleBatch:
    """Recordings side by side, zeros after their ends."""

    features: Tensor
    lengths: Tensor
    labels: Tensor
    """Those of all recordings, one after the other."""
    label_lengths: Tensor

    @property
    def mask(self) -> Tensor:
        """(B, T, 1)."""
        return (torch.arange(self.features.shape[1])[None] < self.lengths[:, None]).float()[:, :, None]


def collate(examples: Sequence[Example], rng: np.random.Generator | None = None) -> ExampleBatch:
    """A batch: versions drawn by `rng` and a span of each set to zero; without it the last version as it is."""
    chosen = [one.versions[-1 if rng is None else int(rng.integers(len(one.versions)))] for one in examples]
    features = torch.zeros(len(chosen), max(map(len, chosen)), chosen[0].shape[1])
    for row, each in zip(features, chosen, strict=True):
        row[: len(each)] = torch.from_numpy(each.astype(np.float32))
        if rng is not None:
            first = int(rng.integers(max(1, len(each) - MAX_MASKED)))
            row[first : first + int(rng.integers(MAX_MASKED))] = 0.0
    return ExampleBatch(
        features,
        torch.tensor([len(each) for each in chosen]),
        torch.tensor([label for one in examples for label in one.labels]),
        torch.tensor([len(one.labels) for one in examples]),
    )


def ctc_loss(model: PhoneRecognizer, batch: ExampleBatch) -> Tensor:
    """Nats of a phone."""
    log_probs = model(batch.features, batch.mask).float().transpose(0, 1)
    total = F.ctc_loss(
        log_probs, batch.labels, batch.lengths, batch.label_lengths, reduction="sum", zero_infinity=True
    )  # fmt: skip
    return total / batch.label_lengths.sum()


def train(
    model: PhoneRecognizer, examples: Sequence[Example], steps: int, rng: np.random.Generator
) -> Iterator[tuple[int, float]]:
    """Train; yields each step's number, from 1, and its loss."""
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    ordered = sorted(examples, key=lambda one: len(one.versions[0]))
    for step in range(steps):
        decay = 0.02 + 0.98 * (1 + np.cos(np.pi * step / steps)) / 2
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / WARMUP) * decay
        middle = int(rng.integers(len(ordered)))
        begin = max(0, min(middle - NEIGHBORS // 2, len(ordered) - NEIGHBORS))
        near = ordered[begin : begin + NEIGHBORS]
        loss = ctc_loss(model, collate([near[i] for i in rng.permutation(len(near))[:BATCH]], rng))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield step + 1, float(loss.detach())


@torch.no_grad()
def phone_error_rate(model: PhoneRecognizer, examples: Sequence[Example]) -> float:
    """Edits of the best path's phones, divided by the number of phones."""
    edits = phones = 0
    for one in examples:
        best = model(collate([one]).features).argmax(dim=2)[0].unique_consecutive()
        edits += distance(best[best > 0].tolist(), one.labels)
        phones += len(one.labels)
    return edits / max(1, phones)


def distance(found: Sequence[int], expected: Sequence[int]) -> int:
    """Levenshtein's distance."""
    row = list(range(len(found) + 1))
    for number, wanted in enumerate(expected, start=1):
        corner, row[0] = row[0], number
        for place, label in enumerate(found, start=1):
            corner, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, corner + (label != wanted))
    return row[-1]


def export_phone_recognizer(model: PhoneRecognizer, codec: Path) -> None:
    """Write phones.safetensors (fp16) and phones.onnx into the folder of the codec whose features it reads."""
    features = torch.randn(1, 50, model.project.in_features)
    graph = Graph(model.float().eval(), {"features": features}, ["log_probs"], {"features": {1: "positions"}})
    export_graphs(codec, WEIGHTS_FILE, model, {PHONES_GRAPH.removesuffix(".onnx"): graph})
