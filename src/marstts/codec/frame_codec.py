"""A codec of eight levels at one rate over the mini codec: its codes, regrouped by frame.

Upstream: a folder written by `training.codec.frame_codec`, the mini codec of a bundle.  Downstream: MARS5, which needs
one code per frame on every level; synthesis, tokenizing.
A patch of the mini codec, 1 + 2 + 4 codes, is two frames.  A frame has four of its codes: the coarse one of the patch,
one of the middle level, two fine ones.  Each is a group of four similar codes (256 groups) and a member of it:

    level 0   content: a code that follows the phones (`frame_content`); decoding does not need it
    level 1   group of the coarse code        level 5   its member
    level 2   group of the middle code        level 6   its member
    level 3   group of the first fine code    level 7   members of both fine codes
    level 4   group of the second fine code

So nothing is lost, later levels matter less, and no level is noise that residual quantization of codes would leave.
Shapes: T frames · L levels · C codes of a level of the base · W width of a frame's vector · E of one code's.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from safetensors.numpy import load

from marstts.audio import Waveform
from marstts.codec.base import CodecSpec, Codes, check_codes
from marstts.codec.frame_content import ContentClassifier
from marstts.codec.mini import MiniCodec
from marstts.errors import CheckpointError
from marstts.io.config import Config, read_config
from marstts.io.file_errors import printable_name
from marstts.io.reading import read_regular_file
from marstts.io.stored_tensors import stored_tensors

CONFIG_FILE, TENSORS_FILE = "frames.json", "frames.safetensors"

PACKAGED_CODEC = Path(__file__).parents[1] / "models_data" / "mini" / "codec"
"""The codec of the packaged model, which such codecs are made over; a bundle need not hold a copy."""

ENTRY_WIDTH = 8
"""E: the mini codec's codebooks are of this width."""

MAX_BYTES = 2**28


LAYOUT, FRAMES = (1, 2, 4), 2
"""Codes in a patch of the base on each of its levels, and frames in a patch."""

LEVELS, GROUPS, MEMBERS = 8, 256, 4
"""L, groups of codes, codes in a group."""

VECTOR_PARTS = 4
"""Codes of the base that sound in a frame."""


class FrameCodecFolder(Config):
    """`frames.json`."""

    name: str = Field(min_length=1, max_length=200)
    base: str = Field(min_length=1, max_length=200)
    """Name of the codec whose codes are regrouped."""

    content_size: int = Field(128, ge=2, le=GROUPS)
    """Codes of level 0."""

    hidden_width: int = Field(256, ge=1, le=4096)
    """H, hidden units of the network that reads the phones."""

    phones: int = Field(40, ge=2, le=1024)
    """P, phones that it classifies."""


def codes_by_frame(codes: Codes) -> NDArray[np.int64]:
    """Codes of the base, whole patches -> (T, 4): coarse, middle, first fine, second fine."""
    coarse, middle, fine = codes
    return np.column_stack((np.repeat(coarse, FRAMES), middle, fine.reshape(-1, 2)))


def codes_by_level(frames: NDArray[np.int64]) -> Codes:
    """(T, 4), whole patches -> codes of the base; the first frame of a patch has the coarse one."""
    coarse, middle, fine = frames[::FRAMES, 0], frames[:, 1], frames[:, 2:].reshape(-1)
    return tuple(np.ascontiguousarray(level) for level in (coarse, middle, fine))


def frame_vectors(frames: NDArray[np.int64], tables: NDArray[np.float32]) -> NDArray[np.float32]:
    """(T, 4) codes of the base, tables (3, C, E) -> (T, W) their embeddings, side by side."""
    return np.concatenate([tables[level][frames[:, part]] for part, level in enumerate((0, 1, 2, 2))], axis=1)


