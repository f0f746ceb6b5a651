"""The protocol of codecs: waveform in, codes per level out, and back.

Upstream: `audio.Waveform`.  Downstream: language models (codes → tokens), synthesis (codes → audio).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform
from marstts.errors import CheckpointError, VoiceError

TIMBRE = "timbre"
"""The role of the timbre embedding in a voice. Voices without one are decoded by the unconditioned decoder."""

SPEAKER_FOLDER = "speaker"
"""The sub-folder of a codec's folder for the speaker encoder that its timbre embeddings depend on, if there is one."""

Codes = tuple[NDArray[np.int64], ...]
"""One (T_level,) array of codes per level, coarse to fine; level l has `patch_layout[l]` codes per patch."""


@dataclass(frozen=True, kw_only=True)
class CodecSpec:
    """The geometry of a codec, as a language model needs it."""

    name: str
    """Name of the codec and its weights; a voice's codes are only valid for the codec of the same name."""

    sample_rate: int
    """Samples per second of the audio it encodes and decodes."""

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
        """Patches per second, exactly (11.72 Hz for SNAC 24 kHz, where the paper rounds to 12)."""
        return self.sample_rate / self.hop_lengths[0]


MAX_HOP = 2**20
"""Most samples in one patch."""

MAX_SAMPLE = 1e4
"""Largest magnitude that a codec decodes; audio is about 1, and sums of squares of more may overflow."""


def check_levels(strides: Sequence[int]) -> None:
    """Raise ValueError unless each stride divides the one before, coarse to fine."""
    if any(coarse % fine for coarse, fine in pairwise(strides)):
        raise ValueError(f"expected strides of which each divides the one before, not {list(strides)}")


def check_codes(codes: NDArray[Any], spec: CodecSpec) -> NDArray[np.int64]:
    """The codes as int64; CheckpointError where one of them is no entry of the codebook."""
    values = codes.astype(np.int64)
    if values.size and not 0 <= values.min() <= values.max() < spec.codebook_size:
        raise CheckpointError(
            f"{spec.name}: expected codes from 0 to {spec.codebook_size - 1}, but found {values.min()} to "
            f"{values.max()}; codes and codec do not fit one another"
        )
    return values


class Codec(Protocol):
    """A neural audio codec for one waveform at a time; implementations hold no state between calls."""

    @property
    def spec(self) -> CodecSpec: ...

    @property
    def lookahead_patches(self) -> int:
        """Patches after a patch that influence its audio: they must be known before it can be decoded."""
        ...

    def encode(self, waveform: Waveform) -> Codes:
        """Codes of the waveform, padded with silence to whole patches; resampled if its rate differs."""
        ...

    def decode(self, codes: Sequence[NDArray[np.int64]], first: int = 0) -> Waveform:
        """The audio of whole patches: `len(codes[0]) * spec.patch_samples` samples.

        `first`: number of patches of the utterance before these. Random numbers of a codec belong to a position in the
        utterance, so that decoded windows of it fit together.
        """
        ...


@runtime_checkable
class TimbreConditioned(Protocol):
    """A codec whose decoder can be conditioned on the timbre of a speaker."""

    @property
    def timbre_width(self) -> int:
        """Length V of its timbre embeddings; 0 = these weights have none."""
        ...

    @property
    def timbre_encoder(self) -> str:
        """Name of its timbre encoder and the weights of that; a voice's timbre embedding is only valid for the same."""
        ...

    def timbre_embedding(self, waveform: Waveform) -> NDArray[np.float32]:
        """The timbre embedding of a recording, (V,) float32; resamples if its rate differs."""
        ...

    def with_timbre(self, embedding: NDArray[np.float32]) -> Codec:
        """The same codec with its decoder conditioned on an embedding (V,); the original is unchanged."""
        ...


@runtime_checkable
class PitchedCodec(Protocol):
    """A codec that knows the F0 of what it decodes."""

    def f0(self, codes: Codes) -> NDArray[np.float32]:
        """The F0 of whole patches in hertz, (F,): evenly over their audio, interpolated where there is no voice."""
        ...


