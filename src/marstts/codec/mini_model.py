"""The mini codec's network: a spectral codec with SNAC's token geometry, decoding through an inverse STFT.

    samples ─ log-mel, 93.75 frames/s ─ ConvNeXt ─ ÷2 ─┬─ ConvNeXt ─► latents at 46.875 Hz
    samples ─ features of a frozen recognizer, if any ─┘
    latents ─ residual quantization: level 0 on means of 4 latents, level 1 of 2, level 2 of 1 ─► codes
    codes ─ sum of the levels ─ dilated ConvNeXt ─► pitch ─► pulses ─┐
            sum of the levels ─ ConvNeXt ─ ×2 ─ ConvNeXt ─► filters ─┴─ of pulses and noise ─ inverse STFT ─► samples

Upstream: `training.codec` (waveforms).  Downstream: `codec.mini`, which runs the exported graphs without PyTorch.
Geometry after SNAC (arXiv:2410.14411); low-dimensional, normalized codebooks after arXiv:2110.04627. The decoder works
on spectra, as Vocos does (arXiv:2306.00814). Vocos predicts phases; this decoder filters a source of pulses and noise
(see `codec.harmonics`), since few codes hold no phases and speech without them sounds hoarse. The network is
convolutional with a finite receptive field, so long audio can be decoded in windows.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marstts.audio.spectral import LOG_FLOOR, hann, mel_filterbank
from marstts.codec.harmonics import MAX_NYQUIST_RATIO
from marstts.codec.mini import (
    HIGHEST_PITCH,
    KERNEL,
    LOWEST_PITCH,
    MAX_LOG_GAIN,
    MIDDLE_PITCH,
    PITCH_AHEAD,
    MiniCodecConfig,
)
from marstts.codec.mini_whisper import WhisperEncoder

# B batch · N samples · F frames (93.75 Hz, 2 per latent) · L latents (46.875 Hz) · D width · K codebook entries


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution over time, then a feed-forward over channels (arXiv:2201.03545), on (B, D, T).

    `ahead` of the kernel's positions lie in the future.
    """

    def __init__(
        self, width: int, *, widen: int = 3, dilation: int = 1, ahead: int = KERNEL // 2, timbre_width: int = 0
    ) -> None:
        """`timbre_width` > 0: the normalized channels are modulated by a timbre embedding of this length."""
        super().__init__()
        self.sides = ((KERNEL - 1 - ahead) * dilation, ahead * dilation)
        self.depthwise = nn.Conv1d(width, width, KERNEL, dilation=dilation, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.widen = nn.Linear(width, widen * width)
        self.narrow = nn.Linear(widen * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))
        self.modulation = Modulation(timbre_width, width) if timbre_width else None

    def forward(self, x: Tensor, timbre: Tensor | None = None) -> Tensor:
        """x (B, D, T), timbre (B, V) or None -> (B, D, T)."""
        y = self.norm(self.depthwise(F.pad(x, self.sides)).transpose(1, 2))
        y = y if self.modulation is None or timbre is None else self.modulation(y, timbre)
        y = self.narrow(F.gelu(self.widen(y), approximate="tanh"))
        return x + (self.scale * y).transpose(1, 2)


class Blocks(nn.ModuleList):
    """ConvNeXt blocks in sequence, all with the same timbre embedding."""

    def forward(self, x: Tensor, timbre: Tensor | None = None) -> Tensor:
        """x (B, D, T), timbre (B, V) or None -> (B, D, T)."""
        for block in self:
            x = block(x, timbre)
        return x


class CodecEncoder(nn.Module):
    """log-mel (B, M, F) and, with a recognizer, its features (B, L, C) -> latents (B, latent_width, L), L = F / 2."""

    def __init__(self, config: MiniCodecConfig) -> None:
        super().__init__()
        width, features = config.encoder_width, config.feature_width
        fast, slow = config.encoder_blocks
        self.embed = nn.Conv1d(config.num_mels, width, 7, padding=3)
        self.fast_blocks = nn.Sequential(*(ConvNeXtBlock(width) for _ in range(fast)))
        self.downsample = nn.Conv1d(width, width, 2, stride=2)
        self.features = nn.Sequential(nn.LayerNorm(features), nn.Linear(features, width)) if features else None
        self.slow_blocks = nn.Sequential(*(ConvNeXtBlock(width) for _ in range(slow)))
        self.norm = nn.LayerNorm(width)
        self.project = nn.Conv1d(width, config.latent_width, 1)

    def forward(self, mels: Tensor, features: Tensor | None = None) -> Tensor:
        x = self.downsample(self.fast_blocks(self.embed(mels)))
        if self.features is not None:
            x = x + cast(Tensor, self.features(features)).transpose(1, 2)
        x = self.slow_blocks(x)
        return cast(Tensor, self.project(self.norm(x.transpose(1, 2)).transpose(1, 2)))


