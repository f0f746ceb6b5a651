"""Losses of the mini codec: spectra at several resolutions, F0, features of a recognizer that the codes predict,
speaker consistency, and discriminators of spectra.

Upstream: `codec.mini_model` (reconstructions).  Downstream: `terms`, `frozen`.
Multi-resolution spectral losses after arXiv:1910.11480; multi-resolution spectrogram discriminators after UnivNet
(arXiv:2106.07889), on log magnitudes; hinge losses and feature matching. The phases of a source-filter decoder are not
those of the recording, so discriminators of waveforms or complex spectra have nothing to teach it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from marstts.audio.spectral import LOG_FLOOR, hann, mel_filterbank
from marstts.codec.mini import MIDDLE_PITCH
from marstts.errors import ConfigError, DataError
from marstts.io.config import Config
from marstts.io.jsonl import Torn, read_rows
from marstts_lab.training.bounds import Weight
from marstts_lab.training.speaker.export import load_frozen

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
    """Hinge loss: targets above 1, outputs (detached) below -1. There may be more outputs than targets."""
    scores, _ = discriminator(torch.cat([target, output.detach()], dim=0))
    real, fake = scores.float().split([len(target), len(output)], dim=0)
    return F.relu(1 - real).mean() + F.relu(1 + fake).mean()


def generator_loss(discriminator: nn.Module, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Hinge loss and feature-matching distance of the output."""
    scores, features = discriminator(torch.cat([target, output], dim=0))
    distances = []
    for layer in features:
        real, fake = layer.float().chunk(2, dim=0)
        distances.append(F.l1_loss(fake, real.detach()) / (real.detach().abs().mean() + 1e-5))
    return -scores.float().chunk(2, dim=0)[1].mean(), torch.stack(distances).mean()


# F0 loss: the codec's decoder is trained to predict the F0 of the voice, which is read from `f0.jsonl`.
# Shapes: B batch · F spectral frames.

SECONDS_PER_VALUE = 0.01
MIN_VOICED = 3
"""Voiced values of a recording; with fewer it has no F0 contour."""

MAX_HERTZ = 1e5


class F0Config(Config):
    """F0 loss of the codec."""

    file: str = "f0.jsonl"
    """File next to the manifest, made by `marstts prepare f0`. Recordings that it lacks are left out."""

    weight: float = Field(4.0, gt=0, allow_inf_nan=False)
    """Weight of the F0 loss next to the spectral loss."""

    unvoiced_weight: Weight = 0.03
    """Weight of an unvoiced frame; a voiced frame has 1. There F0 is interpolated between voiced frames."""


class F0Row(Config):
    """One line of the file: Hertz every 10 ms, 0 where unvoiced."""

    id: str
    f0: list[Annotated[float, Field(ge=0, le=MAX_HERTZ, allow_inf_nan=False)]]


def read_f0(path: Path) -> dict[str, NDArray[np.float32]]:
    """The F0 of every recording by utterance id, (T,) in Hertz; DataError if the file is missing or malformed."""
    if not path.exists():
        raise DataError(f"{path}: no such file; make the F0 of the recordings with `marstts prepare f0`")
    rows = read_rows(F0Row, path, torn=Torn.READ)
    return {row.id: np.array(row.f0, dtype=np.float32) for row in rows}


