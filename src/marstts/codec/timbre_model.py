"""The mini codec's global timbre embedding: what every frame of a recording has in common, in addition to its codes.

    reference ─ log-mel, lower bands ─ ConvNeXt at 46.875 Hz ─ attentive statistics ─► timbre embedding
    timbre embedding ─► gains and shifts of the channels in each of the decoder's blocks

A synthesizer always has the voice's embeddings, so the codes need not encode all of the timbre. The zero
vector modulates nothing: a decoder without a timbre embedding is the unconditioned one.

Upstream: `codec.mini_model`.  Feature-wise modulation after FiLM (arXiv:1709.07871); one global vector next to the
codes as in TiCodec (arXiv:2310.00014); attentive statistics after arXiv:1803.10963.
The bands above `timbre_mels` are left out, so that a narrow-band reference does not make narrow-band speech.
Shapes: B batch · D width · T positions · V timbre_width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Modulation(nn.Module):
    """Gains and shifts of D channels from a timbre embedding; the identity at first, and for the zero vector always."""

    def __init__(self, timbre_width: int, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(timbre_width, 2 * width, bias=False)
        nn.init.zeros_(self.project.weight)

    def forward(self, x: Tensor, timbre: Tensor) -> Tensor:
        """x (B, T, D), timbre (B, V) -> (B, T, D)."""
        gain, shift = self.project(timbre)[:, None].chunk(2, dim=2)
        return x * (1 + gain) + shift


class AttentivePool(nn.Module):
    """(B, D, T) -> (B, 2 D): mean and standard deviation over time, weighted by a learned attention per channel."""

    def __init__(self, width: int, hidden: int = 96) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Conv1d(width, hidden, 1), nn.Tanh(), nn.Conv1d(hidden, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.score(x).float().softmax(dim=2)
        x = x.float()
        mean = (weights * x).sum(dim=2)
        variance = (weights * (x - mean[:, :, None]) ** 2).sum(dim=2)
        return torch.cat([mean, torch.sqrt(variance + 1e-5)], dim=1)


class TimbreEncoder(nn.Module):
    """log-mel (B, M, F) of a reference -> timbre embedding (B, V) of root mean square 1."""

    def __init__(self, blocks: nn.Module, mels: int, width: int, timbre_width: int) -> None:
        """`blocks` map (B, D, T) to the same shape; `mels`: lowest bands that are used."""
        super().__init__()
        self.mels = mels
        self.embed = nn.Conv1d(mels, width, 5, stride=2, padding=2)
        self.blocks = blocks
        self.pool = AttentivePool(width)
        self.norm = nn.LayerNorm(2 * width)
        self.project = nn.Linear(2 * width, timbre_width)

    def forward(self, mels: Tensor) -> Tensor:
        bands = mels[:, : self.mels]
        bands = bands - bands.mean(dim=(1, 2), keepdim=True)  # whatever the level of the recording
        pooled = self.norm(self.pool(self.blocks(self.embed(bands))))
        timbre = self.project(pooled).float()
        return timbre * torch.rsqrt((timbre**2).mean(dim=1, keepdim=True) + 1e-6)