class Codebook(nn.Module):
    """The codebook of one level: nearest entry by cosine similarity in a small space."""

    usage: Tensor
    """(K,) recent frequency of each code, 1 = the average of all codes."""

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
        """latents (B, latent_width, T) -> (quantized likewise, codes (B, T), commitment and codebook loss ())."""
        queries = self.queries(latents)
        codes = self.similarities(queries.detach()).argmax(dim=-1)
        chosen = F.normalize(F.embedding(codes, self.entries), dim=-1)
        loss = F.mse_loss(chosen, queries.detach()) + 0.25 * F.mse_loss(queries, chosen.detach())
        straight_through = queries + (chosen - queries).detach()
        return self.project_out(straight_through.transpose(1, 2)), codes, loss


class ResidualQuantizer(nn.Module):
    """Residual vector quantization: each level codes the mean residual of the levels before, over its stride."""

    def __init__(self, config: MiniCodecConfig) -> None:
        super().__init__()
        self.strides = config.strides
        self.levels = nn.ModuleList(Codebook(config) for _ in config.strides)

    @property
    def codebooks(self) -> list[tuple[int, Codebook]]:
        """Each level's stride and codebook, coarse to fine."""
        return list(zip(self.strides, cast(list[Codebook], self.levels), strict=True))

    def forward(self, latents: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """latents (B, D, L) -> (quantized levels, (B, D, L) each, to be summed; codes per level; loss ())."""
        total, loss, levels, codes = torch.zeros_like(latents), latents.new_zeros(()), [], []
        for stride, level in self.codebooks:
            quantized, level_codes, level_loss = level(downsample(latents - total, stride))
            levels.append(upsample(quantized, stride))
            total = total + levels[-1]
            codes.append(level_codes)
            loss = loss + level_loss
        return levels, codes, loss

    def encode(self, latents: Tensor) -> list[Tensor]:
        """latents (B, D, L) -> codes per level, (B, L / stride) each."""
        total, codes = torch.zeros_like(latents), []
        for stride, level in self.codebooks:
            codes.append(level.encode(downsample(latents - total, stride)))
            total = total + upsample(level.decode(codes[-1]), stride)
        return codes

    def decode(self, codes: list[Tensor]) -> Tensor:
        """Codes per level -> (B, D, L)."""
        parts = [
            upsample(level.decode(level_codes), stride)
            for (stride, level), level_codes in zip(self.codebooks, codes, strict=True)
        ]
        return torch.stack(parts).sum(dim=0)


def downsample(x: Tensor, stride: int) -> Tensor:
    """(B, D, L) -> (B, D, L / stride), means."""
    return x if stride == 1 else F.avg_pool1d(x, stride)


def upsample(x: Tensor, stride: int) -> Tensor:
    """(B, D, L) -> (B, D, L * stride), repeated."""
    return x if stride == 1 else x.repeat_interleave(stride, dim=2)


class PitchPredictor(nn.Module):
    """latents (B, latent_width, L), timbre (B, V) or None -> pitch (B, F) in octaves relative to the middle one."""

    def __init__(self, config: MiniCodecConfig) -> None:
        super().__init__()
        width = config.pitch_width
        self.sides = (KERNEL - 1 - PITCH_AHEAD, PITCH_AHEAD)
        self.embed = nn.Conv1d(config.latent_width, width, KERNEL)
        self.blocks = Blocks(
            ConvNeXtBlock(width, widen=2, dilation=step, ahead=PITCH_AHEAD, timbre_width=config.timbre_width)
            for step in config.pitch_dilations
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 2)  # frames per latent

    def forward(self, latents: Tensor, timbre: Tensor | None = None) -> Tensor:
        x = self.blocks(self.embed(F.pad(latents, self.sides)), timbre)
        return cast(Tensor, self.head(self.norm(x.transpose(1, 2)))).flatten(1)


class SourceFilter(NamedTuple):
    """Filters of pulses and noise, (B, fft_size / 2 + 1, F) each."""

    pulse_gain: Tensor
    """Natural logarithm of the gain."""

    noise_gain: Tensor
    """Natural logarithm of the gain."""

    shift: Tensor
    """Phase shift of the pulses, in radians."""


class CodecDecoder(nn.Module):
    """latents (B, latent_width, L), timbre (B, V) or None -> filters for two frames of each latent."""

    def __init__(self, config: MiniCodecConfig) -> None:
        super().__init__()
        width, timbre_width = config.decoder_width, config.timbre_width
        slow, fast = config.decoder_blocks
        self.embed = nn.Conv1d(config.latent_width, width, 7, padding=3)
        self.slow_blocks = Blocks(ConvNeXtBlock(width, timbre_width=timbre_width) for _ in range(slow))
        self.upsample = nn.ConvTranspose1d(width, width, 2, stride=2)
        self.fast_blocks = Blocks(ConvNeXtBlock(width, timbre_width=timbre_width) for _ in range(fast))
        self.norm = nn.LayerNorm(width)
        self.modulation = Modulation(timbre_width, width) if timbre_width else None
        self.head = nn.Linear(width, 3 * (config.fft_size // 2 + 1))
        self.pitch = PitchPredictor(config)

    def forward(self, latents: Tensor, timbre: Tensor | None = None) -> SourceFilter:
        return self.source_filter(self.hidden_states(latents, timbre), timbre)

    def hidden_states(self, latents: Tensor, timbre: Tensor | None = None) -> Tensor:
        """latents (B, latent_width, L), timbre (B, V) or None -> hidden (B, D, L)."""
        return cast(Tensor, self.slow_blocks(self.embed(latents), timbre))

    def source_filter(self, hidden: Tensor, timbre: Tensor | None = None) -> SourceFilter:
        """hidden (B, D, L), timbre (B, V) or None -> filters for F frames."""
        x = self.norm(self.fast_blocks(self.upsample(hidden), timbre).transpose(1, 2))
        x = x if self.modulation is None or timbre is None else self.modulation(x, timbre)
        return SourceFilter(*self.head(x).transpose(1, 2).chunk(3, dim=1))


class CodecOutput(NamedTuple):
    """Output of the codec in training."""

    samples: Tensor
    """(B, N), decoded from the codes."""

    codes: list[Tensor]
    """Per level, coarse to fine, (B, L / stride)."""

    latents: Tensor
    """(B, latent_width, L), the encoder's output before quantization."""

    levels: list[Tensor]
    """Contribution of each level to the quantized latents, (B, latent_width, L)."""

    features: Tensor | None
    """(B, L, C) of the recognizer, that the encoder read; None without a recognizer."""

    octaves: Tensor
    """(B, F), pitch predicted from the codes, in octaves relative to the middle one."""

    loss: Tensor
    """() commitment and codebook loss."""


class MiniCodecModel(nn.Module):
    """The whole codec, differentiable from samples to samples."""

    mel_basis: Tensor
    window: Tensor

    def __init__(self, config: MiniCodecConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = CodecEncoder(config)
        self.quantizer = ResidualQuantizer(config)
        self.decoder = CodecDecoder(config)
        self.recognizer: WhisperEncoder | None = None
        if config.recognizer_layers:
            self.recognizer = WhisperEncoder(config.recognizer_width, config.recognizer_layers, config.sample_rate)
        self.timbre_encoder: TimbreNetwork | None = None
        if config.timbre_width:
            width = config.timbre_encoder_width
            blocks = Blocks(ConvNeXtBlock(width) for _ in range(config.timbre_encoder_blocks))
            self.timbre_encoder = TimbreNetwork(blocks, config.timbre_mels, width, config.timbre_width)
        self.timbre_speaker: SpeakerTimbre | None = None
        if config.timbre_speaker_size:
            self.timbre_speaker = SpeakerTimbre(config.timbre_speaker_size, config.timbre_width)
        self.timbre_f0: MedianF0 | None = None
        if config.timbre_f0_width:
            self.timbre_f0 = MedianF0(config.timbre_mels, config.timbre_f0_width, config.timbre_width)
        basis = torch.from_numpy(mel_filterbank(config.sample_rate, config.fft_size, config.num_mels))
        self.register_buffer("mel_basis", basis, persistent=False)
        self.register_buffer("window", torch.from_numpy(hann(config.fft_size).copy()), persistent=False)

    def log_mel(self, samples: Tensor, frequency_factors: Tensor | None = None) -> Tensor:
        """samples (B, N) -> (B, M, N / hop); equal to `audio.spectral.log_mel` with the codec's padding.

        `frequency_factors` (B,) raise all frequencies of each row, see `warp_frequencies`.
        """
        padded = F.pad(samples[:, None], (self.config.padding, self.config.padding), mode="reflect")[:, 0]
        spectrum = torch.stft(
            padded, self.config.fft_size, self.config.hop, window=self.window, center=False, return_complex=True
        ).abs()
        spectrum = spectrum if frequency_factors is None else warp_frequencies(spectrum, frequency_factors)
        return torch.log(torch.clamp(self.mel_basis @ spectrum, min=LOG_FLOOR))

    def timbre_of(self, reference: Tensor, speaker: Tensor | None = None) -> Tensor | None:
        """reference (B, N), N a multiple of the hop -> timbre embeddings (B, V); None from a codec without them.

        `speaker` (B, S): embeddings of the references by the codec's speaker encoder, for a codec with
        `timbre_speaker_size`.
        """
        if self.timbre_encoder is None:
            return None
        return self.timbre_from(self.log_mel(reference), speaker)

    def timbre_from(self, mels: Tensor, speaker: Tensor | None = None) -> Tensor:
        """log-mel (B, M, F) of references, speaker embeddings (B, S) or None -> timbre embeddings (B, V)."""
        assert self.timbre_encoder is not None, "a codec without timbre embeddings has no timbre encoder"
        timbre = cast(Tensor, self.timbre_encoder(mels))
        if self.timbre_speaker is not None:
            assert speaker is not None, "this codec's timbre embeddings depend on a speaker embedding"
            timbre = rms_norm(timbre + self.timbre_speaker(speaker).float())
        return timbre if self.timbre_f0 is None else self.timbre_f0.mark(timbre, self.timbre_f0(mels))

    def encode(
        self, samples: Tensor, frequency_factors: Tensor | None = None, inside: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """samples (B, N) with their context -> without it: latents (B, latent_width, L), recognizer features (B, L, C).

        Arguments as of `forward`; no features without a recognizer.
        """
        mels, features = self.log_mel(samples, frequency_factors), None
        num_latents = mels.shape[2] // 2
        inside = torch.ones(len(mels), num_latents, device=mels.device) if inside is None else inside
        mels = mels * inside.repeat_interleave(2, dim=1)[:, None]
        if self.recognizer is not None:
            features = self.recognizer.features_at_latents(samples, num_latents) * inside[:, :, None]
        latents = self.encoder(mels, features).float()
        context = self.config.context_patches * self.config.strides[0]
        decoded = slice(context, num_latents - context)
        return latents[:, :, decoded], None if features is None else features[:, decoded]

    def forward(
        self,
        samples: Tensor,
        pitch: Tensor | None = None,
        timbre: Tensor | None = None,
        frequency_factors: Tensor | None = None,
        inside: Tensor | None = None,
        given: tuple[list[Tensor], Tensor] | None = None,
    ) -> CodecOutput:
        """samples (B, N), N a multiple of the coarsest hop -> their reconstruction from codes.

        A codec with a recognizer takes `context_patches` more on either side, which are encoded and not decoded.
        `inside` (B, L), of samples and context, is 0 outside of a recording; None = all is inside.
        `timbre` (B, V) conditions the decoder; rows of zeros, or None, leave it unconditioned.
        `pitch`, (B, F) in hertz, is the F0 of the pulses: pulses of another F0 than the speech give small gradients.
        Without it the pitch predicted from the codes is used.
        `frequency_factors` (B,) raise all frequencies of what the encoder reads, so that codes and speaker disagree.
        `given`: codes per level (B, L / stride), which replace those of the rows (B,) that are True.
        """
        latents, features = self.encode(samples, frequency_factors, inside)
        with torch.autocast(samples.device.type, enabled=False):
            levels, codes, loss = self.quantizer(latents)
            quantized = torch.stack(levels).sum(dim=0)
            if given is not None:
                quantized = torch.where(given[1][:, None, None], self.quantizer.decode(given[0]), quantized)
        octaves = self.decoder.pitch(quantized, timbre).float()
        pitch = to_hertz(octaves.detach()) if pitch is None else pitch
        output = self.synthesize(self.decoder(quantized, timbre), pitch)
        return CodecOutput(output, codes, latents, levels, features, octaves, loss)

    def decode(self, codes: list[Tensor], timbre: Tensor | None = None, pitch: Tensor | None = None) -> Tensor:
        """Codes per level (B, L / stride), timbre (B, V) or None -> samples (B, N).

        `pitch` (B, F), in hertz, is predicted where it is 0 or None.
        """
        predicted = self.predict_pitch(codes, timbre)
        pitch = predicted if pitch is None else torch.where(pitch > 0, pitch, predicted)
        with torch.autocast(codes[0].device.type, enabled=False):
            quantized = self.quantizer.decode(codes)
        return self.synthesize(self.decoder(quantized, timbre), pitch)

    @torch.no_grad()
    def predict_pitch(self, codes: list[Tensor], timbre: Tensor | None = None) -> Tensor:
        """Codes per level (B, L / stride), timbre (B, V) or None -> pitch (B, F) in hertz."""
        with torch.autocast(codes[0].device.type, enabled=False):
            quantized = self.quantizer.decode(codes)
        return to_hertz(self.decoder.pitch(quantized, timbre).float())

    def synthesize(
        self, source_filter: SourceFilter, pitch: Tensor, pulses: Tensor | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """Filters, and pitch (B, F) in hertz -> samples (B, F * hop). By default pulses start at a random phase."""
        with torch.autocast(pitch.device.type, enabled=False):
            if pulses is None:
                pulses = pulse_train(pitch, self.config, torch.rand(len(pitch), 1, device=pitch.device))
            noise = torch.randn_like(pulses) if noise is None else noise
            pulse_gain, noise_gain, shift = (value.float() for value in source_filter)
            filtered = torch.polar(torch.exp(torch.clamp(pulse_gain, max=MAX_LOG_GAIN)), shift) * self.spectra(pulses)
            filtered = filtered + torch.exp(torch.clamp(noise_gain, max=MAX_LOG_GAIN)) * self.spectra(noise)
            return self.to_samples(filtered)

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


def warp_frequencies(spectrum: Tensor, factors: Tensor) -> Tensor:
    """Magnitudes (B, F, T) with all frequencies of row b, F0 and formants, raised by factors[b], interpolated."""
    top = spectrum.shape[1] - 1
    positions = torch.arange(top + 1, device=spectrum.device) / factors[:, None]  # the bins that are read, (B, F)
    below = positions.long().clamp(max=top - 1)
    fraction = (positions - below).clamp(max=1.0)[..., None]
    low, high = (
        torch.gather(spectrum, 1, bins[..., None].expand(-1, -1, spectrum.shape[2])) for bins in (below, below + 1)
    )
    return torch.where(positions[..., None] <= top, low + fraction * (high - low), 0.0)


def to_hertz(octaves: Tensor) -> Tensor:
    """Octaves relative to the middle pitch -> hertz, clamped to the range of voices."""
    return torch.clamp(MIDDLE_PITCH * 2**octaves, LOWEST_PITCH, HIGHEST_PITCH)


def pulse_train(pitch: Tensor, config: MiniCodecConfig, before: Tensor) -> Tensor:
    """pitch (B, F) in hertz, phase in cycles before it (B, 1) -> (B, F * hop); as `harmonics.pulse_train`."""
    rate = config.sample_rate
    hertz = F.interpolate(pitch.double()[:, None], scale_factor=config.hop, mode="linear", align_corners=False)[:, 0]
    half = torch.pi * torch.remainder(before + torch.cumsum(hertz / rate, dim=1), 1.0)
    num_harmonics = torch.floor(MAX_NYQUIST_RATIO * rate / 2 / hertz)
    denominator = torch.sin(half)
    on_pulse = denominator.abs() < 1e-6
    kernel = torch.sin((2 * num_harmonics + 1) * half) / denominator.masked_fill(on_pulse, 1.0)
    total = torch.where(on_pulse, 2 * num_harmonics + 1, kernel) - 1
    return (total / torch.sqrt(2 * num_harmonics)).float()


# The mini codec's global timbre embedding: what every frame of a recording has in common, in addition to its codes.
#     reference ─ log-mel, lower bands ─ ConvNeXt at 46.875 Hz ─ attentive statistics ─┬─► timbre embedding
#     reference ─ frozen speaker encoder, if any ─ two layers, and a linear map ───────┘
#     reference ─ log-mel, lower bands ─ ConvNeXt ─ median F0 ─► one direction of the timbre embedding
#     timbre embedding ─► gains and shifts of the channels in each of the decoder's blocks
# A synthesizer always has the voice's embeddings, so the codes need not encode all of the timbre. The zero vector
# modulates nothing: a decoder without a timbre embedding is the unconditioned one.
# Upstream: `codec.mini_model`.  Feature-wise modulation after FiLM (arXiv:1709.07871); one global vector next to the
# codes as in TiCodec (arXiv:2310.00014); attentive statistics after arXiv:1803.10963. The bands above `timbre_mels`
# are left out, so that a narrow-band reference does not make narrow-band speech. A speaker encoder distinguishes people
# far better than embeddings that were learned with the decoder, but it ignores the long-term spectrum, which the timbre
# encoder hears. Shapes: B batch · D width · T positions · V timbre_width · S timbre_speaker_size.


MEDIAN_F0_BLOCKS = 3
F0_SCALE = 2.0
"""Length of an octave in a timbre embedding, whose length is about 11."""


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


class TimbreNetwork(nn.Module):
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
        return rms_norm(self.project(pooled).float())


class SpeakerTimbre(nn.Module):
    """What a speaker embedding (B, S) of unit length adds to the timbre embedding, (B, V): nothing at first."""

    def __init__(self, size: int, timbre_width: int) -> None:
        super().__init__()
        self.size = size
        self.linear, self.narrow = nn.Linear(size, timbre_width), nn.Linear(2 * size, timbre_width)
        self.widen = nn.Linear(size, 2 * size)
        for layer in (self.linear, self.narrow):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, embedding: Tensor) -> Tensor:
        x = embedding * self.size**0.5  # of about unit variance
        return cast(Tensor, self.linear(x) + self.narrow(F.gelu(self.widen(x))))


class MedianF0(nn.Module):
    """log-mel (B, M, F) of a reference -> the median of its F0 (B,), in octaves about the middle pitch.

    A timbre embedding holds it in a direction that the decoder does not read, for the pitch predictor: codes and
    speaker embeddings tell the F0 of a person to two semitones only.
    """

    direction: Tensor

    def __init__(self, mels: int, width: int, timbre_width: int) -> None:
        super().__init__()
        self.mels = mels
        self.embed = nn.Conv1d(mels, width, 5, stride=2, padding=2)
        self.blocks = Blocks(ConvNeXtBlock(width, widen=2) for _ in range(MEDIAN_F0_BLOCKS))
        self.project = nn.Linear(width, 2)
        self.register_buffer("direction", F.one_hot(torch.tensor(0), timbre_width).float())

    def forward(self, mels: Tensor) -> Tensor:
        octaves, weights = self.of_frames(mels)
        return (octaves * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-4)

    def of_frames(self, mels: Tensor) -> tuple[Tensor, Tensor]:
        """log-mel (B, M, F) -> octaves about the middle pitch, and probabilities of voice, (B, F / 2) each."""
        bands = mels[:, : self.mels]
        bands = bands - bands.mean(dim=(1, 2), keepdim=True)  # whatever the level of the recording
        octaves, voice = self.project(self.blocks(self.embed(bands)).transpose(1, 2)).float().unbind(dim=2)
        return octaves, torch.sigmoid(voice)

    def mark(self, timbre: Tensor, octaves: Tensor) -> Tensor:
        """timbre (B, V), octaves (B,) -> timbre embeddings with this median F0 in their direction, (B, V)."""
        across = timbre - (timbre @ self.direction)[:, None] * self.direction
        return across + F0_SCALE * octaves[:, None] * self.direction


def rms_norm(x: Tensor) -> Tensor:
    """(B, V) -> (B, V) of root mean square 1."""
    return x * torch.rsqrt((x**2).mean(dim=1, keepdim=True) + 1e-6)