@dataclass(frozen=True, eq=False)
class FrameCodebooks:
    """`frames.safetensors`."""

    tables: NDArray[np.float32]
    """(3, C, E) embeddings of the base's codes, in a space where distances mean what they do to its decoder."""

    content: ContentClassifier
    """Level 0."""

    places: NDArray[np.int64]
    """(3, C) place of each code of the base in an order in which similar codes are neighbors: group · 4 + member."""

    def split(self, frames: NDArray[np.int64]) -> NDArray[np.int64]:
        """(T, 4) codes of the base, a whole recording -> (T, L)."""
        content = self.content.codes(frame_vectors(frames, self.tables))
        placed = [self.places[level][frames[:, part]] for part, level in enumerate((0, 1, 2, 2))]
        groups, (coarse, middle, *fine) = zip(*(divmod(place, MEMBERS) for place in placed), strict=True)
        return np.column_stack((content, *groups, coarse, middle, fine[0] * MEMBERS + fine[1]))

    def join(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(T, L) -> (T, 4) codes of the base. Members out of range are those of their remainder."""
        members = (codes[:, 5], codes[:, 6], codes[:, 7] // MEMBERS, codes[:, 7])
        inverse = np.argsort(self.places, axis=1)
        parts = [
            inverse[level][codes[:, 1 + part] * MEMBERS + members[part] % MEMBERS]
            for part, level in enumerate((0, 1, 2, 2))
        ]
        return np.column_stack(parts)


class FrameCodec:
    """A `codec.base.Codec` over the mini codec, by the files in `folder`."""

    def __init__(self, folder: Path, base: MiniCodec) -> None:
        """Raises CheckpointError where a file is malformed, or made for another codec than `base`."""
        described = read_config(FrameCodecFolder, folder / CONFIG_FILE, CheckpointError)
        if base.spec.name != described.base:
            raise CheckpointError(
                f"{printable_name(folder)}: made for the codec {described.base}, but {base.spec.name} was given"
            )
        if base.spec.patch_layout != LAYOUT or base.spec.codebook_size != GROUPS * MEMBERS:
            raise CheckpointError(
                f"{printable_name(folder)}: expected a codec with patches of {LAYOUT} codes from {GROUPS * MEMBERS}, "
                f"but {base.spec.name} has {base.spec.patch_layout} from {base.spec.codebook_size}"
            )
        self.base = base
        self._codebooks = read_codebooks(folder / TENSORS_FILE, described)
        self.spec = CodecSpec(
            name=described.name,
            sample_rate=base.spec.sample_rate,
            codebook_size=GROUPS,
            hop_lengths=(base.spec.patch_samples // FRAMES,) * LEVELS,
        )

    @property
    def lookahead_patches(self) -> int:
        """Later frames that the audio of a frame depends on."""
        return (self.base.lookahead_patches + 1) * FRAMES

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

    def with_timbre(self, embedding: NDArray[np.float32]) -> FrameCodec:
        """The same codec with its decoder conditioned on an embedding (V,)."""
        conditioned = copy.copy(self)
        conditioned.base = self.base.with_timbre(embedding)
        return conditioned

    def encode(self, waveform: Waveform) -> Codes:
        """Codes of the waveform, padded with silence to whole patches of the base."""
        codes = self._codebooks.split(codes_by_frame(self.base.encode(waveform)))
        return tuple(np.ascontiguousarray(level) for level in codes.T)

    def decode(self, codes: Sequence[NDArray[np.int64]], first: int = 0) -> Waveform:
        """The audio of whole frames: `len(codes[0]) * spec.patch_samples` samples."""
        if len(codes) != LEVELS or len({len(level) for level in codes}) > 1:
            raise CheckpointError(
                f"{self.spec.name} decodes {LEVELS} levels of equally many codes, not {[len(level) for level in codes]}"
            )
        frames = np.stack([check_codes(level, self.spec) for level in codes], axis=1)  # (T, L)
        if not len(frames):
            return Waveform(np.zeros(0, np.float32), self.spec.sample_rate)
        before = first % FRAMES
        after = -(before + len(frames)) % FRAMES
        frames = np.pad(frames, ((before, after), (0, 0)), mode="edge")
        samples = self.base.decode(codes_by_level(self._codebooks.join(frames)), first // FRAMES).samples
        size = self.spec.patch_samples
        return Waveform(samples[before * size : len(samples) - after * size], self.spec.sample_rate)


def read_codebooks(path: Path, described: FrameCodecFolder) -> FrameCodebooks:
    """The tensors of a folder; CheckpointError where they are of other shapes, no numbers, or no order of the codes."""
    stored, levels, size = stored_tensors(path), len(LAYOUT), GROUPS * MEMBERS
    content = ContentClassifier.shapes(
        VECTOR_PARTS * ENTRY_WIDTH, described.hidden_width, described.phones, described.content_size
    )
    expected = {"tables": ("F32", (levels, size, ENTRY_WIDTH)), "places": ("I64", (levels, size))}
    expected |= {name: ("F32", shape) for name, shape in content.items()}
    if {name: (tensor.dtype, tensor.shape) for name, tensor in stored.items()} != expected:
        raise CheckpointError(f"{printable_name(path)}: expected {expected}, but it holds others")
    tensors = load(read_regular_file(path, MAX_BYTES, CheckpointError))
    if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
        raise CheckpointError(f"{printable_name(path)}: expected numbers, but some are NaN or infinite")
    if (np.sort(tensors["places"], axis=1) != np.arange(size)).any():
        raise CheckpointError(
            f"{printable_name(path)}: expected every place from 0 to {size - 1} once in each row of places"
        )
    return FrameCodebooks(tensors["tables"], ContentClassifier.of_tensors(tensors), tensors["places"])


def open_frame_codec(folder: Path) -> FrameCodec:
    """The codec in a folder, over that of the packaged model."""
    return FrameCodec(folder, MiniCodec(PACKAGED_CODEC))
