"""What every codec promises: waveform in, codes per level out, and back.

Upstream: `audio.Waveform`.  Downstream: `mars6.patches` (codes → tokens) and whoever listens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform

Codes = tuple[NDArray[np.int64], ...]
"""One (T_level,) array of codes per level, coarse to fine; level l has `patch_layout[l]` codes per patch."""


@dataclass(frozen=True, kw_only=True)
class CodecSpec:
    """The geometry a language model must know about a codec."""

    name: str
    """Names the codec and its weights; a voice's codes are only valid for the codec of the same name."""

    sample_rate: int
    """Samples per second of the audio it reads and writes."""

    codebook_size: int
    """Entries per level (the same on all levels)."""

    hop_lengths: tuple[int, ...]
    """Samples per code on each level, coarse to fine; each divides the one before."""

    @property
    def patch_layout(self) -> tuple[int, ...]:
        """Codes of each level in one patch, e.g. (1, 2, 4)."""
        return tuple(self.hop_lengths[0] // hop for hop in self.hop_lengths)

    @property
    def patch_samples(self) -> int:
        """Samples in one patch (2048 for SNAC 24 kHz: 85.3 ms)."""
        return self.hop_lengths[0]

    @property
    def patch_rate(self) -> float:
        """Patches per second, the true one (11.72 Hz for SNAC 24 kHz, called 12)."""
        return self.sample_rate / self.hop_lengths[0]


class Codec(Protocol):
    """A neural audio codec. One waveform at a time; implementations hold no state between calls."""

    @property
    def spec(self) -> CodecSpec: ...

    @property
    def reach_patches(self) -> int:
        """How many patches after a patch have a say in its audio, and so must be known before it can be heard."""
        ...

    def encode(self, waveform: Waveform) -> Codes:
        """Codes of the waveform, padded with silence to whole patches; resampled if its rate differs."""
        ...

    def decode(self, codes: Sequence[NDArray[np.int64]], first: int = 0) -> Waveform:
        """The audio of whole patches: `len(codes[0]) * spec.patch_samples` samples.

        `first` says how many patches of the utterance came before these: what a codec draws at random belongs to a
        place in the utterance, so that windows of it fit together.
        """
        ...


class Decoding(Protocol):
    """The audio of one utterance, patch by patch from the first, as its codes become known."""

    def hear(self, codes: Sequence[NDArray[np.int64]], stop: int) -> NDArray[np.float32]:
        """The samples between where the last call stopped and patch `stop`, as they are in the audio of all codes.

        `codes` are the utterance's from its start. Those that will be known only later may be missing, if they begin
        at least `codec.reach_patches` after `stop`.
        """
        ...


@runtime_checkable
class DecodesInOrder(Protocol):
    """A codec with a way of its own to decode an utterance bit by bit."""

    def decoding(self) -> Decoding:
        """A new utterance, of which nothing has been heard."""
        ...


class WindowDecoding:
    """A `Decoding` for codecs whose patches sound the same wherever their neighbours are decoded with them.

    The neighbours that matter are as many as `reach_patches` says, on either side.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec, self._heard = codec, 0

    def hear(self, codes: Sequence[NDArray[np.int64]], stop: int) -> NDArray[np.float32]:
        spec, reach, start = self._codec.spec, self._codec.reach_patches, self._heard
        first, last = max(0, start - reach), min(len(codes[0]), stop + reach)
        window = [level[first * count : last * count] for level, count in zip(codes, spec.patch_layout, strict=True)]
        samples = self._codec.decode(window, first).samples
        self._heard = stop
        return samples[(start - first) * spec.patch_samples : (stop - first) * spec.patch_samples]


def start_decoding(codec: Codec) -> Decoding:
    """The codec's own way to decode an utterance bit by bit, or else windows of it."""
    return codec.decoding() if isinstance(codec, DecodesInOrder) else WindowDecoding(codec)


def noise_of(seed: tuple[int, ...], patch: int, size: int) -> NDArray[np.float32]:
    """(size,) normal random numbers that belong to one patch of an utterance, whatever is decoded with it."""
    return np.random.default_rng((*seed, patch)).standard_normal(size, dtype=np.float32)
