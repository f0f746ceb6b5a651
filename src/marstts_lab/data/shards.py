"""Shards: the tokenized corpus on disk. Reading and writing one file; `data.corpus` joins many.

A shard is one safetensors file of about a thousand utterances: `codes.0`, `codes.1`, … (the codes of each level, all
utterances concatenated, uint16), `offsets` (N + 1,) int64 in patches, and per role of a speaker encoder
`embedding.<role>` (N, E) float16. Its metadata holds one JSON object (`ShardInfo`). It is untrusted: the
sizes, types and checksum of the arrays are compared with the metadata before anything is allocated by them.

Upstream: `data.tokenize`.  Downstream: `data.corpus`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from marstts.codec.base import CodecSpec, Codes
from marstts.errors import DataError
from marstts.io.files import write_file
from marstts.io.reading import open_regular, os_errors, parse_object
from marstts.io.stored_tensors import stored_tensors
from marstts_lab.data.manifest import Name, Utterance, as_row

FORMAT = "marstts-shard-2"
OLD_FORMATS = ("marstts-shard-1",)
SHARD_PATTERN = "shard-*.safetensors"

MAX_BYTES = 16 * 2**30
"""Largest shard that is read."""

MAX_METADATA_BYTES = 100 * 2**20
"""Longest metadata; that of safetensors."""

DTYPES = {"U16": "<u2", "I64": "<i8", "F16": "<f2"}
"""NumPy's names for the types of a shard's arrays."""

MAX_CODEBOOK_SIZE = 2**16
"""Codes are stored as uint16."""

MAX_LEVELS, MAX_HOP_LENGTH, MAX_SAMPLE_RATE = 64, 10**6, 10**6


def check_codec(spec: CodecSpec) -> CodecSpec:
    """The geometry of a codec; ValueError if no codec can have it."""
    hops = spec.hop_lengths
    bounded = 0 < spec.sample_rate <= MAX_SAMPLE_RATE and 0 < spec.codebook_size <= MAX_CODEBOOK_SIZE
    nested = 0 < len(hops) <= MAX_LEVELS and all(0 < hop <= MAX_HOP_LENGTH and hops[0] % hop == 0 for hop in hops)
    if not (bounded and nested):
        raise ValueError(f"no codec has this geometry: {spec}")
    return spec


@dataclass(frozen=True)
class EncoderInfo:
    """The speaker encoder of one role."""

    name: Name
    size: Annotated[int, Field(gt=0, le=2**16)]
    """Length E of its embeddings."""


@dataclass(frozen=True, kw_only=True)
class ShardInfo:
    """The metadata of a shard."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    codec: Annotated[CodecSpec, AfterValidator(check_codec)]

    encoders: Mapping[str, EncoderInfo]
    """Speaker encoders by role, such as identity and style."""

    fingerprint: str
    """Hash of the manifest lines and settings; a shard with another fingerprint is made again."""

    utterances: tuple[Utterance, ...]
    rejects: tuple[tuple[str, str], ...] = ()
    """Ids and reasons of the utterances that were left out."""

    digest: str = ""
    """Hash of the arrays and of this metadata, which reveals a corrupt shard; set by `write_shard`."""


