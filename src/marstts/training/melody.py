"""Teaching the codec's decoder how high a voice speaks: its pitch, read from `pitch.jsonl`.

Upstream: `evaluation.melody`, which writes the file.  Downstream: `training.codec`.
Shapes: B batch · F spectral frames.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from marstts.codec.mini import MIDDLE_PITCH
from marstts.config import Config
from marstts.errors import DataError

SECONDS_PER_VALUE = 0.01
FEWEST_VOICED = 3
"""Of a recording's values; with fewer it has no melody."""


class PitchConfig(Config):
    """How much the pitch counts beside the spectra."""

    file: str = "pitch.jsonl"
    """Beside the manifest; made by `marstts prepare pitch`. Recordings that it lacks are left out."""

    weight: float = Field(4.0, gt=0)

    unvoiced_weight: float = Field(0.03, ge=0)
    """Of a frame without pitch, beside 1 for the others: there pitch should lead from one voiced frame to the next."""


def read_pitches(path: Path) -> dict[str, NDArray[np.float32]]:
    """pitch.jsonl: {"id": …, "pitch": [Hertz every 10 ms, 0 where unvoiced]} per line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(
            f"{path}: the pitch of the recordings cannot be read ({error.strerror}); make it with "
            "`marstts prepare pitch`"
        ) from error
    pitches = {}
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            pitches[entry["id"]] = np.array(entry["pitch"], dtype=np.float32).reshape(-1)
            if not np.isfinite(pitches[entry["id"]]).all():
                raise ValueError("a pitch is not finite")
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f'{path}, line {number}: expected {{"id": …, "pitch": [Hertz, …]}}, but {error}') from error
    return pitches


def pitch_at(pitch: NDArray[np.float32], times: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """times (F,) in seconds -> Hertz (F,) without gaps, and 1 (F,) where the recording is voiced, else 0.

    Gaps are bridged by straight lines in octaves, level at both ends; where nothing is voiced, all is the middle pitch.
    """
    voiced = np.flatnonzero(pitch > 0)
    if len(voiced) < FEWEST_VOICED:
        return np.full(len(times), MIDDLE_PITCH, np.float32), np.zeros(len(times), np.float32)
    places = times / SECONDS_PER_VALUE
    hertz = 2 ** np.interp(places, voiced, np.log2(pitch[voiced]))
    nearest = np.round(places).astype(int)
    is_voiced = (nearest < len(pitch)) & (pitch[np.minimum(nearest, len(pitch) - 1)] > 0)
    return hertz.astype(np.float32), is_voiced.astype(np.float32)


def pitch_loss(octaves: Tensor, pitch: Tensor, voiced: Tensor, config: PitchConfig) -> Tensor:
    """Mean distance in octaves, rounded near 0, of octaves about the middle pitch (B, F) and pitch (B, F) in Hertz."""
    weights = voiced + config.unvoiced_weight
    distances = F.smooth_l1_loss(octaves, torch.log2(pitch / MIDDLE_PITCH), reduction="none", beta=0.05)
    return (weights * distances).sum() / weights.sum().clamp(min=1e-6)  # whispers alone may weigh nothing


def semitones_off(octaves: Tensor, pitch: Tensor, voiced: Tensor) -> Tensor:
    """Median distance over voiced frames, in semitones; 0 where there are none."""
    distances = 12 * (octaves - torch.log2(pitch / MIDDLE_PITCH)).abs()[voiced > 0]
    return distances.median() if len(distances) else octaves.new_zeros(())
