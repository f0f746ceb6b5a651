"""A voice: all the synthesizer knows of a speaker, as one value and one file.

Upstream: `synthesis.clone`, which makes it from a reference.  Downstream: `mars6.prompt`, which speaks with it.

The file is safetensors: tensors `identity`, `style` and, for a deep clone, `codes.0`, `codes.1`, … (coarse to fine);
one metadata entry `marstts_voice` with the rest as JSON (one entry, so that equal voices make equal files). It holds
numbers and words only, nothing that runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import Field

from marstts.codec.base import Codes
from marstts.config import Config, parse_config
from marstts.errors import ConfigError, VoiceError

FORMAT_VERSION = 1
METADATA_KEY = "marstts_voice"

MAX_FILE_BYTES = 16 * 2**20
"""A voice is some kilobytes; a quarter of an hour of prefix codes stays below one megabyte."""

MAX_CODE = 2**20
"""No codebook is larger than this."""

MAX_LEVELS = 32
MAX_EMBEDDING_SIZE = 2**16


@dataclass(frozen=True, eq=False)
class Prefix:
    """What makes a clone deep: the reference's words and codes, which the model continues from."""

    transcript: str
    """The words spoken in the reference."""

    codes: Codes
    """Per level (T * layout[level],) int64, coarse to fine; at least one whole patch."""

    def __post_init__(self) -> None:
        if not self.transcript.strip():
            raise VoiceError("a prefix needs the words spoken in the reference, but the transcript is empty")
        if not 1 <= len(self.codes) <= MAX_LEVELS:
            raise VoiceError(f"a prefix has codes on 1 to {MAX_LEVELS} levels, but {len(self.codes)} came")
        for level, codes in enumerate(self.codes):
            _check_codes(level, codes, num_patches=len(self.codes[0]))


@dataclass(frozen=True, eq=False)
class Voice:
    """A speaker's embeddings, perhaps a prefix, and where they came from."""

    name: str
    """What people call this voice."""

    identity: NDArray[np.float32]
    """(E1,) speaker-verification embedding."""

    style: NDArray[np.float32]
    """(E2,) style embedding."""

    prefix: Prefix | None
    """Present in a deep clone, absent in a shallow one."""

    codec: str
    """Name of the codec that made the prefix codes."""

    identity_encoder: str
    """Name of the encoder that made `identity`."""

    style_encoder: str
    """Name of the encoder that made `style`."""

    source_sha256: str
    """Hash of the reference recording, so that a voice can be traced to its source."""

    consent: str
    """Who agreed to this voice being cloned, and how; empty if nobody said."""

    def __post_init__(self) -> None:
        _check_embedding("identity", self.identity)
        _check_embedding("style", self.style)

    def without_prefix(self) -> Voice:
        """The shallow clone of the same speaker."""
        return replace(self, prefix=None)

    def check_fits(self, codec: str, identity_encoder: str, style_encoder: str) -> None:
        """Raise VoiceError if this voice was made for a model with other encoders, or its codes by another codec."""
        pairs = [
            ("identity encoder", self.identity_encoder, identity_encoder),
            ("style encoder", self.style_encoder, style_encoder),
        ]
        if self.prefix is not None:
            pairs.append(("codec", self.codec, codec))
        for part, made_with, needed in pairs:
            if made_with != needed:
                raise VoiceError(
                    f"voice {self.name!r} was made with the {part} {made_with!r}, but this model needs {needed!r};"
                    " clone the reference again with this model"
                )

    def save(self, path: Path | str) -> None:
        """Write one safetensors file; equal voices make equal files."""
        try:
            Path(path).write_bytes(self.to_bytes())
        except OSError as error:
            raise VoiceError(f"{path}: the voice cannot be written: {error.strerror or error}") from error

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        tensors: dict[str, NDArray[Any]] = {"identity": self.identity, "style": self.style}
        if self.prefix is not None:
            tensors |= {f"codes.{level}": codes for level, codes in enumerate(self.prefix.codes)}
        return safetensors.numpy.save(
            {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()},
            {METADATA_KEY: self._metadata().model_dump_json()},
        )

    @staticmethod
    def load(path: Path | str) -> Voice:
        """Read what `save` wrote; anything else raises VoiceError with one sentence."""
        header, tensors = _read_file(Path(path))
        metadata = _parse_metadata(str(path), header)
        try:
            return _assemble(metadata, tensors)
        except VoiceError as error:
            raise VoiceError(f"{path}: {error}") from error

    def _metadata(self) -> VoiceMetadata:
        return VoiceMetadata(
            format_version=FORMAT_VERSION,
            name=self.name,
            transcript=None if self.prefix is None else self.prefix.transcript,
            codec=self.codec,
            identity_encoder=self.identity_encoder,
            style_encoder=self.style_encoder,
            source_sha256=self.source_sha256,
            consent=self.consent,
        )


