"""Recognizer loss: the features of a frozen speech recognizer's encoder must be equal for output and target.

Upstream: Whisper's encoder in CTranslate2's format (a folder with `model.bin`, as faster-whisper loads it).
Downstream: `terms`, `frozen`. Discriminators make what the codes leave open sound fluent, wrong words included; this
loss keeps the words. The encoder is `codec.mini_whisper`, because its input needs a gradient.
Shapes: B batch · N samples · T positions (50 Hz) · D width.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from marstts.codec.mini_whisper import WhisperEncoder, from_ctranslate2
from marstts.errors import CheckpointError
from marstts.io.config import Config
from marstts.io.reading import printable_name
from marstts_lab.training.bounds import Weight

NUM_LAYERS = 4
"""The last layers whose outputs are compared."""

DTYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
"""Of CTranslate2's binary format, by number."""


class RecognizerConfig(Config):
    """The frozen recognizer whose encoder compares output and target."""

    folder: str
    """Folder of a Whisper in CTranslate2's format with float weights; tiny.en is enough."""

    weight: Weight = 8.0
    row_ratio: float = Field(0.5, gt=0, le=1)
    """Ratio of a batch's rows that are compared."""


class RecognizerLoss(nn.Module):
    """Distance of the encoder's last layers between two waveforms."""

    def __init__(self, config: RecognizerConfig, sample_rate: int) -> None:
        super().__init__()
        self.row_ratio = config.row_ratio
        self.encoder = open_recognizer(Path(config.folder), sample_rate)

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """output (B, N) and target (B, N) -> a scalar."""
        rows = max(1, round(self.row_ratio * len(output)))
        with torch.no_grad():
            expected = self.encoder(target[:rows])[-NUM_LAYERS:]
        features = self.encoder(output[:rows])[-NUM_LAYERS:]
        return torch.stack([distance(one, other) for one, other in zip(features, expected, strict=True)]).mean()


def distance(one: Tensor, other: Tensor) -> Tensor:
    """Mean squared distance of (B, T, D) and (B, T, D), each channel in units of its variance: a few are large."""
    variance = other.var(dim=(0, 1))
    return ((one - other) ** 2 / (variance + 1e-3 * variance.mean() + 1e-9)).mean()


def open_recognizer(folder: Path, sample_rate: int) -> WhisperEncoder:
    """The encoder of a Whisper in CTranslate2's format, on waveforms of this sample rate."""
    return from_ctranslate2(read_encoder(folder / "model.bin"), sample_rate)


def read_encoder(path: Path) -> dict[str, NDArray[np.float32]]:
    """The encoder's arrays of a Whisper in CTranslate2's format; CheckpointError where the file is not one.

    The format: version, name, revision, then the number of variables, and for each its name, shape, type and bytes.
    """
    try:
        arrays = dict(read_variables(path.read_bytes()))
    except (OSError, struct.error, ValueError, KeyError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{printable_name(path)}: expected a Whisper in CTranslate2's format with float weights, as faster-whisper "
            f"loads it ({type(error).__name__})"
        ) from error
    encoder = {name.removeprefix("encoder/"): a for name, a in arrays.items() if name.startswith("encoder/") and a.ndim}
    if "conv1/bias" not in encoder or any(array.dtype == np.int8 for array in encoder.values()):
        raise CheckpointError(f"{printable_name(path)}: expected the encoder of a Whisper with float weights")
    return {name: np.array(array, dtype=np.float32) for name, array in encoder.items()}


def read_variables(data: bytes) -> list[tuple[str, NDArray[np.generic]]]:
    """Names and arrays of CTranslate2's binary format; ValueError or struct.error where it is cut."""
    position = 0

    def take(layout: str) -> int:
        nonlocal position
        (value,) = struct.unpack_from(f"<{layout}", data, position)
        position += struct.calcsize(layout)
        return int(value)

    def take_bytes(size: int) -> bytes:
        nonlocal position
        if position + size > len(data):
            raise ValueError("the file is cut")
        position += size
        return data[position - size : position]

    def take_text() -> str:
        return take_bytes(take("H")).rstrip(b"\0").decode("utf-8")

    take("I"), take_text(), take("I")  # version, name and revision
    arrays = []
    for _ in range(take("I")):
        name = take_text()
        shape = tuple(take("I") for _ in range(take("B")))
        dtype = DTYPES[take("B")]
        arrays.append((name, np.frombuffer(take_bytes(take("I")), dtype).reshape(shape)))
    return arrays
