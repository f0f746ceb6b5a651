"""The mini codec, ready to run: ONNX graphs and an inverse STFT in NumPy, no PyTorch.

Upstream: a folder written by `export_mini_codec` (training side).  Downstream: synthesis, tokenising.
The network is described and trained in `codec.mini_model`; its geometry is SNAC 24 kHz's (2048, 1024 and 512
samples per code), so that every patch of seven tokens lasts 85.3 ms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from marstts import audio, spectral
from marstts.audio import Waveform
from marstts.codec.base import CodecSpec, Codes
from marstts.config import Config, read_config
from marstts.errors import CheckpointError
from marstts.onnx_session import open_session

MAX_LOG_MAGNITUDE = 7.0
"""Bounds what the head can ask of the inverse STFT; a full-scale sine has log-magnitude 5.5 with 1,024 points."""


class MiniCodecConfig(Config):
    """Sizes of the mini codec."""

    sample_rate: int = 24000
    fft_size: int = 1024
    hop: int = 256
    """Samples per spectral frame."""
    num_mels: int = 100
    strides: tuple[int, ...] = (4, 2, 1)
    """Latents per code on each level, coarse to fine; a latent is two frames long."""
    codebook_size: int = Field(1024, ge=16)
    codebook_width: int = 8
    """Codes are chosen by cosine similarity in a space this small, which keeps all entries in use."""
    latent_width: int = 256
    encoder_width: int = 256
    encoder_blocks: tuple[int, int] = (2, 4)
    """ConvNeXt blocks at 93.75 Hz and at 46.875 Hz."""
    decoder_width: int = 320
    decoder_blocks: tuple[int, int] = (4, 4)
    """ConvNeXt blocks at 46.875 Hz and at 93.75 Hz."""

    @property
    def hop_lengths(self) -> tuple[int, ...]:
        """Samples per code on each level."""
        return tuple(2 * self.hop * stride for stride in self.strides)

    @property
    def padding(self) -> int:
        """Samples of padding that make N samples exactly N / hop frames."""
        return (self.fft_size - self.hop) // 2

    @model_validator(mode="after")
    def _strides_nest(self) -> MiniCodecConfig:
        pairs = zip(self.strides, self.strides[1:], strict=False)
        if self.strides[-1] != 1 or any(coarse % fine for coarse, fine in pairs):
            raise ValueError(f"strides must fall to 1, each dividing the one before, not {self.strides}")
        return self


class MiniCodecFolder(Config):
    """`config.json` of an exported codec."""

    name: str
    """Names the codec and this training of it, e.g. `mini-codec-v1`."""

    model: MiniCodecConfig


class MiniCodec:
    """A `codec.base.Codec` over the exported graphs in `folder`."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        self.folder = folder
        described = read_config(MiniCodecFolder, folder / "config.json")
        self.config = described.model
        self.spec = CodecSpec(
            name=described.name,
            sample_rate=self.config.sample_rate,
            codebook_size=self.config.codebook_size,
            hop_lengths=self.config.hop_lengths,
        )
        self._encoder = open_session(folder / "encoder.onnx", threads)
        self._decoder = open_session(folder / "decoder.onnx", threads)

    @property
    def reach_patches(self) -> int:
        """As far as the decoder's convolutions and its overlapping frames carry a code, rounded up."""
        slow, fast = self.config.decoder_blocks
        frames = 3 * fast + math.ceil(self.config.fft_size / self.config.hop / 2)  # kernels of 7 reach 3 to each side
        latents = 3 + 3 * slow + frames / 2
        return math.ceil(latents / self.config.strides[0])

    def encode(self, waveform: Waveform) -> Codes:
        """Codes of the waveform, padded with silence to whole patches; resampled if its rate differs."""
        samples = audio.resample(waveform, self.spec.sample_rate).samples
        patches = max(1, -(-len(samples) // self.spec.patch_samples))
        samples = np.pad(samples, (0, patches * self.spec.patch_samples - len(samples)))
        config = self.config
        mels = spectral.log_mel(
            samples, config.sample_rate, fft_size=config.fft_size, hop=config.hop, num_mels=config.num_mels,
            padding=config.padding,
        )  # fmt: skip
        grouped = np.ascontiguousarray(mels.T).reshape(1, patches, -1, config.num_mels)
        (codes,) = self._encoder.run(None, {"mels": grouped})
        return self._by_level(np.asarray(codes[0], dtype=np.int64))

    def decode(self, codes: Sequence[NDArray[np.int64]], first: int = 0) -> Waveform:
        """The audio of whole patches: `len(codes[0]) * spec.patch_samples` samples, wherever they stand."""
        layout = self.spec.patch_layout
        if len(codes) != len(layout) or any(len(c) != n * len(codes[0]) for c, n in zip(codes, layout, strict=True)):
            raise CheckpointError(
                f"{self.spec.name} decodes levels of T x {layout} codes, not {[len(level) for level in codes]}"
            )
        if not len(codes[0]):
            return Waveform(np.zeros(0, np.float32), self.spec.sample_rate)
        patches = [level.reshape(len(codes[0]), -1) for level in codes]
        log_magnitude, phase = self._decoder.run(
            None, {"codes": np.concatenate(patches, axis=1)[None].astype(np.int64)}
        )
        magnitude = np.exp(np.minimum(log_magnitude[0], MAX_LOG_MAGNITUDE))
        spectra = (magnitude * (np.cos(phase[0]) + 1j * np.sin(phase[0]))).astype(np.complex64)
        samples = spectral.overlap_add(spectra, self.config.fft_size, self.config.hop, self.config.padding)
        return Waveform(samples, self.spec.sample_rate)

    def _by_level(self, patches: NDArray[np.int64]) -> Codes:
        """(T, P) -> one array per level."""
        edges = np.cumsum(self.spec.patch_layout)[:-1]
        return tuple(level.reshape(-1) for level in np.split(patches, edges, axis=1))