@runtime_checkable
class PhoneRecognizingCodec(Protocol):
    """A codec that comes with a recognizer of English phones."""

    @property
    def recognizes_phones(self) -> bool:
        """Whether these weights have one."""
        ...

    def phone_log_probs(self, waveform: Waveform) -> NDArray[np.float32]:
        """Log-probabilities of CTC's blank and of `text.phones.LABELS` over time, (T, 40); resamples."""
        ...


@dataclass(frozen=True, eq=False)
class TimbreEncoder:
    """The timbre encoder of a codec as a `speaker.base.SpeakerEncoder`: of the role `TIMBRE` in a voice."""

    codec: TimbreConditioned

    @property
    def name(self) -> str:
        """Name of the encoder and its weights."""
        return self.codec.timbre_encoder

    @property
    def size(self) -> int:
        """Length of the embedding."""
        return self.codec.timbre_width

    def embed(self, waveform: Waveform) -> NDArray[np.float32]:
        """The timbre embedding of a recording, (V,) float32."""
        return self.codec.timbre_embedding(waveform)


def timbre_encoders(codec: Codec) -> dict[str, TimbreEncoder]:
    """The timbre encoder of a codec by its role; empty where the decoder is not conditioned on a timbre embedding."""
    return {TIMBRE: TimbreEncoder(codec)} if isinstance(codec, TimbreConditioned) and codec.timbre_width else {}


def with_timbre(codec: Codec, embedding: NDArray[np.float32] | None) -> Codec:
    """The codec with its decoder conditioned on an embedding (V,); itself without one, or where it takes none.

    VoiceError where the embedding is of another length than the codec's.
    """
    if embedding is None or not isinstance(codec, TimbreConditioned) or not codec.timbre_width:
        return codec
    if embedding.shape != (codec.timbre_width,):
        raise VoiceError(
            f"{codec.spec.name} expects timbre embeddings of length {codec.timbre_width}, but one of shape "
            f"{embedding.shape} came; clone the reference again with this model"
        )
    return codec.with_timbre(embedding)


class Decoding(Protocol):
    """Incremental decoding of one utterance, from its first patch, as its codes become known."""

    def decode_until(self, codes: Sequence[NDArray[np.int64]], stop: int) -> NDArray[np.float32]:
        """The samples from the end of the last call to patch `stop`, as they are in the audio of all codes.

        `codes` are the utterance's from its start. Codes that are not known yet may be missing, if they start at least
        `codec.lookahead_patches` after `stop`.
        """
        ...


@runtime_checkable
class IncrementalCodec(Protocol):
    """A codec that decodes incrementally without windows."""

    def decoding(self) -> Decoding:
        """Start decoding a new utterance."""
        ...


class WindowDecoding:
    """A `Decoding` by windows, for codecs whose patches depend on `lookahead_patches` patches on either side only."""

    def __init__(self, codec: Codec) -> None:
        self._codec, self._decoded_patches = codec, 0

    def decode_until(self, codes: Sequence[NDArray[np.int64]], stop: int) -> NDArray[np.float32]:
        spec, lookahead, start = self._codec.spec, self._codec.lookahead_patches, self._decoded_patches
        first, last = max(0, start - lookahead), min(len(codes[0]), stop + lookahead)
        window = [level[first * count : last * count] for level, count in zip(codes, spec.patch_layout, strict=True)]
        samples = self._codec.decode(window, first).samples
        self._decoded_patches = stop
        return samples[(start - first) * spec.patch_samples : (stop - first) * spec.patch_samples]


def start_decoding(codec: Codec) -> Decoding:
    """The codec's incremental decoding if it has one, otherwise decoding by windows."""
    return codec.decoding() if isinstance(codec, IncrementalCodec) else WindowDecoding(codec)


def check_samples(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """The samples that a codec decoded; CheckpointError where they are NaN or far beyond audio."""
    if not np.abs(samples).max(initial=0.0) < MAX_SAMPLE:  # false for NaN, too
        raise CheckpointError("the codec decoded NaN or enormous samples; its weights are corrupt: install it again")
    return samples


def noise_of(seed: tuple[int, ...], patch: int, size: int) -> NDArray[np.float32]:
    """(size,) normal random numbers of one patch of an utterance, whichever window it is decoded in."""
    return np.random.default_rng((*seed, patch)).standard_normal(size, dtype=np.float32)
