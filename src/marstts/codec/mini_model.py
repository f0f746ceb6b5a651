"""The mini codec's network: a spectral codec with SNAC's token geometry, decoding through an inverse STFT.

    samples ─ log-mel, 93.75 frames/s ─ ConvNeXt ─ ÷2 ─ ConvNeXt ─► latents at 46.875 Hz
    latents ─ residual quantisation: level 0 on means of 4 latents, level 1 of 2, level 2 of 1 ─► codes
    codes ─ sum of the levels ─ ConvNeXt ─ ×2 ─ ConvNeXt ─ log-magnitude and phase ─ inverse STFT ─► samples

Upstream: `training.codec` (waveforms).  Downstream: `codec.mini`, which runs the exported graphs without PyTorch.
Geometry after SNAC (arXiv:2410.14411); head after Vocos (arXiv:2306.00814); low-dimensional, normalised codebooks after
arXiv:2110.04627. All of the network is convolutional with finite reach, so long audio can be decoded in windows.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marstts.codec.mini import MAX_LOG_MAGNITUDE, MiniCodecConfig
from marstts.spectral import LOG_FLOOR, hann, mel_filterbank

# B batch · N samples · F frames (93.75 Hz) · L latents (46.875 Hz) · D width · K codebook entries


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution over time, then a feed-forward over channels (arXiv:2201.03545), on (B, D, T)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.widen = nn.Linear(width, 3 * width)
        self.narrow = nn.Linear(3 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(x).transpose(1, 2)
        y = self.narrow(F.gelu(self.widen(self.norm(y)), approximate="tanh"))
        return x + (self.scale * y).transpose(1, 2)


class Encoder(nn.Module):
    """log-mel (B, M, F) -> latents (B, latent_width, F / 2)."""

    def __init__(self, config: MiniCodecConfig) -> None:
        super().__init__()
        width = config.encoder_width
        fast, slow = config.encoder_blocks
        self.embed = nn.Conv1d(config.num_mels, width, 7, padding=3)
        self.fast_blocks = nn.Sequential(*(ConvNeXtBlock(width) for _ in range(fast)))
        self.downsample = nn.Conv1d(width, width, 2, stride=2)
        self.slow_blocks = nn.Sequential(*(ConvNeXtBlock(width) for _ in range(slow)))
        self.norm = nn.LayerNorm(width)
        self.project = nn.Conv1d(width, config.latent_width, 1)

    def forward(self, mels: Tensor) -> Tensor:
        x = self.slow_blocks(self.downsample(self.fast_blocks(self.embed(mels))))
        return cast(Tensor, self.project(self.norm(x.transpose(1, 2)).transpose(1, 2)))


class Codebook(nn.Module):
    """One level: nearest entry by cosine similarity in a small space."""

    usage: Tensor
    """(K,) how often each code was chosen lately, 1 = as often as the others."""

    def __init__(self, config: MiniCodecConfig) -> None:
        super().__init__()
        self.project_in = nn.Conv1d(config.latent_width, config.codebook_width, 1)
        self.entries = nn.Parameter(F.normalize(torch.randn(config.codebook_size, config.codebook_width), dim=-1))
        self.project_out = nn.Conv1d(config.codebook_width, config.latent_width, 1)
        self.register_buffer("usage", torch.ones(config.codebook_size))

    def similarities(self, queries: Tensor) -> Tensor:
        """queries (B, T, c), unit length -> (B, T, K)."""
        return queries @ F.normalize(self.entries, dim=-1).T

    def queries(self, latents: Tensor) -> Tensor:
        """latents (B, latent_width, T) -> (B, T, c), unit length."""
        return F.normalize(self.project_in(latents).transpose(1, 2), dim=-1)

    def encode(self, latents: Tensor) -> Tensor:
        """latents (B, latent_width, T) -> codes (B, T)."""
        return self.similarities(self.queries(latents)).argmax(dim=-1)

    def decode(self, codes: Tensor) -> Tensor:
        """codes (B, T) -> (B, latent_width, T)."""
        chosen = F.normalize(F.embedding(codes, self.entries), dim=-1)
        return cast(Tensor, self.project_out(chosen.transpose(1, 2)))

    def forward(self, latents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """latents (B, latent_width, T) -> (quantised likewise, codes (B, T), commitment and codebook loss ())."""
        queries = self.queries(latents)
        codes = self.similarities(queries.detach()).argmax(dim=-1)
        chosen = F.normalize(F.embedding(codes, self.entries), dim=-1)
        loss = F.mse_loss(chosen, queries.detach()) + 0.25 * F.mse_loss(queries, chosen.detach())
        straight_through = queries + (chosen - queries).detach()
        return self.project_out(straight_through.transpose(1, 2)), codes, loss


class ResidualQuantizer(nn.Module):
    """Coarse to fine: each level codes the mean, over its stride, of what the levels before it left over."""

    def __init__(self, config: MiniCodecConfig) -> None:
        super().__init__()
        self.strides = config.strides
        self.levels = nn.ModuleList(Codebook(config) for _ in config.strides)

    @property
    def books(self) -> list[tuple[int, Codebook]]:
        """Each level's stride and codebook, coarse to fine."""
        return list(zip(self.strides, cast(list[Codebook], self.levels), strict=True))

    def forward(self, latents: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """latents (B, D, L) -> (quantised levels, (B, D, L) each, to be summed; codes per level; loss ())."""
        total, loss, levels, codes = torch.zeros_like(latents), latents.new_zeros(()), [], []
        for stride, level in self.books:
            quantised, level_codes, level_loss = level(pool(latents - total, stride))
            levels.append(stretch(quantised, stride))
            total = total + levels[-1]
            codes.append(level_codes)
            loss = loss + level_loss
        return levels, codes, loss

    def encode(self, latents: Tensor) -> list[Tensor]:
        """latents (B, D, L) -> codes per level, (B, L / stride) each."""
        total, codes = torch.zeros_like(latents), []
        for stride, level in self.books:
            codes.append(level.encode(pool(latents - total, stride)))
            total = total + stretch(level.decode(codes[-1]), stride)
        return codes

    def decode(self, codes: list[Tensor]) -> Tensor:
        """Codes per level -> (B, D, L)."""
        parts = [
            stretch(level.decode(level_codes), stride)
            for (stride, level), level_codes in zip(self.books, codes, strict=True)
        ]
        return torch.stack(parts).sum(dim=0)


def pool(x: Tensor, stride: int) -> Tensor:
    """(B, D, L) -> (B, D, L / stride), means."""
    return x if stride == 1 else F.avg_pool1d(x, stride)


def stretch(x: Tensor, stride: int) -> Tensor:
    """(B, D, L) -> (B, D, L * stride), repeated."""
    return x if stride == 1 else x.repeat_interleave(stride, dim=2)


class Decoder(nn.Module):
    """latents (B, latent_width, L) -> (log-magnitude, phase), each (B, fft_size / 2 + 1, 2 L)."""

    def __init__(self, config: MiniCodecConfig) -> None:
        super().__init__()
        width = config.decoder_width
        slow, fast = config.decoder_blocks
        self.embed = nn.Conv1d(config.latent_width, width, 7, padding=3)
        self.slow_blocks = nn.Sequential(*(ConvNeXtBlock(width) for _ in range(slow)))
        self.upsample = nn.ConvTranspose1d(width, width, 2, stride=2)
        self.fast_blocks = nn.Sequential(*(ConvNeXtBlock(width) for _ in range(fast)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, config.fft_size + 2)

    def forward(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        x = self.fast_blocks(self.upsample(self.slow_blocks(self.embed(latents))))
        log_magnitude, phase = self.head(self.norm(x.transpose(1, 2))).transpose(1, 2).chunk(2, dim=1)
        return log_magnitude, phase


class Coded(NamedTuple):
    """What the codec makes of waveforms in training."""

    samples: Tensor
    """(B, N), heard back from the codes."""

    codes: list[Tensor]
    """Per level, coarse to fine, (B, L / stride)."""

    latents: Tensor
    """(B, latent_width, L), what the encoder said before it was quantised."""

    levels: list[Tensor]
    """What each level adds to the latents, (B, latent_width, L)."""

    loss: Tensor
    """() commitment and codebook loss."""


class MiniCodecModel(nn.Module):
    """The whole codec, differentiable from samples to samples."""

    mel_basis: Tensor
    window: Tensor

    def __init__(self, config: MiniCodecConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.quantizer = ResidualQuantizer(config)
        self.decoder = Decoder(config)
        basis = torch.from_numpy(mel_filterbank(config.sample_rate, config.fft_size, config.num_mels))
        self.register_buffer("mel_basis", basis, persistent=False)
        self.register_buffer("window", torch.from_numpy(hann(config.fft_size).copy()), persistent=False)

    def log_mel(self, samples: Tensor) -> Tensor:
        """samples (B, N) -> (B, M, N / hop); equal to `spectral.log_mel` with the codec's padding."""
        padded = F.pad(samples[:, None], (self.config.padding, self.config.padding), mode="reflect")[:, 0]
        spectrum = torch.stft(
            padded, self.config.fft_size, self.config.hop, window=self.window, center=False, return_complex=True
        ).abs()
        return torch.log(torch.clamp(self.mel_basis @ spectrum, min=LOG_FLOOR))

    def forward(self, samples: Tensor) -> Coded:
        """samples (B, N), N a multiple of the coarsest hop -> what is heard of them through the codes."""
        latents = self.encoder(self.log_mel(samples)).float()
        with torch.autocast(samples.device.type, enabled=False):
            levels, codes, loss = self.quantizer(latents)
        log_magnitude, phase = self.decoder(torch.stack(levels).sum(dim=0))
        return Coded(self.to_samples(log_magnitude, phase), codes, latents, levels, loss)

    def to_samples(self, log_magnitude: Tensor, phase: Tensor) -> Tensor:
        """(B, fft_size / 2 + 1, F) each -> (B, F * hop)."""
        with torch.autocast(log_magnitude.device.type, enabled=False):
            spectra = to_spectra(log_magnitude.float(), phase.float())
            frames = torch.fft.irfft(spectra, n=self.config.fft_size, dim=1) * self.window[None, :, None]
            length = (frames.shape[2] - 1) * self.config.hop + self.config.fft_size
            samples, weight = (
                F.fold(x, (1, length), (1, self.config.fft_size), stride=(1, self.config.hop))[:, 0, 0]
                for x in (frames, (self.window**2)[None, :, None].expand(1, -1, frames.shape[2]))
            )
            inside = slice(self.config.padding, length - self.config.padding)
            return samples[:, inside] / weight[:, inside]


def to_spectra(log_magnitude: Tensor, phase: Tensor) -> Tensor:
    """Polar to complex; magnitudes bounded."""
    return torch.polar(torch.exp(torch.clamp(log_magnitude, max=MAX_LOG_MAGNITUDE)), phase)


class CodesGraph(nn.Module):
    """The encoder as it is exported: mels (1, T, frames per patch, M) -> codes (1, T, P), levels side by side."""

    def __init__(self, codec: MiniCodecModel) -> None:
        super().__init__()
        self.codec = codec

    def forward(self, mels: Tensor) -> Tensor:
        patches = mels.shape[1]
        latents = self.codec.encoder(mels.flatten(1, 2).transpose(1, 2))
        codes = self.codec.quantizer.encode(latents)
        return torch.cat([level.reshape(1, patches, -1) for level in codes], dim=2)


class SpectraGraph(nn.Module):
    """The decoder as it is exported: codes (1, T, P) -> log-magnitude and phase (1, fft_size / 2 + 1, F) each."""

    def __init__(self, codec: MiniCodecModel) -> None:
        super().__init__()
        self.codec = codec

    def forward(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        counts = [self.codec.config.strides[0] // stride for stride in self.codec.config.strides]
        levels = [level.reshape(1, -1) for level in codes.split(counts, dim=2)]
        log_magnitude, phase = self.codec.decoder(self.codec.quantizer.decode(levels))
        return log_magnitude, phase