def f0_at(f0: NDArray[np.float32], times: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """times (F,) in seconds -> Hertz (F,) without gaps, and 1 (F,) where the recording is voiced, else 0.

    Gaps are interpolated linearly in octaves, and held at both ends; without voiced values all is the middle pitch.
    """
    voiced = np.flatnonzero(f0 > 0)
    if len(voiced) < MIN_VOICED:
        return np.full(len(times), MIDDLE_PITCH, np.float32), np.zeros(len(times), np.float32)
    positions = times / SECONDS_PER_VALUE
    hertz = 2 ** np.interp(positions, voiced, np.log2(f0[voiced]))
    nearest = np.round(positions).astype(int)
    is_voiced = (nearest < len(f0)) & (f0[np.minimum(nearest, len(f0) - 1)] > 0)
    return hertz.astype(np.float32), is_voiced.astype(np.float32)


def f0_loss(octaves: Tensor, f0: Tensor, voiced: Tensor, config: F0Config) -> Tensor:
    """Mean smooth L1 distance in octaves of predictions about the middle pitch (B, F) and F0 (B, F) in Hertz."""
    weights = voiced + config.unvoiced_weight
    distances = F.smooth_l1_loss(octaves, torch.log2(f0 / MIDDLE_PITCH), reduction="none", beta=0.05)
    return (weights * distances).sum() / weights.sum().clamp(min=1e-6)  # a batch of whispers may have no weight


def f0_error_semitones(octaves: Tensor, f0: Tensor, voiced: Tensor) -> Tensor:
    """Median F0 error over voiced frames, in semitones; 0 where there are none."""
    distances = 12 * (octaves - torch.log2(f0 / MIDDLE_PITCH)).abs()[voiced > 0]
    return distances.median() if len(distances) else octaves.new_zeros(())


# Feature prediction: a loss that makes the codec's levels predict a speech recognizer's last layer.
# Codes that follow the words can be predicted from text, which is MARS6's task; trained on spectra alone, the
# coarsest level follows loudness and pitch as well. The idea is that of SpeechTokenizer (arXiv:2308.16692) and Mimi
# (arXiv:2410.00037). Shapes: B segments · L latents (46.875 Hz) · D width · C features · levels coarse to fine.

PART_WEIGHTS = (0.5, 1.0, 1.5, 1.0)
"""Of the encoder's output, the first level, the sum of the first two, and of three."""

HEAD_WIDTH, SMALL_VARIANCE = 512, 1e-8


class FeaturePredictionConfig(Config):
    """Prediction of the recognizer's last layer from the codes."""

    weight: float = Field(12.0, gt=0, allow_inf_nan=False)
    """Weight of the mean squared error, in units of each feature's variance."""


class FeaturePrediction(nn.Module):
    """Small networks over a few latents that predict the features: from the encoder's output, and from the levels."""

    def __init__(self, latent_width: int, num_features: int, num_levels: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(latent_width, HEAD_WIDTH, 5, padding=2), nn.GELU(),
                nn.Conv1d(HEAD_WIDTH, HEAD_WIDTH, 3, padding=1), nn.GELU(), nn.Conv1d(HEAD_WIDTH, num_features, 1),
            )
            for _ in PART_WEIGHTS[: 1 + num_levels]
        )  # fmt: skip

    def forward(self, latents: Tensor, levels: Sequence[Tensor], features: Tensor, inside: Tensor) -> list[Tensor]:
        """latents and each level (B, D, L), features (B, L, C), inside (B, L) 0 where nothing counts -> errors ().

        The first is that of the encoder's output. An error of 1 is that of the mean.
        """
        counted = inside.sum().clamp(min=1)
        mean = (features * inside[:, :, None]).sum(dim=(0, 1)) / counted
        variance = ((features - mean) ** 2 * inside[:, :, None]).sum(dim=(0, 1)) / counted
        target = (features - mean) / torch.sqrt(variance + SMALL_VARIANCE)
        errors = []
        for head, given in zip(self.heads, [latents, *accumulate(levels)], strict=False):
            distance = ((head(given).float().transpose(1, 2) - target) ** 2).mean(dim=2)
            errors.append((distance * inside).sum() / counted)
        return errors


def weighted_errors(errors: Sequence[Tensor]) -> Tensor:
    """The mean of `FeaturePrediction`'s errors by `PART_WEIGHTS`."""
    weights = PART_WEIGHTS[: len(errors)]
    return torch.stack([weight * error for weight, error in zip(weights, errors, strict=True)]).sum() / sum(weights)


# Speaker consistency loss: the output should have the speaker embedding of its target.
# After YourTTS (arXiv:2112.02418), whose loss compares with the target, too. Shapes: B batch · N samples · M mel
# bands · T frames · E embedding size.

SMALL_POWER = 1e-10
"""Keeps the gradient of a magnitude finite; it is the square of the smallest mel magnitude."""


