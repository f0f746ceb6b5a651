"""The mini codec, ready to run: ONNX graphs, a source of sound and an inverse STFT in NumPy, no PyTorch.

Upstream: a folder written by `export_mini_codec` (training side).  Downstream: synthesis, tokenising.
The network is described and trained in `codec.mini_model`; its geometry is SNAC 24 kHz's (2048, 1024 and 512
samples per code), so that every patch of seven tokens lasts 85.3 ms.
Shapes: T patches · F spectral frames · N samples.
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
from marstts.codec.base import CodecSpec, Codes, noise_of
from marstts.codec.harmonics import count_cycles, pulse_train, spread
from marstts.config import Config, read_config
from marstts.errors import CheckpointError
from marstts.onnx_session import open_session

MAX_LOG_GAIN = 5.0
"""Bounds what the filters can ask for; pulses at 120 Hz and full scale have log-magnitude 3.6 by themselves."""

LOWEST_PITCH, MIDDLE_PITCH, HIGHEST_PITCH = 50.0, 140.0, 600.0
"""Hertz. Pitch is foretold in octaves about the middle one, and kept within the others."""

KERNEL = 7
"""Latents or frames that each convolution over time spans, the one from latents to pitch included."""

PITCH_AHEAD = 1
"""Of a kernel's places this many lie in the future where pitch is foretold: it is known mostly by what went before, and
what must be waited for delays a stream."""


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
    pitch_width: int = 128
    pitch_dilations: tuple[int, ...] = (1, 2, 4, 1, 2, 4)
    """One ConvNeXt block at 46.875 Hz each."""

    @property
    def hop_lengths(self) -> tuple[int, ...]:
        """Samples per code on each level."""
        return tuple(2 * self.hop * stride for stride in self.strides)

    @property
    def padding(self) -> int:
        """Samples of padding that make N samples exactly N / hop frames."""
        return (self.fft_size - self.hop) // 2

    @property
    def filters_reach(self) -> int:
        """Latents on either side that have a say in the filters of one, in the decoder's fast half."""
        return math.ceil((KERNEL // 2) * self.decoder_blocks[1] / 2)

    @property
    def decoder_reach(self) -> int:
        """Patches on either side that have a say in the filters that a patch is heard through, overlap included."""
        slow = (KERNEL // 2) * (1 + self.decoder_blocks[0])
        overlap = math.ceil(self.fft_size / self.hop / 4)
        return math.ceil((slow + self.filters_reach + overlap) / self.strides[0])

    @property
    def pitch_reach(self) -> tuple[int, int]:
        """Patches before and after that have a say in the pitch that a patch's pulses follow, overlap included."""
        spared = math.ceil((self.fft_size / self.hop + 1) / 2)
        places = sum((1, *self.pitch_dilations))
        back, ahead = (KERNEL - 1 - PITCH_AHEAD) * places + spared, PITCH_AHEAD * places + spared
        return math.ceil(back / self.strides[0]), math.ceil(ahead / self.strides[0])

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
        self._filters = open_session(folder / "filters.onnx", threads)
        self._pitch = open_session(folder / "pitch.onnx", threads)

    @property
    def reach_patches(self) -> int:
        """As far ahead as filters or pitch of a patch depend on codes."""
        return max(self.config.decoder_reach, self.config.pitch_reach[1])

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
        """The audio of whole patches: `len(codes[0]) * spec.patch_samples` samples.

        `first` chooses the noise of breath and hiss; the pulses of the voice begin anew at the first patch given.
        """
        return Waveform(MiniDecoding(self, first).hear(codes, len(codes[0])), self.spec.sample_rate)

    def decoding(self) -> MiniDecoding:
        """A new utterance, of which nothing has been heard; `codec.base.DecodesInOrder`."""
        return MiniDecoding(self)

    def pitch(self, patches: NDArray[np.int64]) -> NDArray[np.float32]:
        """Codes (T, P) -> Hertz (F,), in unvoiced frames what lies between voiced ones."""
        (hertz,) = self._pitch.run(None, {"codes": patches[None]})
        return np.asarray(hertz[0])

    def filters(self, patches: NDArray[np.int64], first: int, last: int) -> list[NDArray[np.float32]]:
        """Codes (T, P) -> for patches `first` to `last` of them, (bins, F) each: gains of pulses and of noise
        (logarithms), and the pulses' shift in phase."""
        per_patch, reach = self.config.strides[0], self.config.filters_reach
        (hidden,) = self._decoder.run(None, {"codes": patches[None]})
        begin, end = max(0, first * per_patch - reach), min(hidden.shape[1], last * per_patch + reach)
        frames = slice(2 * (first * per_patch - begin), 2 * (last * per_patch - begin))
        return [each[0, :, frames] for each in self._filters.run(None, {"hidden": hidden[:, begin:end]})]

    def shape(
        self, filters: Sequence[NDArray[np.float32]], pulses: NDArray[np.float32], noise: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """What is heard, (N,), of pulses and noise, (N,) each."""
        config, (pulse_gain, noise_gain, shift) = self.config, filters
        spectra = self._spectra(pulses) * (np.cos(shift) + 1j * np.sin(shift))
        spectra *= np.exp(np.minimum(pulse_gain, MAX_LOG_GAIN))
        spectra += self._spectra(noise) * np.exp(np.minimum(noise_gain, MAX_LOG_GAIN))
        return spectral.overlap_add(spectra.astype(np.complex64), config.fft_size, config.hop, config.padding)

    def patches(self, codes: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """One array per level -> (T, P), levels side by side; CheckpointError where their lengths do not fit."""
        layout = self.spec.patch_layout
        if len(codes) != len(layout) or any(len(c) != n * len(codes[0]) for c, n in zip(codes, layout, strict=True)):
            raise CheckpointError(
                f"{self.spec.name} decodes levels of T x {layout} codes, not {[len(level) for level in codes]}"
            )
        return np.concatenate([level.reshape(len(codes[0]), -1) for level in codes], axis=1).astype(np.int64)

    def _spectra(self, samples: NDArray[np.float32]) -> NDArray[np.complex64]:
        """(N,) -> (fft_size / 2 + 1, F), silence around it."""
        config = self.config
        padded = np.pad(samples, config.padding)
        frames = np.lib.stride_tricks.sliding_window_view(padded, config.fft_size)[:: config.hop]
        return np.fft.rfft(frames * spectral.hann(config.fft_size), axis=-1).T.astype(np.complex64)

    def _by_level(self, patches: NDArray[np.int64]) -> Codes:
        """(T, P) -> one array per level."""
        edges = np.cumsum(self.spec.patch_layout)[:-1]
        return tuple(level.reshape(-1) for level in np.split(patches, edges, axis=1))


class MiniDecoding:
    """A `codec.base.Decoding`: knows how many cycles the voice has gone through where it stopped.

    So pulses go on where they stopped, though pitch is foretold anew for every window, from its surroundings.
    """

    def __init__(self, codec: MiniCodec, first: int = 0) -> None:
        self._codec, self._first = codec, first
        self._heard = 0
        self._cycles = 0.0
        """At the start of the last patch before `_heard`, whose end the next window hears, too."""

    def hear(self, codes: Sequence[NDArray[np.int64]], stop: int) -> NDArray[np.float32]:
        """The samples between where the last call stopped and patch `stop`."""
        codec, config, size = self._codec, self._codec.config, self._codec.spec.patch_samples
        start = self._heard
        if stop == start:
            return np.zeros(0, np.float32)
        patches = codec.patches(codes)
        begin, end = max(0, start - config.decoder_reach), min(len(patches), stop + config.decoder_reach)
        first, last = max(0, start - 1), min(len(patches), stop + 1)  # whose frames reach into what is asked for
        filters = codec.filters(patches[begin:end], first - begin, last - begin)
        noise = np.concatenate([noise_of((0,), self._first + patch, size) for patch in range(first, last)])
        samples = codec.shape(filters, self._pulses(patches, first, last, stop), noise)
        self._heard = stop
        return samples[(start - first) * size : (stop - first) * size]

    def _pulses(self, patches: NDArray[np.int64], first: int, last: int, stop: int) -> NDArray[np.float32]:
        """The pulses of patches `first` to `last`, going on from the last call's; the next will begin at `stop` - 1."""
        size, rate = self._codec.spec.patch_samples, self._codec.spec.sample_rate
        back, ahead = self._codec.config.pitch_reach
        known_from = max(0, first - back)
        hertz = spread(self._codec.pitch(patches[known_from : stop + ahead]), self._codec.config.hop)
        hertz = hertz[(first - known_from) * size : (last - known_from) * size]
        cycles = count_cycles(hertz, rate, self._cycles)
        if stop - 1 > first:
            self._cycles = float(cycles[(stop - 1 - first) * size - 1])
        return pulse_train(hertz, cycles, rate)
