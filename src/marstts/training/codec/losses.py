"""Losses of the mini codec: spectra at several resolutions, and two kinds of discriminators.

Upstream: `codec.mini_model` (reconstructions).  Downstream: `task`.
Multi-resolution spectral losses after arXiv:1910.11480; multi-period discriminator after HiFi-GAN (arXiv:2010.05646);
multi-resolution spectrogram discriminator after UnivNet (arXiv:2106.07889); hinge losses and feature matching.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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


class PeriodDiscriminator(nn.Module):
    """Discriminator of a waveform that is folded at one period."""

    def __init__(self, period: int, channels: int) -> None:
        super().__init__()
        self.period = period
        widths = [1, channels, 2 * channels, 4 * channels, 4 * channels]
        self.layers = nn.ModuleList(
            nn.Conv2d(narrow, wide, (5, 1), stride=(3, 1), padding=(2, 0))
            for narrow, wide in itertools.pairwise(widths)
        )
        self.score = nn.Conv2d(widths[-1], 1, (3, 1), padding=(1, 0))

    def forward(self, samples: Tensor) -> tuple[Tensor, list[Tensor]]:
        """samples (B, N) -> scores, and the features of each layer."""
        trimmed = samples[:, : samples.shape[1] // self.period * self.period]
        x, features = trimmed.reshape(len(trimmed), 1, -1, self.period), []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
            features.append(x)
        return self.score(x), features


class SpectrogramDiscriminator(nn.Module):
    """Discriminator of a waveform's complex spectrogram at one resolution."""

    window: Tensor

    def __init__(self, fft_size: int, channels: int) -> None:
        super().__init__()
        self.fft_size = fft_size
        self.register_buffer("window", torch.hann_window(fft_size), persistent=False)
        widths = [2, channels, channels, channels, channels]
        self.layers = nn.ModuleList(
            nn.Conv2d(narrow, wide, (5, 3), stride=(2, 1), padding=(2, 1))
            for narrow, wide in itertools.pairwise(widths)
        )
        self.score = nn.Conv2d(widths[-1], 1, 3, padding=1)

    def forward(self, samples: Tensor) -> tuple[Tensor, list[Tensor]]:
        """samples (B, N) -> scores, and the features of each layer."""
        with torch.autocast(samples.device.type, enabled=False):
            spectrum = torch.stft(
                samples.float(), self.fft_size, self.fft_size // 4, window=self.window, return_complex=True
            )
        # compressed magnitudes: quiet treble counts next to loud bass
        scale = (spectrum.abs() + 1e-5).pow(-0.7)
        x, features = torch.stack([spectrum.real * scale, spectrum.imag * scale], dim=1), []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
            features.append(x)
        return self.score(x), features


class Discriminators(nn.Module):
    """All discriminators, on the same waveforms."""

    def __init__(self, periods: tuple[int, ...], fft_sizes: tuple[int, ...], channels: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(
            [
                *(PeriodDiscriminator(period, channels // 2) for period in periods),
                *(SpectrogramDiscriminator(size, channels) for size in fft_sizes),
            ]
        )

    def forward(self, samples: Tensor) -> list[tuple[Tensor, list[Tensor]]]:
        """samples (B, N) -> scores and features of each discriminator."""
        return [member(samples) for member in self.members]


def discriminator_loss(discriminators: Discriminators, output: Tensor, target: Tensor) -> Tensor:
    """Hinge loss: targets above 1, outputs (detached) below -1."""
    outputs = discriminators(torch.cat([target, output.detach()], dim=0))
    losses = []
    for scores, _ in outputs:
        real, fake = scores.float().chunk(2, dim=0)
        losses.append(F.relu(1 - real).mean() + F.relu(1 + fake).mean())
    return torch.stack(losses).mean()


def generator_loss(discriminators: Discriminators, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Hinge loss and feature-matching distance of the output."""
    outputs = discriminators(torch.cat([target, output], dim=0))
    scores = [-scores.float().chunk(2, dim=0)[1].mean() for scores, _ in outputs]
    distances = []
    for _, features in outputs:
        for layer in features:
            real, fake = layer.float().chunk(2, dim=0)
            distances.append(F.l1_loss(fake, real.detach()) / (real.detach().abs().mean() + 1e-5))
    return torch.stack(scores).mean(), torch.stack(distances).mean()
