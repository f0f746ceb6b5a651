"""Recognizer loss: the features of a frozen speech recognizer's encoder must be equal for output and target.

Upstream: Whisper's encoder in CTranslate2's format (a folder with `model.bin`, as faster-whisper loads it).
Downstream: `task`. Discriminators make what the codes leave open sound fluent, wrong words included; this loss keeps
the words. The encoder is that of Whisper (arXiv:2212.04356), in PyTorch because its input needs a gradient.
Shapes: B batch, N samples, T positions (50 Hz), D width.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from marstts.errors import CheckpointError, require
from marstts.io.config import Config
from marstts.io.reading import printable_name
from marstts.training.bounds import Weight

WHISPER_RATE, FFT_SIZE, HOP, NUM_MELS = 16000, 400, 160, 80
HEAD_WIDTH = 64
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

    taps: Tensor

    def __init__(self, config: RecognizerConfig, sample_rate: int) -> None:
        super().__init__()
        self.row_ratio, self.sample_rate = config.row_ratio, sample_rate
        self.encoder = WhisperEncoder(read_encoder(Path(config.folder) / "model.bin"))
        self.encoder.requires_grad_(False)
        taps = torch.from_numpy(lowpass_taps(WHISPER_RATE / sample_rate))
        self.register_buffer("taps", taps[None, None], persistent=False)

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """output (B, N) and target (B, N) -> a scalar."""
        rows = max(1, round(self.row_ratio * len(output)))
        with torch.no_grad():
            expected = self.encoder(self.resample(target[:rows]))[-NUM_LAYERS:]
        features = self.encoder(self.resample(output[:rows]))[-NUM_LAYERS:]
        return torch.stack([distance(one, other) for one, other in zip(features, expected, strict=True)]).mean()

    def resample(self, samples: Tensor) -> Tensor:
        """(B, N) -> (B, N 16000 / sample_rate): a low pass and linear interpolation, which log-mels do not notice."""
        half = self.taps.shape[2] // 2
        filtered = F.conv1d(F.pad(samples[:, None].float(), (half, half)), self.taps)
        size = round(samples.shape[1] * WHISPER_RATE / self.sample_rate)
        return F.interpolate(filtered, size=size, mode="linear", align_corners=False)[:, 0]


def distance(one: Tensor, other: Tensor) -> Tensor:
    """Mean squared distance of (B, T, D) and (B, T, D), each channel in units of its variance: a few are large."""
    variance = other.var(dim=(0, 1))
    return ((one - other) ** 2 / (variance + 1e-3 * variance.mean() + 1e-9)).mean()


class WhisperEncoder(nn.Module):
    """Whisper's encoder on waveforms of at most 30 s at 16 kHz."""

    basis: Tensor
    window: Tensor

    def __init__(self, weights: dict[str, NDArray[np.float32]]) -> None:
        """`weights` by their names in CTranslate2's format, without `encoder/`."""
        super().__init__()
        self.weights = nn.ParameterDict({name.replace("/", "_"): torch.from_numpy(w) for name, w in weights.items()})
        self.num_layers = sum(name.endswith("self_attention/linear_0/weight") for name in weights)
        self.width = len(weights["conv1/bias"])
        self.register_buffer("basis", torch.from_numpy(mel_filters()), persistent=False)
        self.register_buffer("window", torch.hann_window(FFT_SIZE), persistent=False)

    def forward(self, samples: Tensor) -> list[Tensor]:
        """samples (B, N) -> the output of each layer, and of the last normalization, (B, T, D) each."""
        weights = self.weights
        x = F.gelu(F.conv1d(self.log_mel(samples), weights["conv1_weight"], weights["conv1_bias"], padding=1))
        x = F.gelu(F.conv1d(x, weights["conv2_weight"], weights["conv2_bias"], stride=2, padding=1)).transpose(1, 2)
        x = x + weights["position_encodings_encodings"][: x.shape[1]]
        outputs = []
        for layer in range(self.num_layers):
            x = x + self.attention(self.norm(x, f"layer_{layer}_self_attention_layer_norm"), layer)
            y = self.linear(self.norm(x, f"layer_{layer}_ffn_layer_norm"), f"layer_{layer}_ffn_linear_0")
            x = x + self.linear(F.gelu(y), f"layer_{layer}_ffn_linear_1")
            outputs.append(x)
        return [*outputs, self.norm(x, "layer_norm")]

    def log_mel(self, samples: Tensor) -> Tensor:
        """(B, N) -> (B, 80, T), scaled as Whisper scales it."""
        spectrum = torch.stft(samples, FFT_SIZE, HOP, window=self.window, return_complex=True)[..., :-1]
        mels = torch.log10((self.basis @ (spectrum.real**2 + spectrum.imag**2)).clamp(min=1e-10))
        return (torch.maximum(mels, mels.amax(dim=(1, 2), keepdim=True).detach() - 8) + 4) / 4

    def attention(self, x: Tensor, layer: int) -> Tensor:
        """Self-attention of a layer, (B, T, D) -> (B, T, D)."""
        heads = self.width // HEAD_WIDTH
        joint = self.linear(x, f"layer_{layer}_self_attention_linear_0")
        queries, keys, values = joint.unflatten(2, (3, heads, HEAD_WIDTH)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(queries, keys, values).transpose(1, 2).flatten(2)
        return self.linear(mixed, f"layer_{layer}_self_attention_linear_1")

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[f"{name}_weight"], self.weights[f"{name}_bias"])

    def norm(self, x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (self.width,), self.weights[f"{name}_gamma"], self.weights[f"{name}_beta"])


def mel_filters() -> NDArray[np.float32]:
    """(80, 201) Whisper's mel filters."""
    extractor = require("faster_whisper.feature_extractor", "eval").FeatureExtractor
    return np.asarray(extractor.get_mel_filters(WHISPER_RATE, FFT_SIZE, NUM_MELS), dtype=np.float32)


def lowpass_taps(ratio: float, half: int = 12) -> NDArray[np.float32]:
    """(2 half + 1,) a windowed sinc that passes `ratio` of the spectrum, less a margin for its slope."""
    positions = np.arange(-half, half + 1)
    taps = np.sinc(positions * min(1.0, 0.93 * ratio)) * np.hanning(2 * half + 3)[1:-1]
    return (taps / taps.sum()).astype(np.float32)


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
