"""SNAC, the codec of the published MARS6: an adapter over the `snac` package.

Upstream: `audio.Waveform`.  Downstream: language models.
MARS6 (arXiv:2501.05787), Sec. III-B: SNAC at 24 kHz, three levels of 2048, 1024 and 512 samples per code.
Deviations: the noise that SNAC's decoder adds is drawn from a fixed seed for every patch, so that the same codes give
the same audio, in windows too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from marstts.audio import Waveform, resample
from marstts.codec.base import MAX_HOP, CodecSpec, Codes, check_levels, noise_of
from marstts.errors import AudioError, CheckpointError, require
from marstts.io.config import Config, read_config
from marstts.weights.pretrained import (
    EXTRA,
    find_file,
    find_weights,
    fingerprint,
    load_strictly,
    read_tensors,
    short_name,
)

PUBLISHED = "hubertsiuzdak/snac_24khz"
"""The weights the published MARS6 was trained with."""

_PATCHES: ContextVar[range] = ContextVar("patches")
"""Numbers, within the utterance, of the patches that are being decoded."""

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")


Factor = Annotated[int, Field(ge=1, le=256)]
Factors = Annotated[tuple[Factor, ...], Field(min_length=1, max_length=16)]
"""Strides of consecutive layers or levels."""


class SnacConfig(Config):
    """`config.json` next to the weights: the arguments of the `snac` package's model."""

    sampling_rate: int = Field(gt=0, le=192_000)
    encoder_dim: int = Field(gt=0, le=4096)
    encoder_rates: Factors
    """Strides of the encoder; their product is the hop of the finest level."""
    latent_dim: int | None = Field(None, gt=0, le=65_536)
    decoder_dim: int = Field(gt=0, le=65_536)
    decoder_rates: Factors
    attn_window_size: None = None
    """Local attention, which the larger SNAC models have, would make patches depend on windows: it is refused."""
    codebook_size: int = Field(gt=0, le=65_536)
    codebook_dim: int = Field(gt=0, le=4096)
    vq_strides: Factors
    """Encoder frames per code on each level, coarse to fine."""
    noise: bool = True
    depthwise: bool = True

    @model_validator(mode="after")
    def _levels_nest(self) -> SnacConfig:
        check_levels(self.vq_strides)
        if math.prod(self.encoder_rates) != math.prod(self.decoder_rates):
            raise ValueError(f"encoder_rates {self.encoder_rates} and decoder_rates {self.decoder_rates} differ")
        if self.hop_lengths[0] > MAX_HOP:
            raise ValueError(f"a patch has {self.hop_lengths[0]} samples, but at most {MAX_HOP} are supported")
        return self

    @property
    def hop_lengths(self) -> tuple[int, ...]:
        """Samples per code on each level."""
        return tuple(math.prod(self.encoder_rates) * stride for stride in self.vq_strides)

    @property
    def lookahead_patches(self) -> int:
        """Receptive field of the decoder on one side, rounded up; followed from samples back to codes."""
        field = 3.0  # the last convolution, in samples: kernels of 7 see 3 on each side
        for rate in reversed(self.decoder_rates):
            field = (field + 3 * (1 + 3 + 9)) / rate + 1  # residual units of three dilations, then upsampling
        return math.ceil((field + 3) / self.vq_strides[0])


