"""The network of the mini speaker encoders: a log-mel spectrogram in, one unit vector out.

    log-mel, 93.75 frames/s ─ level normalization ─ convolution ÷2 ─ dilated residual blocks ─► all blocks' outputs
    all blocks' outputs, joined ─ mean and deviation over time, weighted by attention ─ projection ─► unit vector

Upstream: `training.speaker`.  Downstream: `speaker.mini`, which runs the exported graph without PyTorch.
Time-delay layers, concatenated before pooling, after ECAPA-TDNN (arXiv:2005.07143); its multi-scale splits are left
out, since they cost more than they gain at this size. Attentive statistics pooling after arXiv:1803.10963.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marstts.speaker.mini import MiniEncoderConfig

# B batch · M mel bands · T frames (93.75 Hz) · D width · E embedding size

DYNAMIC_RANGE = 7.0
"""Lower bound in nepers (61 dB) below the mean level, so that digital silence and room noise look alike."""


class BatchNorm(nn.Module):
    """Batch normalization of (B, D) or (B, D, ...), computed as a scale and a shift after training.

    Exporters fold `nn.BatchNorm1d` into the convolution before it, and then the graph's weights are no longer those of
    the weights file. The buffers hold no count of batches, so that all of them can be stored in half precision.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, training=True)
        scale = self.weight / torch.sqrt(self.running_var + 1e-5)
        shift = self.bias - self.running_mean * scale
        shape = (1, -1) + (1,) * (x.ndim - 2)
        return x * scale.reshape(shape) + shift.reshape(shape)


class ResidualBlock(nn.Module):
    """Two normalized convolutions over time, the first dilated, with a residual connection; on (B, D, T)."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.wide = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation, bias=False)
        self.wide_norm = BatchNorm(width)
        self.narrow = nn.Conv1d(width, width, 1, bias=False)
        self.narrow_norm = BatchNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.wide_norm(self.wide(x)))
        return F.relu(x + self.narrow_norm(self.narrow(y)))


class AttentiveStatistics(nn.Module):
    """(B, C, T) -> (B, 2C): mean and deviation of each channel over time, weighted by attention."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Conv1d(channels, hidden, 1)
        self.scores = nn.Conv1d(hidden, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        weights = torch.softmax(self.scores(torch.tanh(self.hidden(x))).float(), dim=2)
        mean = (weights * x).sum(dim=2)
        variance = (weights * (x - mean[:, :, None]) ** 2).sum(dim=2)
        return torch.cat([mean, torch.sqrt(variance + 1e-4)], dim=1)


class MiniEncoderModel(nn.Module):
    """Log-mel (B, M, T) to unit vectors (B, E)."""

    def __init__(self, config: MiniEncoderConfig) -> None:
        super().__init__()
        self.config = config
        width, pooled = config.width, 2 * config.width
        self.stem = nn.Conv1d(config.num_mels, width, 5, stride=2, padding=2, bias=False)
        self.stem_norm = BatchNorm(width)
        self.blocks = nn.ModuleList([ResidualBlock(width, 1 + index) for index in range(config.blocks)])
        self.join = nn.Conv1d(width * config.blocks, pooled, 1)
        self.pool = AttentiveStatistics(pooled, width // 2)
        self.pool_norm = BatchNorm(2 * pooled)
        self.project = nn.Linear(2 * pooled, config.size)

    def forward(self, log_mel: Tensor) -> Tensor:
        """log_mel (B, M, T), natural logarithm -> (B, E), unit length; the recording's level makes no difference."""
        x = F.relu(self.stem_norm(self.stem(normalize_level(log_mel))))  # (B, D, T / 2)
        layers = []
        for block in self.blocks:
            x = block(x)
            layers.append(x)
        statistics = self.pool(F.relu(self.join(torch.cat(layers, dim=1))))  # (B, 4D)
        return F.normalize(self.project(self.pool_norm(statistics)).float(), dim=1)


def normalize_level(log_mel: Tensor) -> Tensor:
    """(B, M, T) -> (B, M, T) relative to the mean magnitude, clamped below, scaled to about unit range."""
    level = torch.log(torch.exp(log_mel).mean(dim=(1, 2), keepdim=True))
    return torch.clamp(log_mel - level, min=-DYNAMIC_RANGE) / 2.0 + 1.0
