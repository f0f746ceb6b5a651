"""Shards: the tokenised corpus on disk, and the `Corpus` it becomes in memory.

A shard is one safetensors file of about a thousand utterances: `codes.0`, `codes.1`, … (the codes of each level, all
utterances end to end, uint16), `offsets` (N + 1,) int64 counting patches, `identity` (N, E1) and `style` (N, E2)
float16; its metadata holds one JSON object (`ShardInfo`) with the geometry of the codec, the names of the encoders and
a row per utterance. Sixty hours of three-level codes are 36 MB, so training holds the whole corpus in memory, once:
splits and selections of it share its arrays.

Upstream: `data.tokenize`.  Downstream: `data.batching`, `training`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from marstts.codec.base import CodecSpec, Codes
from marstts.data.manifest import Utterance, as_row
from marstts.errors import DataError

FORMAT = "marstts-shard-1"
SHARD_PATTERN = "shard-*.safetensors"
MAX_COMPLAINTS = 10


@dataclass(frozen=True, kw_only=True)
class ShardInfo:
    """What a shard says of itself."""

    codec: CodecSpec
    identity_encoder: str
    style_encoder: str

    fingerprint: str
    """Of the manifest lines and settings it was made from; a shard with another fingerprint is made again."""

    utterances: tuple[Utterance, ...]
    rejects: tuple[tuple[str, str], ...] = ()
    """(id, reason) of the utterances left out."""

    digest: str = ""
    """Of the arrays, so that a shard damaged on its disk is noticed; shards made before there was one have none."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Corpus:
    """A tokenised corpus in memory, or some utterances of one, whose arrays it then shares.

    Row r of the arrays owns the patches `offsets[r]` to `offsets[r + 1]`; utterance i is row `places[i]`.
    """

    codec: CodecSpec
    identity_encoder: str
    style_encoder: str
    utterances: tuple[Utterance, ...]
    """N of them."""

    codes: tuple[NDArray[np.uint16], ...]
    """Per level, (patches * codes per patch,)."""

    offsets: NDArray[np.int64]
    """(rows + 1,), in patches."""

    identity: NDArray[np.float16]
    """(rows, E1)."""

    style: NDArray[np.float16]
    """(rows, E2)."""

    chosen: NDArray[np.int64] | None = None
    """(N,) which rows the utterances are; None = all of them, in order."""

    def __len__(self) -> int:
        return len(self.utterances)

    @property
    def places(self) -> NDArray[np.int64]:
        """(N,) the row of each utterance."""
        return np.arange(len(self)) if self.chosen is None else self.chosen

    @property
    def num_patches(self) -> NDArray[np.int64]:
        """(N,) patches of each utterance."""
        return np.diff(self.offsets)[self.places]

    @property
    def seconds(self) -> float:
        """Length of all audio, as the codec sees it."""
        return float(self.num_patches.sum()) / self.codec.patch_rate

    def codes_of(self, index: int) -> Codes:
        """The codes of one utterance, per level."""
        row = index if self.chosen is None else self.chosen[index]
        start, stop = self.offsets[row], self.offsets[row + 1]
        layout = self.codec.patch_layout
        return tuple(codes[start * n : stop * n].astype(np.int64) for codes, n in zip(self.codes, layout, strict=True))

    def voices_of(self, indices: Sequence[int] | NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Identity (B, E1) and style (B, E2) of these utterances."""
        rows = self.places[np.asarray(indices, dtype=np.int64)]
        return self.identity[rows].astype(np.float32), self.style[rows].astype(np.float32)

    def select(self, indices: Sequence[int] | NDArray[np.int64]) -> Corpus:
        """Only these utterances, in this order."""
        rows = np.asarray(indices, dtype=np.int64)
        utterances = tuple(self.utterances[row] for row in rows)
        return dataclasses.replace(self, utterances=utterances, chosen=self.places[rows])

    def split(self, name: str) -> Corpus:
        """The utterances of one split (`train`, `validation`, `test`)."""
        return self.select([i for i, utterance in enumerate(self.utterances) if utterance.split == name])


def shard_path(folder: Path, index: int) -> Path:
    """Where shard `index` lies; matches `SHARD_PATTERN`."""
    return folder / f"shard-{index:05d}.safetensors"


def write_shard(
    path: Path,
    info: ShardInfo,
    codes: Sequence[Codes],
    identity: NDArray[np.float32],
    style: NDArray[np.float32],
) -> None:
    """Write one shard under a temporary name and rename it; equal contents give equal bytes.

    codes: one tuple of levels per utterance; identity (N, E1), style (N, E2). DataError if a code is not the codec's.
    """
    layout = info.codec.patch_layout
    counts = [len(levels[0]) // layout[0] for levels in codes]
    for utterance, levels, count in zip(info.utterances, codes, counts, strict=True):
        check_codes(utterance, levels, count, info.codec)
    tensors: dict[str, NDArray] = {
        f"codes.{level}": np.concatenate([np.zeros(0, np.uint16), *(c[level].astype(np.uint16) for c in codes)])
        for level in range(len(layout))
    }
    tensors["offsets"] = np.cumsum([0, *counts]).astype(np.int64)
    tensors["identity"] = np.ascontiguousarray(identity, dtype=np.float16)
    tensors["style"] = np.ascontiguousarray(style, dtype=np.float16)
    # one metadata key only: safetensors does not promise the order of several
    content = save(tensors, metadata={FORMAT: json.dumps(describe(info, digest_of(tensors)), ensure_ascii=False)})
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def describe(info: ShardInfo, digest: str) -> dict[str, Any]:
    """`info` as plain values, with the digest of the arrays beside it."""
    facts = {field.name: getattr(info, field.name) for field in dataclasses.fields(info)}
    rows = [as_row(utterance) for utterance in info.utterances]
    return {**facts, "codec": dataclasses.asdict(info.codec), "utterances": rows, "digest": digest}


def digest_of(tensors: Mapping[str, NDArray]) -> str:
    """Hash of names, types, shapes and contents, whatever the order."""
    hashed = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        hashed.update(f"{name} {tensor.dtype} {tensor.shape} ".encode())
        hashed.update(np.ascontiguousarray(tensor).data)
    return hashed.hexdigest()


def check_codes(utterance: Utterance, levels: Codes, count: int, codec: CodecSpec) -> None:
    """DataError unless every level has its share of whole patches and its codes lie in the codebook."""
    lengths = [len(codes) for codes in levels]
    if lengths != [count * n for n in codec.patch_layout]:
        raise DataError(
            f"{utterance.id}: codec {codec.name} gave levels of {lengths} codes, which are not whole patches"
        )
    if any(len(codes) and not 0 <= codes.min() <= codes.max() < codec.codebook_size for codes in levels):
        raise DataError(f"{utterance.id}: codec {codec.name} gave codes outside its {codec.codebook_size} entries")


def read_info(path: Path) -> ShardInfo:
    """The description of a shard, without its arrays; DataError if it is no shard."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: expected a shard written by `marstts tokenize`, but {error}") from error
    if FORMAT not in metadata:
        raise DataError(
            f"{path}: expected a shard of format {FORMAT}, found {sorted(metadata) or 'none'}; tokenize again"
        )
    try:
        values = json.loads(metadata[FORMAT])
        values["codec"]["hop_lengths"] = tuple(values["codec"]["hop_lengths"])
        return ShardInfo(
            codec=CodecSpec(**values.pop("codec")),
            utterances=tuple(Utterance(**row) for row in values.pop("utterances")),
            rejects=tuple((name, reason) for name, reason in values.pop("rejects")),
            **values,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: its description is damaged ({error}); tokenize again, it is remade") from error


def read_shard(path: Path) -> Corpus:
    """One shard as a Corpus; DataError if it is malformed."""
    info = read_info(path)
    with safe_open(str(path), framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    if info.digest and digest_of(tensors) != info.digest:
        raise DataError(f"{path}: damaged since it was written (its checksum differs); tokenize again, it is remade")
    levels = range(len(info.codec.patch_layout))
    missing = {"offsets", "identity", "style", *(f"codes.{level}" for level in levels)} - tensors.keys()
    if missing:
        raise DataError(f"{path}: the shard lacks {', '.join(sorted(missing))}; tokenize again")
    return Corpus(
        codec=info.codec,
        identity_encoder=info.identity_encoder,
        style_encoder=info.style_encoder,
        utterances=info.utterances,
        codes=tuple(tensors[f"codes.{level}"] for level in levels),
        offsets=tensors["offsets"],
        identity=tensors["identity"],
        style=tensors["style"],
    )


def load_corpus(*folders: Path, without: Collection[Path] = ()) -> Corpus:
    """All shards of the folders as one Corpus sorted by id, so that neither shard nor manifest order matters; but for
    those that are to be left out. Beside the corpus, one shard at a time is in memory.

    DataError where there are no shards, where some are damaged (all are named at once), where they were made by
    different codecs or encoders, or ids repeat.
    """
    paths = [path for folder in folders for path in sorted(folder.glob(SHARD_PATTERN)) if path not in without]
    if not paths:
        raise DataError(f"{', '.join(map(str, folders))}: no shards here; make them with `marstts tokenize`")
    outlines = outline_all(paths)
    ids = [utterance.id for outline in outlines for utterance in outline.info.utterances]
    repeated = len(ids) - len(set(ids))
    if repeated:
        raise DataError(
            f"{', '.join(map(str, folders))}: {repeated} utterance ids occur more than once; remove stale shards"
        )
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)
    corpus = empty_corpus(outlines, order)
    rows = np.argsort(order)  # where each utterance of the shards, end to end, comes to lie
    complaints, done = [], 0
    for path, outline in zip(paths, outlines, strict=True):
        count = len(outline.num_patches)
        try:
            put(read_shard(path), corpus, rows[done : done + count])
        except DataError as error:
            complaints.append(str(error))
        done += count
    complain(complaints)
    return corpus


@dataclass(frozen=True, eq=False)
class Outline:
    """What has to be known of a shard to make room for it."""

    info: ShardInfo
    num_patches: NDArray[np.int64]
    """(N,)."""

    sizes: tuple[int, int]
    """Of identity and style."""


def outline_all(paths: Sequence[Path]) -> list[Outline]:
    """Of every shard; DataError naming all that are damaged, or what they disagree on."""
    outlines, complaints = [], []
    for path in paths:
        try:
            outlines.append(outline(path))
        except DataError as error:
            complaints.append(str(error))
    if complaints:  # then of the others, too, all that is wrong with them
        named = " ".join(complaints)
        complaints += [str(error) for path in paths if str(path) not in named for error in faults_of(path)]
    complain(sorted(complaints))
    first = outlines[0].info
    for other in outlines[1:]:
        for what in ("codec", "identity_encoder", "style_encoder"):
            ours, theirs = getattr(first, what), getattr(other.info, what)
            if ours != theirs:
                raise DataError(f"shards disagree on {what} ({ours} and {theirs}); tokenize all with the same")
    return outlines


def outline(path: Path) -> Outline:
    """Of one shard, without its codes; DataError if it is no shard, or lacks something."""
    info = read_info(path)
    levels = range(len(info.codec.patch_layout))
    with safe_open(str(path), framework="numpy") as file:
        names = set(file.keys())
        missing = {"offsets", "identity", "style", *(f"codes.{level}" for level in levels)} - names
        if missing:
            raise DataError(f"{path}: the shard lacks {', '.join(sorted(missing))}; tokenize again")
        offsets = file.get_tensor("offsets")
        identity, style = (file.get_slice(name).get_shape()[1] for name in ("identity", "style"))
    if len(offsets) != len(info.utterances) + 1:
        raise DataError(f"{path}: damaged since it was written (it has other offsets than utterances); tokenize again")
    return Outline(info, np.diff(offsets), (identity, style))


def faults_of(path: Path) -> list[DataError]:
    """What is wrong with a shard; empty if it is sound."""
    try:
        read_shard(path)
    except DataError as error:
        return [error]
    return []


def complain(complaints: Sequence[str]) -> None:
    """DataError with all of them, if there are any, so that no damaged shard is met an hour into training."""
    if complaints:
        raise DataError("; ".join(complaints[:MAX_COMPLAINTS]) + (" …" if len(complaints) > MAX_COMPLAINTS else ""))


def empty_corpus(outlines: Sequence[Outline], order: NDArray[np.int64]) -> Corpus:
    """Room for all utterances of the shards, in this order of theirs, end to end."""
    info, sizes = outlines[0].info, outlines[0].sizes
    utterances = [utterance for outline in outlines for utterance in outline.info.utterances]
    counts = np.concatenate([outline.num_patches for outline in outlines])[order]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return Corpus(
        codec=info.codec,
        identity_encoder=info.identity_encoder,
        style_encoder=info.style_encoder,
        utterances=tuple(utterances[row] for row in order),
        codes=tuple(np.empty(offsets[-1] * n, np.uint16) for n in info.codec.patch_layout),
        offsets=offsets,
        identity=np.empty((len(order), sizes[0]), np.float16),
        style=np.empty((len(order), sizes[1]), np.float16),
    )


def put(shard: Corpus, corpus: Corpus, rows: NDArray[np.int64]) -> None:
    """Write a shard's arrays into these rows (N,) of the corpus."""
    counts = shard.num_patches
    patches = np.repeat(corpus.offsets[rows] - shard.offsets[:-1], counts) + np.arange(shard.offsets[-1])
    for ours, theirs, n in zip(corpus.codes, shard.codes, corpus.codec.patch_layout, strict=True):
        ours.reshape(-1, n)[patches] = theirs.reshape(-1, n)
    corpus.identity[rows], corpus.style[rows] = shard.identity, shard.style
