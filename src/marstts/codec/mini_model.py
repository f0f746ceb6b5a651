"""The mini codec's network: a spectral codec with SNAC's token geometry, decoding through an inverse STFT.

    samples ─ log-mel, 93.75 frames/s ─ ConvNeXt ─ ÷2 ─ ConvNeXt ─► latents at 46.875 Hz
    latents ─ residual quantisation: level 0 on means of 4 latents, level 1 of 2, level 2 of 1 ─► codes
    codes ─ sum of the levels ─ dilated ConvNeXt ─► pitch ─► pulses ─┐
            sum of the levels ─ ConvNeXt ─ ×2 ─ ConvNeXt ─► filters ─┴─ of pulses and noise ─ inverse STFT ─► samples

Upstream: `training.codec` (waveforms).  Downstream: `codec.mini`, which runs the exported graphs without PyTorch.
Geometry after SNAC (arXiv:2410.14411); low-dimensional, normalised codebooks after arXiv:2110.04627. The decoder works
on spectra, as Vocos does (arXiv:2306.00814), but shapes a source of pulses and noise (see `codec.harmonics`) where
Vocos makes phases from nothing: few codes tell nothing of phases, and a voice without them is hoarse. All of the
network is convolutional with finite reach, so long audio can be decoded in windows.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marstts.codec.harmonics import HIGHEST_SHARE
from marstts.codec.mini import (
    HIGHEST_PITCH,
    KERNEL,
    LOWEST_PITCH,
    MAX_LOG_GAIN,
    MIDDLE_PITCH,
    PITCH_AHEAD,
    MiniCodecConfig,
)
from marstts.spectral import LOG_FLOOR, hann, mel_filterbank

# B batch · N samples · F frames (93.75 Hz, 2 per latent) · L latents (46.875 Hz) · D width · K codebook entries


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution over time, then a feed-forward over channels (arXiv:2201.03545), on (B, D, T).

    `ahead` of the kernel's places lie in the future.
    """

    def __init__(self, width: int, *, widen: int = 3, dilation: int = 1, ahead: int = KERNEL // 2) -> None:
        super().__init__()
        self.sides = ((KERNEL - 1 - ahead) * dilation, ahead * dilation)
        self.depthwise = nn.Conv1d(width, width, KERNEL, dilation=dilation, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.widen = nn.Linear(width, widen * width)
        self.narrow = nn.Linear(widen * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(F.pad(x, self.sides)).transpose(1, 2)
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


class Pitch(nn.Module):
    """latents (B, latent_width, L) -> pitch (B, F) in octaves about the middle one."""

    def __init__(self, config: MiniCodecConfig) -> None:
        super().__init__()
        width = config.pitch_width
        self.sides = (KERNEL - 1 - PITCH_AHEAD, PITCH_AHEAD)
        self.embed = nn.Conv1d(config.latent_width, width, KERNEL)
        self.blocks = nn.Sequential(
            *(ConvNeXtBlock(width, widen=2, dilation=step, ahead=PITCH_AHEAD) for step in config.pitch_dilations)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 2)  # frames per latent

    def forward(self, latents: Tensor) -> Tensor:
        x = self.blocks(self.embed(F.pad(latents, self.sides)))
        return cast(Tensor, self.head(self.norm(x.transpose(1, 2)))).flatten(1)


class Filters(NamedTuple):
    """What becomes of pulses and noise, (B, fft_size / 2 + 1, F) each."""

    pulse_gain: Tensor
    """Natural logarithms, as the next."""

    noise_gain: Tensor
    shift: Tensor
    """Of the pulses' phases, in radians."""


class Decoder(nn.Module):
    """latents (B, latent_width, L) -> filters for two frames of each."""

    def __init__(self, config: MiniCodecConfig) -> None:
        super().__init__()
        width = config.decoder_width
        slow, fast = config.decoder_blocks
        self.embed = nn.Conv1d(config.latent_width, width, 7, padding=3)
        self.slow_blocks = nn.Sequential(*(ConvNeXtBlock(width) for _ in range(slow)))
        self.upsample = nn.ConvTranspose1d(width, width, 2, stride=2)
        self.fast_blocks = nn.Sequential(*(ConvNeXtBlock(width) for _ in range(fast)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 3 * (config.fft_size // 2 + 1))
        self.pitch = Pitch(config)

    def forward(self, latents: Tensor) -> Filters:
        return self.filters(self.listen(latents))

    def listen(self, latents: Tensor) -> Tensor:
        """latents (B, latent_width, L) -> hidden (B, D, L)."""
        return cast(Tensor, self.slow_blocks(self.embed(latents)))

    def filters(self, hidden: Tensor) -> Filters:
        """hidden (B, D, L) -> filters for F frames."""
        x = self.fast_blocks(self.upsample(hidden))
        return Filters(*self.head(self.norm(x.transpose(1, 2))).transpose(1, 2).chunk(3, dim=1))


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

    octaves: Tensor
    """(B, F), the pitch as it is foretold from the codes, in octaves about the middle one."""

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

    def forward(self, samples: Tensor, pitch: Tensor | None = None) -> Coded:
        """samples (B, N), N a multiple of the coarsest hop -> what is heard of them through the codes.

        The pulses follow `pitch`, (B, F) in Hertz, where it is given: a filter learns little from a voice that goes its
        own way. Otherwise they follow the pitch that the codes foretell.
        """
        latents = self.encoder(self.log_mel(samples)).float()
        with torch.autocast(samples.device.type, enabled=False):
            levels, codes, loss = self.quantizer(latents)
        heard = torch.stack(levels).sum(dim=0)
        octaves = self.decoder.pitch(heard).float()
        pitch = to_hertz(octaves.detach()) if pitch is None else pitch
        return Coded(self.voice(self.decoder(heard), pitch), codes, latents, levels, octaves, loss)

    def voice(
        self, filters: Filters, pitch: Tensor, pulses: Tensor | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """Filters, and pitch (B, F) in Hertz -> (B, F * hop). Where they are not given, pulses begin anywhere."""
        with torch.autocast(pitch.device.type, enabled=False):
            if pulses is None:
                pulses = pulse_train(pitch, self.config, torch.rand(len(pitch), 1, device=pitch.device))
            noise = torch.randn_like(pulses) if noise is None else noise
            pulse_gain, noise_gain, shift = (value.float() for value in filters)
            shaped = torch.polar(torch.exp(torch.clamp(pulse_gain, max=MAX_LOG_GAIN)), shift) * self.spectra(pulses)
            shaped = shaped + torch.exp(torch.clamp(noise_gain, max=MAX_LOG_GAIN)) * self.spectra(noise)
            return self.to_samples(shaped)

    def spectra(self, samples: Tensor) -> Tensor:
        """(B, N) -> (B, fft_size / 2 + 1, F), complex, silence around the samples."""
        padded = F.pad(samples, (self.config.padding, self.config.padding))
        return torch.stft(
            padded, self.config.fft_size, self.config.hop, window=self.window, center=False, return_complex=True
        )

    def to_samples(self, spectra: Tensor) -> Tensor:
        """(B, fft_size / 2 + 1, F), complex -> (B, F * hop)."""
        frames = torch.fft.irfft(spectra, n=self.config.fft_size, dim=1) * self.window[None, :, None]
        length = (frames.shape[2] - 1) * self.config.hop + self.config.fft_size
        samples, weight = (
            F.fold(x, (1, length), (1, self.config.fft_size), stride=(1, self.config.hop))[:, 0, 0]
            for x in (frames, (self.window**2)[None, :, None].expand(1, -1, frames.shape[2]))
        )
        inside = slice(self.config.padding, length - self.config.padding)
        return samples[:, inside] / weight[:, inside]


def to_hertz(octaves: Tensor) -> Tensor:
    """Octaves about the middle pitch -> Hertz, kept where voices are."""
    return torch.clamp(MIDDLE_PITCH * 2**octaves, LOWEST_PITCH, HIGHEST_PITCH)


def pulse_train(pitch: Tensor, config: MiniCodecConfig, before: Tensor) -> Tensor:
    """pitch (B, F) in Hertz, cycles gone through before (B, 1) -> (B, F * hop); equal to `harmonics.pulse_train`."""
    rate = config.sample_rate
    hertz = F.interpolate(pitch.double()[:, None], scale_factor=config.hop, mode="linear", align_corners=False)[:, 0]
    half = torch.pi * torch.remainder(before + torch.cumsum(hertz / rate, dim=1), 1.0)
    count = torch.floor(HIGHEST_SHARE * rate / 2 / hertz)
    below = torch.sin(half)
    on_pulse = below.abs() < 1e-6
    kernel = torch.sin((2 * count + 1) * half) / torch.where(on_pulse, torch.ones_like(below), below)
    total = torch.where(on_pulse, 2 * count + 1, kernel) - 1
    return (total / torch.sqrt(2 * count)).float()


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


class HiddenGraph(nn.Module):
    """The decoder's slow half as it is exported: codes (1, T, P) -> hidden (1, L, D)."""

    def __init__(self, codec: MiniCodecModel) -> None:
        super().__init__()
        self.codec = codec

    def forward(self, codes: Tensor) -> Tensor:
        return self.codec.decoder.listen(latents_of(self.codec, codes)).transpose(1, 2)


class FiltersGraph(nn.Module):
    """The decoder's fast half as it is exported: hidden (1, L, D) -> filters, (1, fft_size / 2 + 1, F) each."""

    def __init__(self, codec: MiniCodecModel) -> None:
        super().__init__()
        self.codec = codec

    def forward(self, hidden: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.codec.decoder.filters(hidden.transpose(1, 2)))


class PitchGraph(nn.Module):
    """The decoder's pitch as it is exported: codes (1, T, P) -> Hertz (1, F)."""

    def __init__(self, codec: MiniCodecModel) -> None:
        super().__init__()
        self.codec = codec

    def forward(self, codes: Tensor) -> Tensor:
        return to_hertz(self.codec.decoder.pitch(latents_of(self.codec, codes)))


def latents_of(codec: MiniCodecModel, codes: Tensor) -> Tensor:
    """codes (1, T, P), levels side by side -> (1, latent_width, L)."""
    counts = [codec.config.strides[0] // stride for stride in codec.config.strides]
    return codec.quantizer.decode([level.reshape(1, -1) for level in codes.split(counts, dim=2)])
