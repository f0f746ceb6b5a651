"""A codec of levels at one rate over the codes of the mini codec: residual vector quantization of its embeddings.

Upstream: a folder written by `training.codec.residual`, the mini codec of a bundle.  Downstream: MARS5, which needs one
code per frame on every level; synthesis, tokenizing.
The mini codec's patch of 1 + 2 + 4 codes is divided into frames. A frame's vector is the embeddings of the codes that
sound in it; a code that lasts longer than a frame belongs to all of its frames. Eight levels quantize that vector, each
what the levels before have left. Decoding takes, for each code of the mini codec, the entry next to the sum of the
levels, so that the mini codec's decoder gets codes as it was trained on.
Shapes: T frames · L levels · K codebook entries · B parts of a frame's vector · E width of one part.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from safetensors.numpy import load

from marstts.audio import Waveform
from marstts.codec.base import CodecSpec, Codes, check_codes
from marstts.codec.mini import MiniCodec
from marstts.config import Config, read_config
from marstts.errors import CheckpointError
from marstts.file_errors import printable_name
from marstts.reading import read_regular_file
from marstts.stored_tensors import stored_tensors

CONFIG_FILE, TENSORS_FILE = "residual.json", "residual.safetensors"

PACKAGED_CODEC = Path(__file__).parents[1] / "models_data" / "mini" / "codec"
"""The codec of the packaged model, which such codecs are made over; a bundle need not hold a copy."""

ENTRY_WIDTH = 8
"""E: the mini codec's codebooks are of this width."""

MAX_BYTES = 2**28


class ResidualCodecFolder(Config):
    """`residual.json`."""

    name: str = Field(min_length=1, max_length=200)
    base: str = Field(min_length=1, max_length=200)
    """Name of the codec whose codes are quantized."""

    levels: int = Field(8, ge=1, le=64)
    codebook_size: int = Field(256, ge=2, le=65536)
    frames_per_patch: int = Field(2, ge=1, le=64)
    """Frames in one patch of the base codec."""


