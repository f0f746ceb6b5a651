"""What is said, as a second teacher of the codec: its coarse levels should tell the phones that sound.

Upstream: `phones.jsonl` beside a manifest (see docs/data_formats.md), and the quantised levels of `codec.mini_model`.
Downstream: `training.codec`. Codes that follow the phones can be foretold from text, which is what MARS6 has to do;
left to spectra alone, the coarsest level follows loudness and pitch as gladly. The idea is that of SpeechTokenizer
(arXiv:2308.16692) and Mimi (arXiv:2410.00037), with phones in place of another model's features.
Shapes: B segments · L latents (46.875 Hz) · D width · levels coarse to fine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from marstts.config import Config
from marstts.errors import DataError

PHONES = (
    "SIL", "AA", "AE", "AH", "AO", "AW", "AY", "B", "CH", "D", "DH", "EH", "ER", "EY", "F", "G", "HH", "IH", "IY", "JH",
    "K", "L", "M", "N", "NG", "OW", "OY", "P", "R", "S", "SH", "T", "TH", "UH", "UW", "V", "W", "Y", "Z", "ZH",
)  # fmt: skip
"""Silence and the 39 phones of CMUdict."""

AFTER_END = -100
"""Label of a moment after the recording; costs nothing."""

Timeline = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Starts (N,) in seconds, ascending, and the phone (N,) that begins at each."""


class PhonesConfig(Config):
    """The coarse levels learn to tell the phones."""

    file: str = "phones.jsonl"
    """Beside the manifest; recordings that it lacks are left out."""

    weight: float = Field(1.0, gt=0)
    """Of the mean cross-entropy, in nats, over the levels taught."""

    levels: int = Field(2, gt=0)
    """How many levels are taught, from the coarsest: the first alone, the sum of the first two, …"""

    width: int = 256
    """Hidden units of each level's classifier, which sees one code's time and no context."""


class PhoneHeads(nn.Module):
    """Classifiers of the phone at each latent, which see one code's time and no context.

    One hears the encoder before quantisation, which leads it to phones sooner; one per taught level hears the levels so
    far: the first alone, the sum of the first two, …
    """

    def __init__(self, latent_width: int, strides: Sequence[int], config: PhonesConfig) -> None:
        super().__init__()
        self.strides = (1, *strides[: config.levels])
        self.heads = nn.ModuleList(
            nn.Sequential(
                nn.Linear(latent_width, config.width), nn.GELU(), nn.Linear(config.width, stride * len(PHONES))
            )
            for stride in self.strides
        )

    def forward(self, latents: Tensor, levels: Sequence[Tensor], labels: Tensor) -> tuple[Tensor, list[Tensor]]:
        """latents and each level (B, D, L), labels (B, L) -> (mean cross-entropy (), share of right phones (): of the
        encoder, then of each taught level)."""
        heard = [latents, *accumulate(levels)]
        losses, rights = [], []
        known = labels != AFTER_END
        for stride, head, features in zip(self.strides, self.heads, heard, strict=False):
            logits = head(features[:, :, ::stride].transpose(1, 2)).float().reshape(len(labels), -1, len(PHONES))
            losses.append(F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=AFTER_END))
            rights.append((logits.argmax(dim=2) == labels)[known].float().mean())
        return torch.stack(losses).mean(), rights


def read_timelines(path: Path) -> dict[str, Timeline]:
    """phones.jsonl: {"id": …, "phones": [[phone, start in seconds, seconds], …]} per line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"{path}: the phones of the recordings cannot be read: {error.strerror}") from error
    timelines = {}
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            starts = np.array([start for _, start, _ in entry["phones"]], dtype=np.float64)
            phones = np.array([PHONES.index(phone) for phone, _, _ in entry["phones"]], dtype=np.int64)
            timelines[entry["id"]] = (starts, phones)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f'{path}, line {number}: expected {{"id": …, "phones": [[phone, start, seconds], …]}}, but {error}'
            ) from error
    return timelines


def phones_at(timeline: Timeline, times: NDArray[np.float64]) -> NDArray[np.int64]:
    """times (L,) in seconds -> index (L,) of the phone that sounds at each."""
    starts, phones = timeline
    place = np.searchsorted(starts, times, side="right") - 1
    return np.where(place < 0, PHONES.index("SIL"), phones[np.maximum(place, 0)])