class SnacCodec:
    """A `codec.base.Codec`: SNAC with the weights of `source`: a file, a folder or a name on the hub.

    `sha256` refuses any other weights; `seed` is that of the decoder's noise; `device` is PyTorch's name for one.
    Raises MissingExtraError without the packages, CheckpointError where the weights are missing or do not fit.
    """

    def __init__(
        self, source: Path | str = PUBLISHED, *, sha256: str | None = None, seed: int = 0, device: str = "cpu"
    ) -> None:
        self._torch = require("torch", EXTRA)
        snac = require("snac", EXTRA)
        config = read_snac_config(find_file(source, ["config.json"]))
        weights = find_weights(source, WEIGHT_FILES)
        self.spec = CodecSpec(
            name=short_name("snac", fingerprint(weights, sha256)),
            sample_rate=config.sampling_rate,
            codebook_size=config.codebook_size,
            hop_lengths=config.hop_lengths,
        )
        self.lookahead_patches = config.lookahead_patches
        self._seed = seed
        self._device = self._torch.device(device)
        with self._seeded():  # the random initialization is overwritten
            self._model = snac.SNAC(**config.model_dump()).eval()
        load_strictly(self._model, read_tensors(weights), weights)
        self._model.to(self._device)
        self._place_noise()

    def encode(self, waveform: Waveform) -> Codes:
        """Codes of the waveform, padded with silence to whole patches; resampled if its rate differs."""
        return self.encode_batch([waveform])[0]

    def encode_batch(self, waveforms: Sequence[Waveform]) -> list[Codes]:
        """Codes of each waveform. Waveforms of equally many patches form one batch.

        None is padded further, since the padding would change its last codes.
        """
        padded = [whole_patches(waveform, self.spec) for waveform in waveforms]
        codes: list[Codes] = [()] * len(padded)
        for length in sorted({len(samples) for samples in padded}):
            rows = [row for row, samples in enumerate(padded) if len(samples) == length]
            with self._torch.inference_mode():
                audio = self._torch.from_numpy(np.stack([padded[row] for row in rows])).to(self._device)
                levels = [level.cpu().numpy().astype(np.int64) for level in self._model.encode(audio.unsqueeze(1))]
            for index, row in enumerate(rows):
                codes[row] = tuple(level[index] for level in levels)
        return codes

    def decode(self, codes: Sequence[NDArray[np.int64]], first: int = 0) -> Waveform:
        """The audio of whole patches, `len(codes[0]) * spec.patch_samples` samples; `first` as in `base.Codec`."""
        if len(codes[0]) == 0:
            return Waveform(np.zeros(0, np.float32), self.spec.sample_rate)
        token = _PATCHES.set(range(first, first + len(codes[0])))
        try:
            with self._torch.inference_mode():
                batch = [self._torch.from_numpy(np.asarray(level, np.int64)).to(self._device)[None] for level in codes]
                samples = self._model.decode(batch)[0, 0]
        finally:
            _PATCHES.reset(token)
        return Waveform(samples.float().cpu().numpy(), self.spec.sample_rate)

    def _place_noise(self) -> None:
        """Replace the decoder's noise blocks, so that noise belongs to the patches that are being decoded."""
        from snac.layers import NoiseBlock

        blocks = [block for block in self._model.decoder.modules() if isinstance(block, NoiseBlock)]
        for index, block in enumerate(blocks):
            block.forward = partial(self._with_noise, block.linear, (self._seed, index))

    def _with_noise(self, linear: Any, seed: tuple[int, int], x: Any) -> Any:
        """x (1, C, T) -> x with noise scaled by `linear`, as in `snac.layers.NoiseBlock`."""
        patches = _PATCHES.get()
        noise = np.stack([noise_of(seed, patch, x.shape[2] // len(patches)) for patch in patches]).reshape(1, 1, -1)
        return x + self._torch.from_numpy(noise).to(x) * linear(x)

    @contextmanager
    def _seeded(self) -> Iterator[None]:
        """Seed PyTorch's generator of this device within the context, and restore its state afterward."""
        torch, on_cpu = self._torch, self._device.type == "cpu"
        with torch.random.fork_rng(devices=[] if on_cpu else [self._device]):
            (torch.default_generator.manual_seed if on_cpu else torch.cuda.manual_seed)(self._seed)
            yield


def whole_patches(waveform: Waveform, spec: CodecSpec) -> NDArray[np.float32]:
    """(N,) samples at the codec's rate, padded with silence to whole patches."""
    samples = resample(waveform, spec.sample_rate).samples
    if len(samples) == 0:
        raise AudioError("SNAC was given no samples to encode")
    return np.pad(samples, (0, -len(samples) % spec.patch_samples))


def read_snac_config(path: Path) -> SnacConfig:
    """The `config.json` of published weights; CheckpointError where it is something else."""
    return read_config(SnacConfig, path, CheckpointError)
