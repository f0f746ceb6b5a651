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
        """How many patches on either side of a patch have a say in its audio: in a window with so many around it, a
        patch sounds as it does in the whole.
        """
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


@runtime_checkable
class DecodesWindows(Protocol):
    """A codec that decodes a window with less work than the patches around it take."""

    def decode_window(self, codes: Sequence[NDArray[np.int64]], start: int, stop: int) -> NDArray[np.float32]:
        """As the function `decode_window`."""
        ...


def decode_window(codec: Codec, codes: Sequence[NDArray[np.int64]], start: int, stop: int) -> NDArray[np.float32]:
    """The samples of patches `start` to `stop` as they are in the audio of all `codes`, without decoding all of it.

    ((stop - start) * patch_samples,). Codes that will be known only later may be missing, if they begin at least
    `codec.reach_patches` after `stop`.
    """
    if isinstance(codec, DecodesWindows):
        return codec.decode_window(codes, start, stop)
    spec, reach = codec.spec, codec.reach_patches
    first, last = max(0, start - reach), min(len(codes[0]), stop + reach)
    window = [level[first * count : last * count] for level, count in zip(codes, spec.patch_layout, strict=True)]
    samples = codec.decode(window, first).samples
    return samples[(start - first) * spec.patch_samples : (stop - first) * spec.patch_samples]
