"""SNAC, the codec of the published MARS6: an adapter over the `snac` package.

Upstream: `audio.Waveform`.  Downstream: `mars6.patches`; `snac_graphs`, which makes of it what `snac_onnx` runs.
MARS6 (arXiv:2501.05787), Sec. III-B: SNAC at 24 kHz, three levels of 2048, 1024 and 512 samples per code.
Deviations: the noise that SNAC's decoder adds is drawn from a fixed seed for every patch, so that the same codes sound
the same, in windows too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts.audio import Waveform, resample
from marstts.codec.base import CodecSpec, Codes, noise_of
from marstts.config import Config, parse_config
from marstts.errors import AudioError, CheckpointError, require
from marstts.pretrained import EXTRA, find_file, find_weights, fingerprint, load_strictly, read_tensors, short_name

PUBLISHED = "hubertsiuzdak/snac_24khz"
"""The weights the published MARS6 was trained with."""

_PLACES: ContextVar[range] = ContextVar("places")
"""The patches that are being decoded, counted from the start of the utterance."""

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")


class SnacConfig(Config):
    """`config.json` beside the weights: the arguments of the `snac` package's model."""

    sampling_rate: int = Field(gt=0)
    encoder_dim: int = Field(gt=0)
    encoder_rates: tuple[int, ...]
    """Strides of the encoder; their product is the hop of the finest level."""
    latent_dim: int | None = None
    decoder_dim: int = Field(gt=0)
    decoder_rates: tuple[int, ...]
    attn_window_size: None = None
    """Local attention, which the larger SNAC models have, would tie patches to windows: it is refused."""
    codebook_size: int = Field(gt=0)
    codebook_dim: int = Field(gt=0)
    vq_strides: tuple[int, ...]
    """Encoder frames per code on each level, coarse to fine."""
    noise: bool = True
    depthwise: bool = True

    @property
    def hop_lengths(self) -> tuple[int, ...]:
        """Samples per code on each level."""
        return tuple(math.prod(self.encoder_rates) * stride for stride in self.vq_strides)

    @property
    def latent_width(self) -> int:
        """Channels between encoder and decoder."""
        return self.latent_dim or self.encoder_dim * 2 ** len(self.encoder_rates)

    @property
    def reach_patches(self) -> int:
        """As far as the decoder's convolutions carry a code, rounded up; followed from samples back to codes."""
        reach = 3.0  # the last convolution, in samples: kernels of 7 reach 3 to each side
        for rate in reversed(self.decoder_rates):
            reach = (reach + 3 * (1 + 3 + 9)) / rate + 1  # residual units of three dilations, then upsampling
        return math.ceil((reach + 3) / self.vq_strides[0])


class SnacFolder(Config):
    """`config.json` of SNAC as graphs."""

    name: str
    """Names the weights, as `SnacCodec` does."""

    model: SnacConfig

    @property
    def spec(self) -> CodecSpec:
        """The geometry of such a codec."""
        return CodecSpec(
            name=self.name,
            sample_rate=self.model.sampling_rate,
            codebook_size=self.model.codebook_size,
            hop_lengths=self.model.hop_lengths,
        )


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
        self.spec = SnacFolder(name=short_name("snac", fingerprint(weights, sha256)), model=config).spec
        self.reach_patches = config.reach_patches
        self._seed = seed
        self._device = self._torch.device(device)
        with self._own_randomness():  # the random start is overwritten
            self._model = snac.SNAC(**config.model_dump()).eval()
        load_strictly(self._model, read_tensors(weights), weights)
        self._model.to(self._device)
        self._place_noise()

    def encode(self, waveform: Waveform) -> Codes:
        """Codes of the waveform, padded with silence to whole patches; resampled if its rate differs."""
        return self.encode_batch([waveform])[0]

    def encode_batch(self, waveforms: Sequence[Waveform]) -> list[Codes]:
        """As `encode` of each. Those of equally many patches go through the network together; none is padded further,
        for its last codes would hear the padding.
        """
        padded = [whole_patches(waveform, self.spec) for waveform in waveforms]
        codes: list[Codes] = [()] * len(padded)
        for length in sorted({len(samples) for samples in padded}):
            rows = [row for row, samples in enumerate(padded) if len(samples) == length]
            with self._torch.inference_mode():
                audio = self._torch.from_numpy(np.stack([padded[row] for row in rows])).to(self._device)
                levels = [level.cpu().numpy().astype(np.int64) for level in self._model.encode(audio.unsqueeze(1))]
            for place, row in enumerate(rows):
                codes[row] = tuple(level[place] for level in levels)
        return codes

    def decode(self, codes: Sequence[NDArray[np.int64]], first: int = 0) -> Waveform:
        """The audio of whole patches, `first` of the utterance's before them: `len(codes[0]) * spec.patch_samples`
        samples.
        """
        if len(codes[0]) == 0:
            return Waveform(np.zeros(0, np.float32), self.spec.sample_rate)
        places = _PLACES.set(range(first, first + len(codes[0])))
        try:
            with self._torch.inference_mode():
                batch = [self._torch.from_numpy(np.asarray(level, np.int64)).to(self._device)[None] for level in codes]
                samples = self._model.decode(batch)[0, 0]
        finally:
            _PLACES.reset(places)
        return Waveform(samples.float().cpu().numpy(), self.spec.sample_rate)

    def _place_noise(self) -> None:
        """Let every noise block of the decoder draw what belongs to the patches that are being decoded."""
        from snac.layers import NoiseBlock

        blocks = [block for block in self._model.decoder.modules() if isinstance(block, NoiseBlock)]
        for index, block in enumerate(blocks):
            block.forward = partial(self._with_noise, block.linear, (self._seed, index))

    def _with_noise(self, linear: Any, seed: tuple[int, int], x: Any) -> Any:
        """x (1, C, T) -> x with noise as loud as `linear` says, as in `snac.layers.NoiseBlock`."""
        places = _PLACES.get()
        noise = np.stack([noise_of(seed, patch, x.shape[2] // len(places)) for patch in places]).reshape(1, 1, -1)
        return x + self._torch.from_numpy(noise).to(x) * linear(x)

    @contextmanager
    def _own_randomness(self) -> Iterator[None]:
        """Inside, PyTorch draws on this device from the codec's seed; outside, as if nothing had happened."""
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
    """A `config.json` as it lies beside published weights; CheckpointError or ConfigError where it is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: expected SNAC's configuration as JSON, but {error}") from error
    return parse_config(SnacConfig, values, str(path))
