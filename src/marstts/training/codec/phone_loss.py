"""Phone classification: a loss that makes the codec's coarse levels predict the phones of the recordings.

Upstream: `phones.jsonl` next to a manifest (`marstts prepare phone-alignments`), and the quantized levels of
`codec.mini_model`.  Downstream: `segments`, `task`. Codes that follow the phones can be predicted from text, which is
MARS6's task; trained on spectra alone, the coarsest level follows loudness and pitch as well. The idea is that of
SpeechTokenizer (arXiv:2308.16692) and Mimi (arXiv:2410.00037), with phones in place of another model's features.
Shapes: B segments · L latents (46.875 Hz) · D width · levels coarse to fine.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from marstts.errors import DataError
from marstts.io.config import Config
from marstts.io.jsonl import Torn, read_rows

PHONES = (
    "SIL", "AA", "AE", "AH", "AO", "AW", "AY", "B", "CH", "D", "DH", "EH", "ER", "EY", "F", "G", "HH", "IH", "IY", "JH",
    "K", "L", "M", "N", "NG", "OW", "OY", "P", "R", "S", "SH", "T", "TH", "UH", "UW", "V", "W", "Y", "Z", "ZH",
)  # fmt: skip
"""Silence and the 39 phones of CMUdict."""

AFTER_END = -100
"""Label of a moment after the recording; it has no loss."""

PhoneAlignment = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Starts (N,) in seconds, ascending, and the phone (N,) that begins at each."""


class PhoneClassificationConfig(Config):
    """Phone classification from the coarse levels."""

    file: str = "phones.jsonl"
    """File next to the manifest; recordings that it lacks are left out."""

    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Weight of the mean cross-entropy, in nats, over the classified levels."""

    levels: int = Field(2, gt=0)
    """Number of levels, from the coarsest: the first alone, the sum of the first two, …"""

    width: int = Field(256, gt=0, le=2**14)
    """Hidden units of each level's classifier."""


class PhoneClassifier(nn.Module):
    """Classifiers of the phone at each latent. Each sees the time of one code, and no context.

    One classifier reads the encoder's output before quantization, which makes it follow the phones sooner. The others
    read the first level, the sum of the first two levels, …
    """

    def __init__(self, latent_width: int, strides: Sequence[int], config: PhoneClassificationConfig) -> None:
        super().__init__()
        self.strides = (1, *strides[: config.levels])
        self.heads = nn.ModuleList(
            nn.Sequential(
                nn.Linear(latent_width, config.width), nn.GELU(), nn.Linear(config.width, stride * len(PHONES))
            )
            for stride in self.strides
        )

    def forward(self, latents: Tensor, levels: Sequence[Tensor], labels: Tensor) -> tuple[Tensor, list[Tensor]]:
        """latents and each level (B, D, L), labels (B, L) -> (mean cross-entropy (), phone accuracies ()).

        Accuracies are of the encoder's output, then of each classified level.
        """
        inputs = [latents, *accumulate(levels)]
        losses, correct = [], []
        known = labels != AFTER_END
        num_known = known.sum().clamp(min=1)  # a batch may have no phone labels at all
        for stride, head, features in zip(self.strides, self.heads, inputs, strict=False):
            logits = head(features[:, :, ::stride].transpose(1, 2)).float().reshape(len(labels), -1, len(PHONES))
            total = F.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=AFTER_END, reduction="sum"
            )  # fmt: skip
            losses.append(total / num_known)
            correct.append((logits.argmax(dim=2) == labels)[known].float().sum() / num_known)
        return torch.stack(losses).mean(), correct


Seconds = Annotated[float, Field(allow_inf_nan=False)]


class PhoneRow(Config):
    """One line of the file: phones with their starts and lengths in seconds."""

    id: str
    phones: list[tuple[Literal[PHONES], Seconds, Seconds]]  # type: ignore[valid-type]


def read_phone_alignments(path: Path) -> dict[str, PhoneAlignment]:
    """The phone alignment of every recording by utterance id; DataError if the file is missing or malformed."""
    if not path.exists():
        raise DataError(f"{path}: no such file; align the phones with `marstts prepare phone-alignments`")
    alignments = {}
    for row in read_rows(PhoneRow, path, torn=Torn.READ):
        starts = np.array([start for _, start, _ in row.phones], dtype=np.float64)
        phones = np.array([PHONES.index(phone) for phone, _, _ in row.phones], dtype=np.int64)
        alignments[row.id] = (starts, phones)
    return alignments


def phone_ids_at(alignment: PhoneAlignment, times: NDArray[np.float64]) -> NDArray[np.int64]:
    """times (L,) in seconds -> index (L,) of the phone at each; silence before the first one, and without phones."""
    starts, phones = alignment
    if not len(phones):
        return np.full(len(times), PHONES.index("SIL"))
    index = np.searchsorted(starts, times, side="right") - 1
    return np.where(index < 0, PHONES.index("SIL"), phones[np.maximum(index, 0)])