@dataclass(frozen=True, eq=False)
class Shard:
    """One shard in memory."""

    info: ShardInfo

    codes: tuple[NDArray[np.uint16], ...]
    """Per level, (patches * codes per patch,)."""

    offsets: NDArray[np.int64]
    """(N + 1,), in patches."""

    embeddings: Mapping[str, NDArray[np.float16]]
    """Embeddings by role, (N, E)."""

    @property
    def num_patches(self) -> NDArray[np.int64]:
        """(N,) patches of each utterance."""
        return np.diff(self.offsets)

    def embeddings_of(self, rows: Sequence[int] | NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        """The embeddings of these rows by role, each (B, E)."""
        chosen = np.asarray(rows, dtype=np.int64)
        return {role: values[chosen].astype(np.float32) for role, values in self.embeddings.items()}


def shard_path(folder: Path, index: int) -> Path:
    """Path of shard `index`; matches `SHARD_PATTERN`."""
    return folder / f"shard-{index:05d}.safetensors"


def embedding_name(role: str) -> str:
    """Name of the tensor that holds the embeddings of a role."""
    return f"embedding.{role}"


def write_shard(
    path: Path, info: ShardInfo, codes: Sequence[Codes], embeddings: Mapping[str, NDArray[np.floating]]
) -> None:
    """Write one shard atomically; equal contents give equal bytes.

    codes: one tuple of levels per utterance; embeddings: by role, (N, E). DataError if a code is not the codec's, or an
    embedding does not fit its encoder.
    """
    layout = info.codec.patch_layout
    counts = [len(levels[0]) // layout[0] for levels in codes]
    for utterance, levels, count in zip(info.utterances, codes, counts, strict=True):
        check_codes(utterance, levels, count, info.codec)
    tensors: dict[str, NDArray[Any]] = {
        f"codes.{level}": np.concatenate([np.zeros(0, np.uint16), *(c[level].astype(np.uint16) for c in codes)])
        for level in range(len(layout))
    }
    tensors["offsets"] = np.cumsum([0, *counts]).astype(np.int64)
    for role, encoder in info.encoders.items():
        values = np.ascontiguousarray(embeddings[role], dtype=np.float16)
        if values.shape != (len(codes), encoder.size) or not np.isfinite(values).all():
            raise DataError(
                f"{path}: the {role} embeddings of {encoder.name} should be {len(codes)} by {encoder.size} finite "
                f"numbers within float16, got shape {values.shape}"
            )
        tensors[embedding_name(role)] = values
    # one metadata key only: safetensors does not promise the order of several
    complete = dataclasses.replace(info, digest=digest_of(info, tensors))
    header = json.dumps(info_values(complete), ensure_ascii=False, allow_nan=False)
    write_file(path, save(tensors, metadata={FORMAT: header}), DataError)


def info_values(info: ShardInfo) -> dict[str, Any]:
    """The metadata as plain values."""
    return {
        **{field.name: getattr(info, field.name) for field in dataclasses.fields(info)},
        "codec": dataclasses.asdict(info.codec),
        "encoders": {role: dataclasses.asdict(encoder) for role, encoder in info.encoders.items()},
        "utterances": [as_row(utterance) for utterance in info.utterances],
    }


def digest_of(info: ShardInfo, tensors: Mapping[str, NDArray[Any]]) -> str:
    """Hash of the metadata, and of names, types, shapes and contents of the tensors, whatever their order."""
    values = info_values(dataclasses.replace(info, digest=""))
    hashed = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        hashed.update(f"{name} {tensor.dtype} {tensor.shape} ".encode())
        hashed.update(np.ascontiguousarray(tensor).data)
    return hashed.hexdigest()


def check_codes(utterance: Utterance, levels: Codes, count: int, codec: CodecSpec) -> None:
    """DataError unless every level has its number of codes for whole patches, all within the codebook."""
    lengths = [len(codes) for codes in levels]
    if lengths != [count * n for n in codec.patch_layout]:
        raise DataError(
            f"{utterance.id}: codec {codec.name} gave levels of {lengths} codes, which are not whole patches"
        )
    if any(len(codes) and not 0 <= codes.min() <= codes.max() < codec.codebook_size for codes in levels):
        raise DataError(f"{utterance.id}: codec {codec.name} gave codes outside its {codec.codebook_size} entries")


def read_info(path: Path) -> ShardInfo:
    """The metadata of a shard, without its arrays; DataError if the file is no shard of this format."""
    with open_shard(path) as file:
        return parse_info(file, path)


def read_shard(path: Path) -> Shard:
    """One shard; DataError if it is malformed, or corrupt since it was written."""
    with open_shard(path) as file:
        info = parse_info(file, path)
        offsets = read_offsets(file, info, path)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    if digest_of(info, tensors) != info.digest:
        raise corrupt(path, "its checksum differs")
    shard = Shard(
        info,
        tuple(tensors[f"codes.{level}"] for level in range(len(info.codec.hop_lengths))),
        offsets,
        {role: tensors[embedding_name(role)] for role in info.encoders},
    )
    if any(len(codes) and codes.max() >= info.codec.codebook_size for codes in shard.codes):
        raise corrupt(path, f"it has codes outside the codec's {info.codec.codebook_size} entries")
    if not all(np.isfinite(values).all() for values in shard.embeddings.values()):
        raise corrupt(path, "an embedding has values that are not finite")
    return shard


def stored_arrays(path: Path) -> dict[str, StoredPart]:
    """Positions of the arrays of a shard in its file, by name, once `read_shard` has accepted it."""
    found = stored_tensors(path, DataError, MAX_METADATA_BYTES)
    return {
        name: StoredPart(path, tensor.offset, np.dtype(DTYPES[tensor.dtype]), tensor.shape)
        for name, tensor in found.items()
    }


@contextmanager
def open_shard(path: Path) -> Iterator[Any]:
    """The safetensors file at `path`; DataError where it is none, or breaks while it is read."""
    open_regular(path, MAX_BYTES, DataError).close()
    try:
        with safe_open(str(path), framework="numpy") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: expected a shard written by `marstts tokenize`, but {error}") from error


@lru_cache(maxsize=1)
def info_adapter() -> TypeAdapter[ShardInfo]:
    """The schema of the metadata."""
    return TypeAdapter(ShardInfo)


def parse_info(file: Any, path: Path) -> ShardInfo:
    """The metadata of an open shard; DataError unless it is complete and within bounds."""
    metadata = file.metadata() or {}
    if FORMAT not in metadata:
        old = next((name for name in OLD_FORMATS if name in metadata), None)
        found = f"{old}, an older format" if old else "another kind of file"
        raise DataError(f"{path}: expected a shard of format {FORMAT}, found {found}; tokenize again")
    try:
        parse_object(metadata[FORMAT], "its metadata", DataError)  # bounds its depth and numbers
        return info_adapter().validate_json(metadata[FORMAT])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise corrupt(path, f"metadata {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except DataError as error:
        raise corrupt(path, str(error)) from error


def read_offsets(file: Any, info: ShardInfo, path: Path) -> NDArray[np.int64]:
    """The offsets of an open shard; DataError unless all arrays have the sizes and types that the metadata implies."""
    layout, count = info.codec.patch_layout, len(info.utterances)
    levels = [f"codes.{level}" for level in range(len(layout))]
    expected = {"offsets", *levels, *map(embedding_name, info.encoders)}
    names = set(file.keys())
    if names != expected:
        raise corrupt(path, f"it has the tensors {sorted(names)[:10]} instead of {sorted(expected)}")
    check_tensor(file, path, "offsets", (count + 1,), "I64")
    offsets: NDArray[np.int64] = file.get_tensor("offsets")
    if offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise corrupt(path, "its offsets do not ascend from 0")
    for name, codes_per_patch in zip(levels, layout, strict=True):
        check_tensor(file, path, name, (int(offsets[-1]) * codes_per_patch,), "U16")
    for role, encoder in info.encoders.items():
        check_tensor(file, path, embedding_name(role), (count, encoder.size), "F16")
    return offsets


def check_tensor(file: Any, path: Path, name: str, shape: tuple[int, ...], kind: str) -> None:
    """DataError unless the tensor has this shape and type."""
    tensor = file.get_slice(name)
    found, found_kind = tuple(tensor.get_shape()), str(tensor.get_dtype())
    if (found, found_kind) != (shape, kind):
        raise corrupt(path, f"tensor {name} is {found_kind} {found} instead of {kind} {shape}")


def corrupt(path: Path, reason: str) -> DataError:
    """The error for a shard that is corrupt."""
    return DataError(f"{path}: corrupt since it was written ({reason}); tokenize again, which makes this shard again")


# Arrays that stay on disk: those of one name in many shards, as one array whose rows are read when they are used.
# Nothing is kept in memory: files that are read often are in the system's cache, which all processes of a machine
# share.


@dataclass(frozen=True)
class StoredPart:
    """One array in one file."""

    path: Path
    first_byte: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """The rows from `start` up to, not including, `stop`; DataError where the file is shorter."""
        width = prod(self.shape[1:])
        first, count = self.first_byte + start * width * self.dtype.itemsize, (stop - start) * width
        with os_errors(self.path, "be read", DataError):
            values = np.fromfile(self.path, self.dtype, count, offset=first)
        if len(values) != count:
            raise DataError(f"{self.path}: this shard was cut short while it was used; tokenize again")
        return values.reshape(stop - start, *self.shape[1:])


class StoredArray:
    """Arrays one after another along their first axis."""

    def __init__(self, parts: Sequence[StoredPart]) -> None:
        """`parts` agree in type and in all axes but the first; there is at least one."""
        self._parts = tuple(parts)
        self._starts = np.cumsum([0, *(part.shape[0] for part in parts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> NDArray[Any]:
        """The rows of a slice (of step 1), or at these indices (N,)."""
        if isinstance(rows, slice):
            return self._span(*rows.indices(len(self))[:2])
        return np.concatenate([self._span(0, 0), *(self._span(row, row + 1) for row in rows.tolist())])

    def _span(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop`, which may lie in several files."""
        number = int(np.searchsorted(self._starts, start, side="right")) - 1
        pieces = []
        while start < stop:
            part, first = self._parts[number], int(self._starts[number])
            end = min(stop, first + part.shape[0])
            if start < end:
                pieces.append(part.read(start - first, end - first))
                start = end
            number += 1
        return np.concatenate(pieces) if pieces else self._empty()

    def _empty(self) -> NDArray[Any]:
        return np.zeros((0, *self._parts[0].shape[1:]), self._parts[0].dtype)
