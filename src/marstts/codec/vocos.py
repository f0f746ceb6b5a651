"""Vocos, the published vocoder: codes of any number of levels in, a waveform out.

Upstream: the NAR's codes.  Downstream: `codec.encodec.EncodecVocos`.
Siuzdak (arXiv:2306.00814): ConvNeXt blocks at 75 Hz, then an inverse Fourier transform.  An adapter of ours for the
weights `charactr/vocos-encodec-24khz`: the package of that name requires EnCodec under a non-commercial license.
Shapes: B batch · T frames · C channels · L levels.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from marstts.errors import CheckpointError, DataError
from marstts.io.config import Config
from marstts.weights.pretrained import find_weights, fingerprint, load_strictly, read_tensors, short_name

PUBLISHED = "charactr/vocos-encodec-24khz"
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")

SAMPLE_RATE = 24_000
NORM_EPSILON = 1e-6
MAX_MAGNITUDE = 100.0
WINDOW = "head.istft.window"

SMOOTH = 1
"""Bandwidth id of 3 kbps, which the release uses for codes of 6 kbps, according to its authors for a smoother sound."""


class VocosConfig(Config):
    """Sizes of a Vocos; defaults are the published one's."""

    levels: int = Field(16, gt=0)
    """Codebooks in the table; codes may have fewer levels."""

    codebook_size: int = Field(1024, gt=0)
    code_width: int = Field(128, gt=0)
    width: int = Field(384, gt=0)
    inner_width: int = Field(1152, gt=0)
    blocks: int = Field(8, gt=0)
    bandwidths: int = Field(4, gt=0)
    fourier_size: int = Field(1280, gt=0)
    hop: int = Field(320, gt=0)


class AdaptiveNorm(nn.Module):
    """A LayerNorm whose weight and bias are chosen by the bandwidth."""

    def __init__(self, bandwidths: int, width: int) -> None:
        super().__init__()
        self.scale = nn.Embedding(bandwidths, width)
        self.shift = nn.Embedding(bandwidths, width)

    def forward(self, x: Tensor, bandwidth: Tensor) -> Tensor:
        """x (B, T, C), bandwidth (B,) -> (B, T, C)."""
        normed = F.layer_norm(x, x.shape[-1:], eps=NORM_EPSILON)
        return normed * self.scale(bandwidth).unsqueeze(1) + self.shift(bandwidth).unsqueeze(1)


class ConvNeXtBlock(nn.Module):
    """x + gamma · pwconv2(gelu(pwconv1(norm(dwconv x)))) (arXiv:2201.03545)."""

    def __init__(self, config: VocosConfig) -> None:
        super().__init__()
        self.dwconv = nn.Conv1d(config.width, config.width, 7, padding=3, groups=config.width)
        self.norm = AdaptiveNorm(config.bandwidths, config.width)
        self.pwconv1 = nn.Linear(config.width, config.inner_width)
        self.pwconv2 = nn.Linear(config.inner_width, config.width)
        self.gamma = nn.Parameter(torch.ones(config.width))

    def forward(self, x: Tensor, bandwidth: Tensor) -> Tensor:
        """x (B, T, C), bandwidth (B,) -> (B, T, C)."""
        mixed = self.norm(self.dwconv(x.transpose(1, 2)).transpose(1, 2), bandwidth)
        return x + self.gamma * self.pwconv2(F.gelu(self.pwconv1(mixed)))


class Polar(NamedTuple):
    """A spectrogram: log magnitudes and phases, (B, T, bins) each."""

    log_magnitudes: Tensor
    phases: Tensor


class Vocos(nn.Module):
    """Codes to a waveform."""

    def __init__(self, config: VocosConfig | None = None) -> None:
        super().__init__()
        config = config or VocosConfig()
        self.config = config
        self.codebooks = nn.Parameter(torch.randn(config.levels * config.codebook_size, config.code_width))
        self.embed = nn.Conv1d(config.code_width, config.width, 7, padding=3)
        self.norm = AdaptiveNorm(config.bandwidths, config.width)
        self.convnext = nn.ModuleList(ConvNeXtBlock(config) for _ in range(config.blocks))
        self.final_layer_norm = nn.LayerNorm(config.width, NORM_EPSILON)
        self.out = nn.Linear(config.width, config.fourier_size + 2)
        self.window: Tensor
        self.register_buffer("window", torch.hann_window(config.fourier_size), persistent=False)

    def features(self, codes: Tensor) -> Tensor:
        """codes (B, T, L) -> (B, T, code_width): the sum of the codebooks' rows."""
        offsets = torch.arange(codes.shape[2], device=codes.device) * self.config.codebook_size
        return self.codebooks[codes + offsets].sum(dim=2)

    def forward(self, codes: Tensor, bandwidth: Tensor) -> Tensor:
        """codes (B, T, L), bandwidth (B,) ids -> samples (B, hop · T)."""
        x = self.embed(self.features(codes).transpose(1, 2)).transpose(1, 2)
        x = self.norm(x, bandwidth)
        for block in self.convnext:
            x = block(x, bandwidth)
        spectrum = Polar(*self.out(self.final_layer_norm(x)).chunk(2, dim=-1))
        return self.synthesize(spectrum)

    def synthesize(self, spectrum: Polar) -> Tensor:
        """The waveform (B, hop · T) of T frames: windowed, overlapped, divided by the windows' squared sum."""
        size, hop = self.config.fourier_size, self.config.hop
        magnitudes = spectrum.log_magnitudes.exp().clamp_max(MAX_MAGNITUDE)
        frames = torch.fft.irfft(torch.polar(magnitudes, spectrum.phases), n=size, dim=-1) * self.window
        weights = self.window.square().expand(1, frames.shape[1], size)
        samples, envelope = overlap_add(frames, hop), overlap_add(weights, hop)
        cut = (size - hop) // 2
        return (samples / envelope.clamp_min(torch.finfo(envelope.dtype).tiny))[:, cut : samples.shape[1] - cut]


