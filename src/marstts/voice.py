"""A voice: all that the synthesizer knows about a speaker, as one value and one file.

Upstream: `synthesis.clone`, which makes it from a reference.  Downstream: a model's prompt.

The file is safetensors. It has a tensor `embedding.ROLE` for each speaker encoder. A deep clone also has `codes.0`,
`codes.1`, … (coarse to fine). `reference` has the bytes of the compressed reference recording, if it is kept. One
metadata entry, `marstts_voice`, has the rest as JSON (one entry, so that equal voices make equal files). Nothing in the
file is executable.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import Field

from marstts.codec.base import Codes
from marstts.errors import VoiceError
from marstts.io.config import Config, parse_config
from marstts.io.files import write_file
from marstts.io.reading import printable_name, read_regular_file

FORMAT_VERSION = 2
METADATA_KEY = "marstts_voice"

MAX_FILE_BYTES = 16 * 2**20
"""A voice is some kilobytes; a quarter of an hour of prefix codes stays below one megabyte."""

MAX_CODE = 2**20
"""Largest size of a codebook."""

MAX_REFERENCE_BYTES = 8 * 2**20
MAX_TRANSCRIPT = 4000
"""Characters; a minute of speech has about a thousand."""

MAX_MODEL = 300
"""Characters of a model's name and revision."""

STYLE = "style"
"""Role of the embedding of how somebody speaks; that of MARS6's second speaker encoder."""

ROLE = re.compile(r"[a-z][a-z0-9_]{0,31}")

MAX_LEVELS = 32
MAX_EMBEDDING_SIZE = 2**16


@dataclass(frozen=True, eq=False)
class Prefix:
    """The prefix of a deep clone, which the model continues from: codes of the reference, and their transcript."""

    transcript: str
    """The words spoken in the reference."""

    codes: Codes
    """Per level (T * layout[level],) int64, coarse to fine; at least one whole patch."""

    def __post_init__(self) -> None:
        if not self.transcript.strip():
            raise VoiceError("a prefix needs the words spoken in the reference, but the transcript is empty")
        if not 1 <= len(self.codes) <= MAX_LEVELS:
            raise VoiceError(f"a prefix has codes on 1 to {MAX_LEVELS} levels, but this one on {len(self.codes)}")
        for level, codes in enumerate(self.codes):
            _check_codes(level, codes, num_patches=len(self.codes[0]))


@dataclass(frozen=True, eq=False)
class Voice:
    """A speaker's embeddings, perhaps a prefix, and the names of what made them."""

    name: str
    """Display name."""

    embeddings: Mapping[str, NDArray[np.float32]]
    """Embeddings by role, (E,) each. MARS6 has two: "identity" (speaker verification) and "style"."""

    prefix: Prefix | None
    """Present in a deep clone, absent in a shallow one."""

    codec: str
    """Name of the codec that made the prefix codes."""

    encoders: Mapping[str, str]
    """Names of the encoders that made the embeddings, by role."""

    source_sha256: str
    """Hash of the reference recording, so that a voice can be traced to its source."""

    consent: str
    """Permission to clone this voice: from whom, and how; empty if unknown."""

    reference: bytes = field(default=b"", repr=False)
    """The reference recording as an audio file, so that another model can clone it again; empty if it is not kept."""

    reference_transcript: str = ""
    """The words of `reference` if the prefix is a part of it; empty if they are the same as those of the prefix."""

    model: str = ""
    """`NAME@REVISION` of the model that cloned it; empty if unknown. Any model with these encoders speaks in it."""

    def __post_init__(self) -> None:
        if set(self.embeddings) != set(self.encoders):
            raise VoiceError(
                f"a voice has one encoder for each embedding, but it has embeddings {sorted(self.embeddings)} and "
                f"encoders {sorted(self.encoders)}"
            )
        for role, values in self.embeddings.items():
            if not ROLE.fullmatch(role):
                raise VoiceError(f"the role of an embedding is a short lower-case word, not {role[:40]!r}")
            _check_embedding(role, values)
        if len(self.reference) > MAX_REFERENCE_BYTES:
            raise VoiceError(f"the reference kept in a voice has at most {MAX_REFERENCE_BYTES} bytes")
        transcripts = (self.reference_transcript, "" if self.prefix is None else self.prefix.transcript)
        if max(map(len, transcripts)) > MAX_TRANSCRIPT:
            raise VoiceError(f"the transcript of a voice has at most {MAX_TRANSCRIPT} characters")

    def __eq__(self, other: object) -> bool:
        """Voices are equal by content."""
        return self.to_bytes() == other.to_bytes() if isinstance(other, Voice) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    def __repr__(self) -> str:
        kind = "shallow" if self.prefix is None else f"deep, {len(self.prefix.codes[0])} patches of prefix"
        return f"Voice({self.name!r}, {kind}, encoders {', '.join(self.encoders.values())})"

    def without_prefix(self) -> Voice:
        """The shallow clone of the same speaker."""
        return replace(self, prefix=None)

    def check_fits(self, codec: str, encoders: Mapping[str, str]) -> None:
        """Raise VoiceError if this voice was made for a model with other encoders, or its codes by another codec.

        `encoders` are names by role.
        """
        pairs = [(f"{role} encoder", self.encoders.get(role, "none"), name) for role, name in encoders.items()]
        if self.prefix is not None:
            pairs.append(("codec", self.codec, codec))
        for part, made_with, needed in pairs:
            if made_with != needed:
                raise VoiceError(
                    f"voice {self.name!r} was made with the {part} {made_with!r}, but this model needs {needed!r};"
                    " clone the recording again with this model:"
                    " marstts voice create RECORDING --model MODEL --name NAME --output NAME.voice"
                )

    def save(self, path: Path | str) -> None:
        """Write one safetensors file; equal voices make equal files."""
        write_file(path, self.to_bytes(), VoiceError)

    def to_bytes(self) -> bytes:
        """Serialize as `save` does."""
        tensors: dict[str, NDArray[Any]] = {f"embedding.{role}": values for role, values in self.embeddings.items()}
        if self.prefix is not None:
            tensors |= {f"codes.{level}": codes for level, codes in enumerate(self.prefix.codes)}
        if self.reference:
            tensors["reference"] = np.frombuffer(self.reference, np.uint8)
        return safetensors.numpy.save(
            {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()},
            {METADATA_KEY: self._metadata().model_dump_json(exclude_defaults=True)},
        )

    @staticmethod
    def load(path: Path | str) -> Voice:
        """Read a file that `save` wrote; raises VoiceError for any other file."""
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
            encoders=dict(sorted(self.encoders.items())),
            source_sha256=self.source_sha256,
            consent=self.consent,
            reference_transcript=self.reference_transcript,
            model=self.model,
        )


