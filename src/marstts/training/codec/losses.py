"""Losses of the mini codec: spectra at several resolutions, and discriminators of spectra.

Upstream: `codec.mini_model` (reconstructions).  Downstream: `task`.
Multi-resolution spectral losses after arXiv:1910.11480; multi-resolution spectrogram discriminators after UnivNet
(arXiv:2106.07889), on log magnitudes; hinge losses and feature matching. The phases of a source-filter decoder are not
those of the recording, so discriminators of waveforms or complex spectra have nothing to teach it.
"""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from marstts.audio.spectral import mel_filterbank

RESOLUTIONS = ((2048, 160), (1024, 100), (512, 64))
"""(FFT size, mel bands); hops are a quarter of the FFT. None is so short that single pulses of a voice stand out: their
exact times are not trained."""
FLOOR = 1e-4


class SpectralLoss(nn.Module):
    """L1 between log-mels and log-magnitudes, at several resolutions, of waveforms (B, N)."""

    def __init__(self, sample_rate: int) -> None:
        super().__init__()
        for fft_size, num_mels in RESOLUTIONS:
            self.register_buffer(f"window{fft_size}", torch.hann_window(fft_size), persistent=False)
            basis = torch.from_numpy(mel_filterbank(sample_rate, fft_size, num_mels))
            self.register_buffer(f"basis{fft_size}", basis, persistent=False)

    def forward(self, output: Tensor, target: Tensor, step: int | None = None) -> Tensor:
        """All resolutions, or two of them in turn if the step is given: transforms cost half of training."""
        losses = []
        for fft_size, _ in RESOLUTIONS if step is None else RESOLUTIONS[step % 2 :][:2]:
            basis = self.get_buffer(f"basis{fft_size}")
            output_lines = self.magnitudes(output, fft_size)
            with torch.no_grad():
                target_lines = self.magnitudes(target, fft_size)
                target_mels = torch.log(basis @ target_lines + FLOOR)
                target_lines = torch.log(target_lines + FLOOR)
            losses.append(
                F.l1_loss(torch.log(basis @ output_lines + FLOOR), target_mels)
                + 0.3 * F.l1_loss(torch.log(output_lines + FLOOR), target_lines)
            )
        return torch.stack(losses).mean()

    def magnitudes(self, samples: Tensor, fft_size: int) -> Tensor:
        """(B, N) -> (B, fft_size / 2 + 1, T)."""
        window = self.get_buffer(f"window{fft_size}")
        spectrum = torch.stft(samples, fft_size, fft_size // 4, window=window, return_complex=True)
        return torch.sqrt(spectrum.real**2 + spectrum.imag**2 + 1e-9)


class MagnitudeDiscriminator(nn.Module):
    """Discriminator of a waveform's log-magnitude spectrogram at one resolution."""

    window: Tensor

    def __init__(self, fft_size: int, channels: int) -> None:
        super().__init__()
        self.fft_size = fft_size
        self.register_buffer("window", torch.hann_window(fft_size), persistent=False)
        shapes = (((7, 5), (2, 1)), ((7, 5), (2, 1)), ((5, 3), (2, 2)), ((5, 3), (2, 1)), ((3, 3), (1, 1)))
        layers = [
            nn.Conv2d(channels if number else 1, channels, kernel, stride, (kernel[0] // 2, kernel[1] // 2))
            for number, (kernel, stride) in enumerate(shapes)
        ]
        self.layers = nn.ModuleList(weight_norm(layer) for layer in layers)
        self.score = weight_norm(nn.Conv2d(channels, 1, 3, padding=1))

    def forward(self, samples: Tensor) -> tuple[Tensor, list[Tensor]]:
        """samples (B, N) -> scores, and the features of each layer."""
        with torch.autocast(samples.device.type, enabled=False):
            spectrum = torch.stft(
                samples.float(), self.fft_size, self.fft_size // 4, window=self.window, return_complex=True
            )
            x = torch.log(spectrum.real**2 + spectrum.imag**2 + 1e-6)[:, None] / 4 + 1  # of about unit variance
        features = []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
            features.append(x)
        return self.score(x), features


class Discriminators(nn.Module):
    """Discriminators of several resolutions, one of which is drawn for each step: all cost several times as much."""

    def __init__(self, fft_sizes: tuple[int, ...], channels: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(MagnitudeDiscriminator(size, channels) for size in fft_sizes)

    def of_step(self, step: int) -> nn.Module:
        """The discriminator of a step."""
        return self.members[random.Random(step).randrange(len(self.members))]


def crops(step: int, length: int, *waveforms: Tensor) -> list[Tensor]:
    """The same random crop of each row of waveforms (B, N), (B, length) each; whole where they are no longer."""
    samples = waveforms[0].shape[1]
    if samples <= length:
        return list(waveforms)
    rng = random.Random(step)
    starts = [rng.randrange(samples - length + 1) for _ in range(len(waveforms[0]))]
    return [torch.stack([row[a : a + length] for row, a in zip(each, starts, strict=True)]) for each in waveforms]


def discriminator_loss(discriminator: nn.Module, output: Tensor, target: Tensor) -> Tensor:
    """Hinge loss: targets above 1, outputs (detached) below -1."""
    scores, _ = discriminator(torch.cat([target, output.detach()], dim=0))
    real, fake = scores.float().chunk(2, dim=0)
    return F.relu(1 - real).mean() + F.relu(1 + fake).mean()


def generator_loss(discriminator: nn.Module, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Hinge loss and feature-matching distance of the output."""
    scores, features = discriminator(torch.cat([target, output], dim=0))
    distances = []
    for layer in features:
        real, fake = layer.float().chunk(2, dim=0)
        distances.append(F.l1_loss(fake, real.detach()) / (real.detach().abs().mean() + 1e-5))
    return -scores.float().chunk(2, dim=0)[1].mean(), torch.stack(distances).mean()