class FrameVectors:
    """The vectors of frames, made of a base codec's codes, and back.

    `tables` are the base's codebooks (levels, entries, E), in a space where distances mean what they do to its decoder.
    """

    def __init__(self, tables: NDArray[np.float32], layout: Sequence[int], frames_per_patch: int) -> None:
        self.tables, self.layout, self.frames = tables, tuple(layout), frames_per_patch

    @property
    def width(self) -> int:
        """B · E."""
        return sum(max(1, count // self.frames) for count in self.layout) * self.tables.shape[2]

    def vectors(self, codes: Codes) -> NDArray[np.float32]:
        """Codes of the base -> (T, B · E)."""
        patches = len(codes[0]) // self.layout[0]
        parts = []
        for table, level, count in zip(self.tables, codes, self.layout, strict=True):
            embedded = table[level.reshape(patches, count)]  # (patches, count, E)
            if count < self.frames:
                embedded = np.repeat(embedded, self.frames // count, axis=1)
            parts.append(embedded.reshape(patches * self.frames, -1))
        return np.concatenate(parts, axis=1)

    def codes(self, vectors: NDArray[np.float32]) -> Codes:
        """(T, B · E), whole patches -> the nearest codes of the base."""
        patches, width, start, levels = len(vectors) // self.frames, self.tables.shape[2], 0, []
        for table, count in zip(self.tables, self.layout, strict=True):
            size = max(1, count // self.frames) * width
            part = vectors[:, start : start + size]
            start += size
            if count < self.frames:
                part = part.reshape(patches * count, self.frames // count, width).mean(axis=1)
            levels.append(nearest(part.reshape(patches * count, width), table))
        return tuple(levels)


def nearest(vectors: NDArray[np.float32], entries: NDArray[np.float32]) -> NDArray[np.int64]:
    """Index of the entry (K, W) nearest to each vector (N, W): (N,)."""
    scores = vectors @ entries.T - 0.5 * np.square(entries).sum(axis=1)
    return np.asarray(scores.argmax(axis=1), dtype=np.int64)


def quantize(
    vectors: NDArray[np.float32], codebooks: NDArray[np.float32], first_weights: NDArray[np.float32]
) -> NDArray[np.int64]:
    """Vectors (T, W), codebooks (L, K, W) -> codes (T, L); the first level weights the distances by (W,)."""
    rest, codes = vectors.copy(), []
    for level, entries in enumerate(codebooks):
        weights = first_weights if level == 0 else np.float32(1)
        codes.append(nearest(rest * weights, entries * weights))
        rest = rest - entries[codes[-1]]
    return np.stack(codes, axis=1)


class ResidualCodec:
    """A `codec.base.Codec` over the mini codec, by the files in `folder`."""

    def __init__(self, folder: Path, base: MiniCodec) -> None:
        """Raises CheckpointError where a file is malformed, or made for another codec than `base`."""
        described = read_config(ResidualCodecFolder, folder / CONFIG_FILE, CheckpointError)
        if base.spec.name != described.base:
            raise CheckpointError(
                f"{printable_name(folder)}: made for the codec {described.base}, but {base.spec.name} was given"
            )
        self.base, self._frames = base, described.frames_per_patch
        tables, self._codebooks, self._first_weights = read_codebooks(folder / TENSORS_FILE, described, base.spec)
        self._vectors = FrameVectors(tables, base.spec.patch_layout, described.frames_per_patch)
        self.spec = CodecSpec(
            name=described.name,
            sample_rate=base.spec.sample_rate,
            codebook_size=described.codebook_size,
            hop_lengths=(base.spec.patch_samples // described.frames_per_patch,) * described.levels,
        )

    @property
    def lookahead_patches(self) -> int:
        """Later frames that the audio of a frame depends on."""
        return (self.base.lookahead_patches + 1) * self._frames

    @property
    def timbre_width(self) -> int:
        """See `codec.base.TimbreConditioned`: the base's, as everything about timbre."""
        return self.base.timbre_width

    @property
    def timbre_encoder(self) -> str:
        """Name of the base's timbre encoder."""
        return self.base.timbre_encoder

    def timbre_embedding(self, waveform: Waveform) -> NDArray[np.float32]:
        """The base's timbre embedding of a recording, (V,)."""
        return self.base.timbre_embedding(waveform)

    def with_timbre(self, embedding: NDArray[np.float32]) -> ResidualCodec:
        """The same codec with its decoder conditioned on an embedding (V,)."""
        conditioned = copy.copy(self)
        conditioned.base = self.base.with_timbre(embedding)
        return conditioned

    def encode(self, waveform: Waveform) -> Codes:
        """Codes of the waveform, padded with silence to whole patches of the base."""
        codes = quantize(self._vectors.vectors(self.base.encode(waveform)), self._codebooks, self._first_weights)
        return tuple(np.ascontiguousarray(level) for level in codes.T)

    def decode(self, codes: Sequence[NDArray[np.int64]], first: int = 0) -> Waveform:
        """The audio of whole frames: `len(codes[0]) * spec.patch_samples` samples."""
        if len(codes) != len(self._codebooks) or len({len(level) for level in codes}) > 1:
            raise CheckpointError(
                f"{self.spec.name} decodes {len(self._codebooks)} levels of equally many codes, not "
                f"{[len(level) for level in codes]}"
            )
        frames = np.stack([check_codes(level, self.spec) for level in codes], axis=1)  # (T, L)
        if not len(frames):
            return Waveform(np.zeros(0, np.float32), self.spec.sample_rate)
        before = first % self._frames
        after = -(before + len(frames)) % self._frames
        frames = np.pad(frames, ((before, after), (0, 0)), mode="edge")
        vectors = self._codebooks[np.arange(len(codes)), frames].sum(axis=1)
        samples = self.base.decode(self._vectors.codes(vectors), first // self._frames).samples
        size = self.spec.patch_samples
        return Waveform(samples[before * size : len(samples) - after * size], self.spec.sample_rate)


def read_codebooks(
    path: Path, described: ResidualCodecFolder, base: CodecSpec
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Tables of the base, codebooks and the first level's weights; CheckpointError where they are of other shapes."""
    frames, layout = described.frames_per_patch, base.patch_layout
    if any(max(count, frames) % min(count, frames) for count in layout):
        raise CheckpointError(f"{printable_name(path)}: patches of {layout} codes cannot be divided into {frames}")
    stored = stored_tensors(path)
    width = sum(max(1, count // frames) for count in layout) * ENTRY_WIDTH
    expected = {
        "tables": (len(layout), base.codebook_size, ENTRY_WIDTH),
        "codebooks": (described.levels, described.codebook_size, width),
        "first_weights": (width,),
    }
    if {name: (tensor.dtype, tensor.shape) for name, tensor in stored.items()} != {
        name: ("F32", shape) for name, shape in expected.items()
    }:
        raise CheckpointError(f"{printable_name(path)}: expected {expected} in single precision, but it holds others")
    tensors = load(read_regular_file(path, MAX_BYTES, CheckpointError))
    if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
        raise CheckpointError(f"{printable_name(path)}: expected numbers, but some are NaN or infinite")
    return tensors["tables"], tensors["codebooks"], tensors["first_weights"]


def open_residual(folder: Path) -> ResidualCodec:
    """The codec in a folder, over that of the packaged model."""
    return ResidualCodec(folder, MiniCodec(PACKAGED_CODEC))
