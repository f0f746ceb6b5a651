"""Speaker consistency loss: the output should have the speaker embedding of its target.

Upstream: an identity encoder of `training.speaker`, which is frozen.  Downstream: `task`.
After YourTTS (arXiv:2112.02418), whose loss compares with the target, too.
Shapes: B batch · N samples · M mel bands · T frames · E embedding size.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from pydantic import Field
from torch import Tensor, nn

from marstts.audio.spectral import LOG_FLOOR, hann, mel_filterbank
from marstts.errors import ConfigError
from marstts.io.config import Config
from marstts.training.bounds import Weight
from marstts.training.speaker.export import load_encoder

SMALL_POWER = 1e-10
"""Keeps the gradient of a magnitude finite; it is the square of the smallest mel magnitude."""


class SpeakerConsistencyConfig(Config):
    """Speaker consistency loss: one minus the cosine of the embeddings of output and target."""

    encoder: str = Field(min_length=1)
    """Folder of an identity encoder: a run of `marstts train speaker`, or an exported one."""

    weight: Weight = 1.0


class SpeakerConsistencyLoss(nn.Module):
    """One minus the cosine of the identity embeddings of two waveforms; the encoder is not trained."""

    window: Tensor
    basis: Tensor

    def __init__(self, config: SpeakerConsistencyConfig, sample_rate: int) -> None:
        super().__init__()
        self.encoder = load_encoder(Path(config.encoder)).requires_grad_(False)
        sizes = self.encoder.config
        if sizes.sample_rate != sample_rate:
            raise ConfigError(
                f"{config.encoder}: this encoder reads {sizes.sample_rate} Hz, but the codec has {sample_rate} Hz"
            )
        basis = mel_filterbank(sizes.sample_rate, sizes.fft_size, sizes.num_mels)
        self.register_buffer("basis", torch.from_numpy(basis), persistent=False)
        self.register_buffer("window", torch.from_numpy(hann(sizes.fft_size).copy()), persistent=False)

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """output (B, N), target (B, N) -> the mean over the batch."""
        with torch.no_grad():
            wanted = self.embed(target)
        return 1 - (self.embed(output) * wanted).sum(dim=1).mean()

    def embed(self, samples: Tensor) -> Tensor:
        """samples (B, N) -> embeddings (B, E) of unit length."""
        sizes = self.encoder.config
        with torch.autocast(samples.device.type, enabled=False):
            spectrum = torch.stft(
                samples.float(), sizes.fft_size, sizes.hop, window=self.window, pad_mode="reflect", return_complex=True
            )
            magnitudes = torch.sqrt(spectrum.real**2 + spectrum.imag**2 + SMALL_POWER)
            log_mel = torch.log(torch.clamp(self.basis @ magnitudes, min=LOG_FLOOR))
        return cast(Tensor, self.encoder(log_mel))