def overlap_add(frames: Tensor, hop: int) -> Tensor:
    """frames (B, T, N), each `hop` samples after the one before -> (B, (T - 1) · hop + N)."""
    batch, count, size = frames.shape
    length = (count - 1) * hop + size
    added = F.fold(frames.transpose(1, 2), output_size=(1, length), kernel_size=(1, size), stride=(1, hop))
    return added.view(batch, length)


class VocosVocoder:
    """Vocos with the weights of `source`: a file, a folder or a name on the hub.

    `sha256` refuses any other weights; `bandwidth` is an id from 0 (1.5 kbps) to 3 (12 kbps).
    Raises CheckpointError where the weights are missing or do not fit.
    """

    def __init__(
        self,
        source: Path | str = PUBLISHED,
        *,
        sha256: str | None = None,
        bandwidth: int = SMOOTH,
        device: torch.device | str = "cpu",
    ) -> None:
        path = find_weights(source, WEIGHT_FILES)
        self.name = short_name("vocos", fingerprint(path, sha256))
        self.model = load_vocos(path).to(device)
        self.bandwidth = bandwidth
        if not 0 <= bandwidth < self.model.config.bandwidths:
            raise CheckpointError(
                f"{path}: bandwidth id {bandwidth} was asked for; this Vocos has 0 to "
                f"{self.model.config.bandwidths - 1}"
            )

    @torch.inference_mode()
    def decode(self, codes: NDArray[np.int64]) -> NDArray[np.float32]:
        """codes (T, L) of one to 16 levels -> samples (320 T,) at 24 kHz.  Raises DataError where one is no code."""
        config = self.model.config
        if codes.ndim != 2 or not 1 <= codes.shape[1] <= config.levels:
            raise DataError(f"Vocos was given codes of shape {codes.shape}; expected 1 to {config.levels} levels")
        if len(codes) == 0:
            return np.zeros(0, np.float32)
        largest = config.codebook_size - 1
        if codes.min() < 0 or codes.max() > largest:
            raise DataError(f"Vocos was given codes from {codes.min()} to {codes.max()}; expected 0 to {largest}")
        device = self.model.codebooks.device
        bandwidth = torch.tensor([self.bandwidth], device=device)
        return self.model(torch.from_numpy(codes)[None].to(device), bandwidth)[0].float().cpu().numpy()


def load_vocos(path: Path) -> Vocos:
    """The model in a published file; sizes are read from the tensors, window and hop are the published ones."""
    tensors = read_tensors(path)
    config = infer_config(tensors, path)
    renamed = {rename(name): tensor for name, tensor in tensors.items() if name != WINDOW}
    model = Vocos(config)
    load_strictly(model, renamed, path)
    return model.eval()


def infer_config(tensors: dict[str, Tensor], path: Path) -> VocosConfig:
    """The sizes of the Vocos these tensors belong to."""
    try:
        rows, code_width = tensors["feature_extractor.codebook_weights"].shape
        width, inner_width = tensors["backbone.convnext.0.pwconv2.weight"].shape
        sizes = VocosConfig()
        return sizes.model_copy(
            update={
                "levels": rows // sizes.codebook_size,
                "code_width": code_width,
                "width": width,
                "inner_width": inner_width,
                "blocks": len({name.split(".")[2] for name in tensors if name.startswith("backbone.convnext.")}),
                "bandwidths": tensors["backbone.norm.scale.weight"].shape[0],
            }
        )
    except (KeyError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}: expected the weights of Vocos for EnCodec, but: {error}") from error


def rename(name: str) -> str:
    """Published name -> ours."""
    if name == "feature_extractor.codebook_weights":
        return "codebooks"
    return name.removeprefix("backbone.").removeprefix("head.")