def average_voice(voices: Sequence[Voice]) -> Voice:
    """The voice of several clones of one speaker, which is nearer to the speaker than that of one recording.

    Its embeddings have the direction of their mean and their mean length; all else is that of the first clone, but for
    the hash of the sources. VoiceError without voices, or if they are of different encoders.
    """
    if not voices:
        raise VoiceError("a voice needs at least one recording")
    first = voices[0]
    if len(voices) == 1:
        return first
    if any(voice.encoders != first.encoders for voice in voices):
        raise VoiceError("voices by different speaker encoders cannot be averaged; clone the recordings with one model")
    return replace(
        first,
        embeddings={role: mean_embedding([voice.embeddings[role] for voice in voices]) for role in first.embeddings},
        source_sha256=hashlib.sha256("".join(voice.source_sha256 for voice in voices).encode()).hexdigest(),
    )


def mix_voices(parts: Sequence[tuple[Voice, float]], name: str) -> Voice:
    """A voice between others, nearer to those with larger weights; it has neither a prefix nor a reference.

    Each embedding has the direction of the weighted mean, and the weighted mean length. The consent of all stays.
    VoiceError for a weight that is not positive, for fewer than two voices, or if they are of different encoders.
    """
    voices, weights = [voice for voice, _ in parts], [weight for _, weight in parts]
    if len(parts) < 2:
        raise VoiceError("a mix needs at least two voices")
    if not all(math.isfinite(weight) and weight > 0.0 for weight in weights):
        raise VoiceError(f"the weights of a mix are positive numbers, but came {', '.join(map(str, weights))}")
    first = voices[0]
    if any(voice.encoders != first.encoders for voice in voices):
        raise VoiceError("voices by different speaker encoders cannot be mixed; clone the recordings with one model")
    sources = "".join(f"{voice.source_sha256}:{weight:g}" for voice, weight in parts)
    return replace(
        first,
        name=name,
        embeddings={
            role: mean_embedding([voice.embeddings[role] for voice in voices], weights) for role in first.embeddings
        },
        prefix=None,
        source_sha256=hashlib.sha256(sources.encode()).hexdigest(),
        consent="; ".join(dict.fromkeys(voice.consent for voice in voices if voice.consent)),
        reference=b"",
        reference_transcript="",
    )


def with_style_of(voice: Voice, style: Voice) -> Voice:
    """The identity of one voice with the style of another; it has neither a prefix nor a reference.

    VoiceError if they have no style, or styles by different encoders.
    """
    if STYLE not in voice.encoders or voice.encoders[STYLE] != style.encoders.get(STYLE):
        raise VoiceError(
            f"the style of voice {style.name!r} cannot be that of voice {voice.name!r}: expected style embeddings by "
            "one encoder; clone both with one model"
        )
    sources = f"{voice.source_sha256} in the style of {style.source_sha256}"
    return replace(
        voice,
        name=f"{voice.name} in the style of {style.name}",
        embeddings={**voice.embeddings, STYLE: style.embeddings[STYLE]},
        prefix=None,
        source_sha256=hashlib.sha256(sources.encode()).hexdigest(),
        consent="; ".join(dict.fromkeys(each.consent for each in (voice, style) if each.consent)),
        reference=b"",
        reference_transcript="",
    )


