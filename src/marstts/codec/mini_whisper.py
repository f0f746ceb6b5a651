"""Whisper's encoder in PyTorch: the frozen recognizer that the mini codec's encoder and its training read.

Upstream: waveforms.  Downstream: `codec.mini_model`, `training.codec.recognizer_loss`; `codec.mini_recognizer` is the
same in NumPy around the exported graph.
Whisper: arXiv:2212.04356.
Shapes: B batch · N samples · F spectral frames (100 Hz) · T positions (50 Hz) · D width.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from marstts.codec.mini_recognizer import (
    FFT_SIZE,
    HOP,
    LAYER,
    LOG_RANGE,
    NUM_MELS,
    POSITION_RATE,
    POWER_FLOOR,
    RATE,
    lowpass_taps,
    mel_filters,
)

HEAD_WIDTH = 64

LONGEST_PERIOD = 10000.0
"""Of the sinusoids that encode positions."""


class WhisperLayer(nn.Module):
    """Self-attention and feed-forward, each after a normalization."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.joint = nn.Linear(width, 3 * width)
        """Queries, keys and values."""
        self.output = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        heads = x.shape[2] // HEAD_WIDTH
        joint = self.joint(self.attention_norm(x))
        queries, keys, values = joint.unflatten(2, (3, heads, HEAD_WIDTH)).permute(2, 0, 3, 1, 4)
        x = x + self.output(F.scaled_dot_product_attention(queries, keys, values).transpose(1, 2).flatten(2))
        return x + cast(Tensor, self.narrow(F.gelu(self.widen(self.norm(x)))))


class WhisperEncoder(nn.Module):
    """Whisper's encoder on waveforms of at most 30 s at `sample_rate`; its weights are not trained."""

    basis: Tensor
    window: Tensor
    taps: Tensor

    def __init__(self, width: int, num_layers: int, sample_rate: int) -> None:
        super().__init__()
        self.sample_rate = sample_rate
        self.conv1 = nn.Conv1d(NUM_MELS, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.layers = nn.ModuleList(WhisperLayer(width) for _ in range(num_layers))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("basis", torch.from_numpy(mel_filters()), persistent=False)
        self.register_buffer("window", torch.hann_window(FFT_SIZE), persistent=False)
        self.register_buffer("taps", torch.from_numpy(lowpass_taps(RATE / sample_rate))[None, None], persistent=False)
        self.requires_grad_(False)

    def forward(self, samples: Tensor) -> list[Tensor]:
        """samples (B, N) -> the output of each layer, and of the last normalization, (B, T, D) each."""
        return self.outputs(self.log_mel(samples))

    def features(self, mels: Tensor) -> Tensor:
        """Log-mels (B, 80, F) -> the features that the codec's encoder reads, (B, T, 2 D)."""
        outputs = self.outputs(mels)
        return torch.cat([outputs[LAYER - 1], outputs[-1]], dim=2)

    def features_at_latents(self, samples: Tensor, latents: int) -> Tensor:
        """samples (B, N) -> (B, latents, 2 D), interpolated linearly to the middle of every latent."""
        features = self.features(self.log_mel(samples)).float()
        last = features.shape[1] - 1
        seconds = samples.shape[1] / self.sample_rate
        times = (torch.arange(latents, device=samples.device) + 0.5) * (seconds / latents) * POSITION_RATE - 0.5
        times = times.clamp(0, last)
        below = times.long().clamp(max=max(0, last - 1))
        share = (times - below)[None, :, None]
        return features[:, below] * (1 - share) + features[:, (below + 1).clamp(max=last)] * share

    def outputs(self, mels: Tensor) -> list[Tensor]:
        """Log-mels (B, 80, F) -> the output of each layer, and of the last normalization, (B, T, D) each."""
        x = F.gelu(self.conv2(F.gelu(self.conv1(mels)))).transpose(1, 2)
        x = x + sinusoids(x.shape[1], x.shape[2], x.device)
        outputs = []
        for layer in self.layers:
            x = layer(x)
            outputs.append(x)
        return [*outputs, self.norm(x)]

    def log_mel(self, samples: Tensor) -> Tensor:
        """(B, N) -> (B, 80, F), scaled as Whisper scales it."""
        with torch.autocast(samples.device.type, enabled=False):
            spectrum = torch.stft(
                self.resample(samples), FFT_SIZE, HOP, window=self.window, return_complex=True
            )[..., :-1]  # fmt: skip
            mels = torch.log10((self.basis @ (spectrum.real**2 + spectrum.imag**2)).clamp(min=POWER_FLOOR))
        return (torch.maximum(mels, mels.amax(dim=(1, 2), keepdim=True).detach() - LOG_RANGE) + 4) / 4

    def resample(self, samples: Tensor) -> Tensor:
        """(B, N) -> (B, N 16000 / sample_rate), as `mini_recognizer.resample`."""
        if self.sample_rate == RATE:
            return samples.float()
        half = self.taps.shape[2] // 2
        filtered = F.conv1d(F.pad(samples[:, None].float(), (half, half)), self.taps)
        size = round(samples.shape[1] * RATE / self.sample_rate)
        return F.interpolate(filtered, size=size, mode="linear", align_corners=False)[:, 0]


def sinusoids(positions: int, width: int, device: torch.device) -> Tensor:
    """(T, D) the encoding of positions: sines, then cosines."""
    rates = torch.exp(torch.arange(width // 2, device=device) * (-math.log(LONGEST_PERIOD) / (width // 2 - 1)))
    angles = torch.arange(positions, device=device)[:, None] * rates
    return torch.cat([torch.sin(angles), torch.cos(angles)], dim=1)


def from_ctranslate2(arrays: dict[str, NDArray[np.float32]], sample_rate: int) -> WhisperEncoder:
    """The encoder of weights by their names in CTranslate2's format, without `encoder/`."""
    width = len(arrays["conv1/bias"])
    num_layers = sum(name.endswith("self_attention/linear_0/weight") for name in arrays)
    encoder = WhisperEncoder(width, num_layers, sample_rate)
    encoder.load_state_dict(
        {
            renamed(name): torch.from_numpy(array.astype(np.float32))
            for name, array in arrays.items()
            if not name.startswith("position_encodings/")  # `sinusoids` are the same
        }
    )
    return encoder


def renamed(name: str) -> str:
    """CTranslate2's name of a weight -> the one here."""
    for theirs, ours in (
        ("/gamma", "/weight"), ("/beta", "/bias"), ("layer_norm/", "norm/"), ("self_attention/norm", "attention_norm"),
        ("self_attention/linear_0", "joint"), ("self_attention/linear_1", "output"), ("ffn/norm", "norm"),
        ("ffn/linear_0", "widen"), ("ffn/linear_1", "narrow"),
    ):  # fmt: skip
        name = name.replace(theirs, ours)
    return (f"layers.{name.removeprefix('layer_')}" if name.startswith("layer_") else name).replace("/", ".")