class VoiceMetadata(Config):
    """The words in a voice file; the numbers are its tensors."""

    format_version: int = Field(ge=1)
    name: str
    transcript: str | None
    codec: str
    identity_encoder: str
    style_encoder: str
    source_sha256: str
    consent: str


def _check_embedding(name: str, values: NDArray[np.float32]) -> None:
    if values.dtype != np.float32 or values.ndim != 1 or not 1 <= len(values) <= MAX_EMBEDDING_SIZE:
        raise VoiceError(
            f"the {name} embedding of a voice is one row of float32, not {values.dtype} of shape {values.shape}"
        )
    if not np.isfinite(values).all():
        raise VoiceError(f"the {name} embedding of a voice holds NaN or infinite values")


def _check_codes(level: int, codes: NDArray[np.int64], num_patches: int) -> None:
    if codes.dtype != np.int64 or codes.ndim != 1:
        raise VoiceError(f"codes of level {level} are one row of int64, not {codes.dtype} of shape {codes.shape}")
    if num_patches == 0 or len(codes) == 0 or len(codes) % num_patches:
        raise VoiceError(f"codes of level {level} must fill whole patches, but {len(codes)} for {num_patches} came")
    if codes.min() < 0 or codes.max() >= MAX_CODE:
        raise VoiceError(f"codes of level {level} lie between {codes.min()} and {codes.max()}, outside any codebook")


def _read_file(path: Path) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    """Metadata and tensors of a safetensors file, whatever they are."""
    try:
        size = path.stat().st_size
        if path.is_dir() or size > MAX_FILE_BYTES:
            raise VoiceError(f"{path}: expected a voice file, but this is a folder or far larger than any voice")
        content = path.read_bytes()
        with safetensors.safe_open(str(path), framework="np") as file:
            header = file.metadata() or {}
        return header, safetensors.numpy.load(content)
    except FileNotFoundError as error:
        raise VoiceError(f"{path}: no such voice file") from error
    except OSError as error:
        raise VoiceError(f"{path}: the voice cannot be read: {error.strerror or error}") from error
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError) as error:
        raise VoiceError(f"{path}: expected a voice file, but it is damaged, cut short or something else") from error


def _parse_metadata(source: str, header: dict[str, str]) -> VoiceMetadata:
    if METADATA_KEY not in header:
        raise VoiceError(f"{source}: a safetensors file, but not a voice; make one with `marstts voice create`")
    try:
        values = json.loads(header[METADATA_KEY])
        version = values.get("format_version")
    except (json.JSONDecodeError, AttributeError) as error:
        raise VoiceError(f"{source}: the description inside this voice file is damaged") from error
    if version != FORMAT_VERSION:
        raise VoiceError(
            f"{source}: voice format {version!r}, but this marstts reads format {FORMAT_VERSION};"
            " update it, or clone the reference again"
        )
    try:
        return parse_config(VoiceMetadata, values, source)
    except ConfigError as error:
        raise VoiceError(str(error)) from error


def _assemble(metadata: VoiceMetadata, tensors: dict[str, NDArray[Any]]) -> Voice:
    """Tensors and words as a Voice; raises VoiceError unless exactly the expected tensors are there."""
    num_levels = sum(name.startswith("codes.") for name in tensors)
    levels = [f"codes.{level}" for level in range(num_levels)]
    if set(tensors) != {"identity", "style", *levels}:
        raise VoiceError(f"expected the tensors identity, style and codes.0, …, but it holds {sorted(tensors)}")
    if (metadata.transcript is None) != (num_levels == 0):
        raise VoiceError("a deep voice has both a transcript and codes, but this file has only one of them")
    prefix = None
    if metadata.transcript is not None:
        prefix = Prefix(metadata.transcript, tuple(tensors[name] for name in levels))
    return Voice(
        name=metadata.name,
        identity=tensors["identity"],
        style=tensors["style"],
        prefix=prefix,
        codec=metadata.codec,
        identity_encoder=metadata.identity_encoder,
        style_encoder=metadata.style_encoder,
        source_sha256=metadata.source_sha256,
        consent=metadata.consent,
    )