def mean_embedding(
    embeddings: Sequence[NDArray[np.float32]], weights: Sequence[float] | None = None
) -> NDArray[np.float32]:
    """(E,) each -> (E,): the direction of their mean, with their mean length."""
    if weights is not None:
        lengths = np.linalg.norm(embeddings, axis=1)
        mean = np.average(np.asarray(embeddings, dtype=np.float64), axis=0, weights=weights)
        length = np.average(lengths, weights=weights)
        return np.asarray(mean * (length / max(float(np.linalg.norm(mean)), 1e-9)), dtype=np.float32)
    mean = np.mean(embeddings, axis=0, dtype=np.float64)
    length = np.linalg.norm(embeddings, axis=1).mean()
    return np.asarray(mean * (length / max(float(np.linalg.norm(mean)), 1e-9)), dtype=np.float32)


class VoiceMetadata(Config):
    """The text fields of a voice file; arrays are its tensors."""

    format_version: int = Field(ge=1)
    name: str
    transcript: str | None
    codec: str
    encoders: dict[str, str]
    source_sha256: str
    consent: str
    reference_transcript: str = ""
    model: str = Field("", max_length=MAX_MODEL)


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
        raise VoiceError(f"codes of level {level} must fill whole patches, but {num_patches} patches have {len(codes)}")
    if codes.min() < 0 or codes.max() >= MAX_CODE:
        raise VoiceError(f"codes of level {level} lie between {codes.min()} and {codes.max()}, outside any codebook")


def _read_file(path: Path) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    """Metadata and tensors of a safetensors file, whatever they are."""
    content = read_regular_file(path, MAX_FILE_BYTES, VoiceError)
    try:
        size = int.from_bytes(content[:8], "little")
        if size > len(content) - 8:
            raise ValueError("the header is longer than the file")
        header = json.loads(content[8 : 8 + size]).get("__metadata__") or {}
        return header, safetensors.numpy.load(content)
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise VoiceError(
            f"{printable_name(path)}: expected a voice file, but it is corrupt, cut short or something else"
        ) from error


def _parse_metadata(source: str, header: dict[str, str]) -> VoiceMetadata:
    if METADATA_KEY not in header:
        raise VoiceError(f"{source}: a safetensors file, but not a voice; make one with `marstts voice create`")
    try:
        values = json.loads(header[METADATA_KEY])
        version = values.get("format_version")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise VoiceError(f"{source}: the description inside this voice file is corrupt") from error
    if version != FORMAT_VERSION:
        raise VoiceError(
            f"{source}: voice format {str(version)[:20]}, but this marstts reads format {FORMAT_VERSION};"
            " update it, or clone the reference again"
        )
    return parse_config(VoiceMetadata, values, source, VoiceError)


def _assemble(metadata: VoiceMetadata, tensors: dict[str, NDArray[Any]]) -> Voice:
    """Build the Voice; raises VoiceError unless exactly the expected tensors are there."""
    num_levels = sum(name.startswith("codes.") for name in tensors)
    levels = [f"codes.{level}" for level in range(num_levels)]
    embeddings = {role: f"embedding.{role}" for role in metadata.encoders}
    if set(tensors) - {"reference"} != {*embeddings.values(), *levels}:
        raise VoiceError(
            f"expected the tensors {', '.join(embeddings.values())} and codes.0, …, but it has {sorted(tensors)[:8]}"
        )
    if (metadata.transcript is None) != (num_levels == 0):
        raise VoiceError("a deep voice has both a transcript and codes, but this file has only one of them")
    reference = tensors.get("reference", np.zeros(0, np.uint8))
    if reference.dtype != np.uint8 or reference.ndim != 1:
        raise VoiceError(f"the reference is one row of bytes, not {reference.dtype} of shape {reference.shape}")
    prefix = None
    if metadata.transcript is not None:
        prefix = Prefix(metadata.transcript, tuple(tensors[name] for name in levels))
    return Voice(
        name=metadata.name,
        embeddings={role: tensors[name] for role, name in embeddings.items()},
        prefix=prefix,
        codec=metadata.codec,
        encoders=metadata.encoders,
        source_sha256=metadata.source_sha256,
        consent=metadata.consent,
        reference=reference.tobytes(),
        reference_transcript=metadata.reference_transcript,
        model=metadata.model,
    )