class SpeakerConsistencyConfig(Config):
    """Speaker consistency loss: one minus the cosine of the embeddings of output and target."""

    encoder: str = Field(min_length=1)
    """Folder of an identity encoder: a run of `marstts train speaker`, an exported one, or CAM++."""

    weight: Weight = 1.0

    target_recordings: int = Field(0, ge=0, le=2**10)
    """The target is the mean embedding of at most so many recordings of the person; 0 = that of one segment."""

    masked_bands: int = Field(0, ge=0, le=16)
    """Random stretches of `MASKED_MELS` bands of each output that the encoder does not hear, so that the decoder cannot
    please it by a few bands."""


class SpeakerEmbedding(nn.Module):
    """A frozen speaker encoder over waveforms of the codec's rate, differentiable."""

    window: Tensor
    basis: Tensor

    def __init__(self, encoder: str, sample_rate: int) -> None:
        """ConfigError where the frames of the encoder in this folder do not fit the codec's rate."""
        super().__init__()
        self.encoder = load_frozen(Path(encoder))
        sizes = self.encoder.config
        self.fft_size, rest = divmod(sizes.fft_size * sample_rate, sizes.sample_rate)
        self.hop, other_rest = divmod(sizes.hop * sample_rate, sizes.sample_rate)
        if rest or other_rest or sample_rate < sizes.sample_rate:
            raise ConfigError(
                f"{encoder}: this encoder reads {sizes.sample_rate} Hz, but the codec has {sample_rate} Hz; "
                "expected a codec of at least this rate, whose frames have whole numbers of samples"
            )
        basis = mel_filterbank(sizes.sample_rate, sizes.fft_size, sizes.num_mels)
        self.register_buffer("basis", torch.from_numpy(basis), persistent=False)
        self.register_buffer("window", torch.from_numpy(hann(self.fft_size).copy()), persistent=False)

    def embed(self, samples: Tensor) -> Tensor:
        """samples (B, N) -> embeddings (B, E) of unit length."""
        return cast(Tensor, self.encoder(self.log_mel(samples)))

    def log_mel(self, samples: Tensor) -> Tensor:
        """samples (B, N) -> log-mels (B, M, T): the bins of the encoder's rate lie where its own do."""
        with torch.autocast(samples.device.type, enabled=False):
            spectrum = torch.stft(
                samples.float(), self.fft_size, self.hop, window=self.window, pad_mode="reflect", return_complex=True
            )[:, : self.basis.shape[1]]
            magnitudes = torch.sqrt(spectrum.real**2 + spectrum.imag**2 + SMALL_POWER)
            return torch.log(torch.clamp(self.basis @ magnitudes, min=LOG_FLOOR))


class SpeakerConsistencyLoss(SpeakerEmbedding):
    """One minus the cosine of the identity embeddings of two waveforms; the encoder is not trained."""

    def __init__(self, config: SpeakerConsistencyConfig, sample_rate: int) -> None:
        super().__init__(config.encoder, sample_rate)
        self.masked_bands = config.masked_bands

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """output (B, N), target (B, N) -> the mean over the batch."""
        with torch.no_grad():
            wanted = self.embed(target)
        return self.distance(output, wanted, self.masked_bands)

    def distance(self, output: Tensor, wanted: Tensor, masked_bands: int = 0) -> Tensor:
        """output (B, N), embeddings (B, E) that it should have -> the mean over the batch."""
        mel = mask_bands(self.log_mel(output), masked_bands)
        return 1 - (cast(Tensor, self.encoder(mel)) * wanted).sum(dim=1).mean()


MASKED_MELS = 8
"""Bands of a stretch that is masked."""


def mask_bands(log_mel: Tensor, count: int) -> Tensor:
    """log-mel (B, M, T) with `count` random stretches of bands of each row set to their means over time."""
    if not count:
        return log_mel
    num_mels = log_mel.shape[1]
    starts = torch.randint(max(1, num_mels - MASKED_MELS), (len(log_mel), count, 1), device=log_mel.device)
    bands = torch.arange(num_mels, device=log_mel.device)
    masked = ((bands >= starts) & (bands < starts + MASKED_MELS)).any(dim=1)
    return torch.where(masked[:, :, None], log_mel.mean(dim=2, keepdim=True), log_mel)
