"""Envelope loss: takes should have the long-term spectrum of their reference, which speaker encoders ignore.

Upstream: log-mels as a speaker encoder reads them.  Downstream: `terms`, `recordings`.
A verifier is trained to know a person through any channel, so a decoder that is trained against it alone loses tilt and
breath of the recording. Shapes: B rows · M bands · T frames.
"""

from __future__ import annotations

from torch import Tensor

from marstts.io.config import Config
from marstts_lab.training.bounds import Weight

LOUD_NEPERS = 3.5
"""Frames are counted whose mean log-magnitude lies at most so much (30 dB) below that of the loudest."""

BANDS_RATIO = 0.95
"""The highest bands are left out: where recordings end, nothing should be learned."""


class EnvelopeConfig(Config):
    """Envelope loss of generated codes."""

    weight: Weight = 2.0


def envelope(log_mel: Tensor) -> Tensor:
    """log-mel (B, M, T) -> the mean of the loud frames without its level, (B, 0.95 M)."""
    level = log_mel.detach().mean(dim=1)
    loud = (level > level.amax(dim=1, keepdim=True) - LOUD_NEPERS).to(log_mel.dtype)[:, None]
    bands = log_mel[:, : int(BANDS_RATIO * log_mel.shape[1])]
    mean = (bands * loud).sum(dim=2) / loud.sum(dim=2)
    return mean - mean.mean(dim=1, keepdim=True)


def envelope_loss(log_mel: Tensor, wanted: Tensor) -> Tensor:
    """log-mel (B, M, T) of the output, envelopes (B, 0.95 M) of the references -> their mean distance ()."""
    return (envelope(log_mel) - wanted).abs().mean()
