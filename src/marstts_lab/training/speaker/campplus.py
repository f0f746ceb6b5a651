"""CAM++, a speaker encoder with published weights, as a judge of voices in training: log-mel in, a unit vector out.

    log-mel, 100 frames/s ─ residual convolutions over bands and time ─ convolution ÷2 ─► 50 positions/s
    50 positions/s ─ three blocks of dense, context-masked layers ─ mean and deviation over time ─ projection ─► vector

Upstream: `recipes/mini/campplus.py`, which writes the published weights as an encoder's folder.  Downstream: `export`.
CAM++ (arXiv:2303.00332): densely connected time-delay layers, each masked by the mean of all positions and of its own
segment.  Deviation: mel bands of this package instead of Kaldi's, which distinguish people as well.
Shapes: B batch · M mel bands · T frames or positions · C channels · E embedding size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marstts.speaker.mini import MiniEncoderConfig
from marstts.speaker.mini_model import BatchNorm

CHANNELS, GROWTH, BOTTLENECK, SEGMENT = 32, 32, 128, 100
"""Channels of the head, that each dense layer adds, and before its mask; positions of a segment."""

BLOCKS = ((12, 1), (24, 2), (16, 2))
"""Layers of each block, and their dilation."""


class BandBlock(nn.Module):
    """Two convolutions over bands and time with a residual connection, (B, C, M, T) -> (B, C, M / stride, T)."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(CHANNELS, CHANNELS, 3, (stride, 1), 1, bias=False)
        self.second = nn.Conv2d(CHANNELS, CHANNELS, 3, 1, 1, bias=False)
        self.first_norm, self.second_norm = BatchNorm(CHANNELS), BatchNorm(CHANNELS)
        self.shortcut = nn.Conv2d(CHANNELS, CHANNELS, 1, (stride, 1), bias=False) if stride > 1 else None
        self.shortcut_norm = BatchNorm(CHANNELS) if stride > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.second_norm(self.second(F.relu(self.first_norm(self.first(x)))))
        if self.shortcut is not None and self.shortcut_norm is not None:
            x = self.shortcut_norm(self.shortcut(x))
        return F.relu(x + y)


class DenseLayer(nn.Module):
    """(B, C, T) -> (B, C + GROWTH, T): the input, and a convolution of it that is masked by its context."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.norm, self.squeezed_norm = BatchNorm(width), BatchNorm(BOTTLENECK)
        self.squeeze = nn.Conv1d(width, BOTTLENECK, 1, bias=False)
        self.local = nn.Conv1d(BOTTLENECK, GROWTH, 3, padding=dilation, dilation=dilation, bias=False)
        self.context, self.mask = nn.Conv1d(BOTTLENECK, BOTTLENECK // 2, 1), nn.Conv1d(BOTTLENECK // 2, GROWTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.squeezed_norm(self.squeeze(F.relu(self.norm(x)))))
        context = y.mean(dim=2, keepdim=True) + segment_means(y)
        return torch.cat([x, self.local(y) * torch.sigmoid(self.mask(F.relu(self.context(context))))], dim=1)


def segment_means(x: Tensor) -> Tensor:
    """(B, C, T) -> (B, C, T): the mean of each position's segment of `SEGMENT` positions; the last one is shorter."""
    starts = torch.arange(x.shape[2], device=x.device) // SEGMENT * SEGMENT
    ends = (starts + SEGMENT).clamp(max=x.shape[2])
    sums = F.pad(x.cumsum(dim=2), (1, 0))
    return (sums[:, :, ends] - sums[:, :, starts]) / (ends - starts)


class CamPlusPlus(nn.Module):
    """The network; `config.size` is the embedding's length, the other sizes are those of the published weights."""

    def __init__(self, config: MiniEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.head = nn.Conv2d(1, CHANNELS, 3, 1, 1, bias=False)
        self.bands = nn.Sequential(*(BandBlock(stride) for stride in (2, 1, 2, 1)))
        self.fold = nn.Conv2d(CHANNELS, CHANNELS, 3, (2, 1), 1, bias=False)
        self.head_norm, self.fold_norm = BatchNorm(CHANNELS), BatchNorm(CHANNELS)
        width = BOTTLENECK
        self.embed = nn.Conv1d(CHANNELS * config.num_mels // 8, width, 5, stride=2, padding=2, bias=False)
        self.embed_norm = BatchNorm(width)
        self.blocks, self.norms, self.halvings = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for layers, dilation in BLOCKS:
            self.blocks.append(nn.Sequential(*(DenseLayer(width + GROWTH * n, dilation) for n in range(layers))))
            width += GROWTH * layers
            self.norms.append(BatchNorm(width))
            self.halvings.append(nn.Conv1d(width, width // 2, 1, bias=False))
            width //= 2
        self.last_norm, self.project = BatchNorm(width), nn.Linear(2 * width, config.size, bias=False)
        self.project_norm = BatchNorm(config.size)

    def forward(self, log_mel: Tensor) -> Tensor:
        """log-mel (B, M, T), natural logarithm of magnitudes -> embeddings (B, E) of unit length."""
        powers = 2 * log_mel
        x = F.relu(self.head_norm(self.head((powers - powers.mean(dim=2, keepdim=True))[:, None])))
        x = F.relu(self.fold_norm(self.fold(self.bands(x)))).flatten(1, 2)
        x = F.relu(self.embed_norm(self.embed(x)))
        for block, norm, halve in zip(self.blocks, self.norms, self.halvings, strict=True):
            x = halve(F.relu(norm(block(x))))
        x = F.relu(self.last_norm(x))
        pooled = torch.cat([x.mean(dim=2), torch.sqrt(x.var(dim=2) + 1e-8)], dim=1)
        return F.normalize(self.project_norm(self.project(pooled)), dim=1)
