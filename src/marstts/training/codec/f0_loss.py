"""F0 loss: the codec's decoder is trained to predict the F0 of the voice, which is read from `f0.jsonl`.

Upstream: `marstts prepare f0`, which writes the file.  Downstream: `segments`, `task`.
Shapes: B batch · F spectral frames.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from marstts.codec.mini import MIDDLE_PITCH
from marstts.errors import DataError
from marstts.io.config import Config
from marstts.io.jsonl import Torn, read_rows
from marstts.training.bounds import Weight

SECONDS_PER_VALUE = 0.01
MIN_VOICED = 3
"""Voiced values of a recording; with fewer it has no F0 contour."""

MAX_HERTZ = 1e5


class F0Config(Config):
    """F0 loss of the codec."""

    file: str = "f0.jsonl"
    """File next to the manifest, made by `marstts prepare f0`. Recordings that it lacks are left out."""

    weight: float = Field(4.0, gt=0, allow_inf_nan=False)
    """Weight of the F0 loss next to the spectral loss."""

    unvoiced_weight: Weight = 0.03
    """Weight of an unvoiced frame; a voiced frame has 1. There F0 is interpolated between voiced frames."""


class F0Row(Config):
    """One line of the file: Hertz every 10 ms, 0 where unvoiced."""

    id: str
    f0: list[Annotated[float, Field(ge=0, le=MAX_HERTZ, allow_inf_nan=False)]]


def read_f0(path: Path) -> dict[str, NDArray[np.float32]]:
    """The F0 of every recording by utterance id, (T,) in Hertz; DataError if the file is missing or malformed."""
    if not path.exists():
        raise DataError(f"{path}: no such file; make the F0 of the recordings with `marstts prepare f0`")
    rows = read_rows(F0Row, path, torn=Torn.READ)
    return {row.id: np.array(row.f0, dtype=np.float32) for row in rows}


def f0_at(f0: NDArray[np.float32], times: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """times (F,) in seconds -> Hertz (F,) without gaps, and 1 (F,) where the recording is voiced, else 0.

    Gaps are interpolated linearly in octaves, and held at both ends; without voiced values all is the middle pitch.
    """
    voiced = np.flatnonzero(f0 > 0)
    if len(voiced) < MIN_VOICED:
        return np.full(len(times), MIDDLE_PITCH, np.float32), np.zeros(len(times), np.float32)
    positions = times / SECONDS_PER_VALUE
    hertz = 2 ** np.interp(positions, voiced, np.log2(f0[voiced]))
    nearest = np.round(positions).astype(int)
    is_voiced = (nearest < len(f0)) & (f0[np.minimum(nearest, len(f0) - 1)] > 0)
    return hertz.astype(np.float32), is_voiced.astype(np.float32)


def f0_loss(octaves: Tensor, f0: Tensor, voiced: Tensor, config: F0Config) -> Tensor:
    """Mean smooth L1 distance in octaves of predictions about the middle pitch (B, F) and F0 (B, F) in Hertz."""
    weights = voiced + config.unvoiced_weight
    distances = F.smooth_l1_loss(octaves, torch.log2(f0 / MIDDLE_PITCH), reduction="none", beta=0.05)
    return (weights * distances).sum() / weights.sum().clamp(min=1e-6)  # a batch of whispers may have no weight


def f0_error_semitones(octaves: Tensor, f0: Tensor, voiced: Tensor) -> Tensor:
    """Median F0 error over voiced frames, in semitones; 0 where there are none."""
    distances = 12 * (octaves - torch.log2(f0 / MIDDLE_PITCH)).abs()[voiced > 0]
    return distances.median() if len(distances) else octaves.new_zeros(())
