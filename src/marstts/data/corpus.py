"""The corpus in memory: all shards of some folders as one value, sorted by utterance id.

Sixty hours of three-level codes are 36 MB, so training holds the whole corpus in memory, once: splits and selections
share its arrays.

Upstream: `data.shards`.  Downstream: `data.batching`, `training`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marstts.codec.base import CodecSpec, Codes
from marstts.data.manifest import Utterance
from marstts.data.shards import SHARD_PATTERN, EncoderInfo, Shard, ShardHeader, read_header, read_shard
from marstts.errors import DataError
from marstts.jsonl import MAX_COMPLAINTS


@dataclass(frozen=True, eq=False, kw_only=True)
class Corpus:
    """A tokenized corpus in memory, or a selection of its utterances, which shares its arrays.

    Row r of the arrays owns the patches `offsets[r]` to `offsets[r + 1]`; utterance i is row `rows[i]`.
    """

    codec: CodecSpec

    encoders: Mapping[str, EncoderInfo]
    """Speaker encoders by role."""

    utterances: tuple[Utterance, ...]
    """N of them."""

    codes: tuple[NDArray[np.uint16], ...]
    """Per level, (patches * codes per patch,)."""

    offsets: NDArray[np.int64]
    """(rows + 1,), in patches."""

    embeddings: Mapping[str, NDArray[np.float16]]
    """Embeddings by role, (rows, E)."""

    selection: NDArray[np.int64] | None = None
    """(N,) the row of each utterance; None = all rows, in order."""

    def __len__(self) -> int:
        return len(self.utterances)

    @property
    def rows(self) -> NDArray[np.int64]:
        """(N,) the row of each utterance."""
        return np.arange(len(self)) if self.selection is None else self.selection

    @property
    def num_patches(self) -> NDArray[np.int64]:
        """(N,) patches of each utterance."""
        return np.diff(self.offsets)[self.rows]

    @property
    def seconds(self) -> float:
        """Total length of the audio, in whole patches."""
        return float(self.num_patches.sum()) / self.codec.patch_rate

    def codes_of(self, index: int) -> Codes:
        """The codes of one utterance, per level."""
        row = index if self.selection is None else self.selection[index]
        start, stop = self.offsets[row], self.offsets[row + 1]
        layout = self.codec.patch_layout
        return tuple(codes[start * n : stop * n].astype(np.int64) for codes, n in zip(self.codes, layout, strict=True))

    def embeddings_of(self, indices: Sequence[int] | NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        """The embeddings of these utterances by role, each (B, E)."""
        rows = self.rows[np.asarray(indices, dtype=np.int64)]
        return {role: values[rows].astype(np.float32) for role, values in self.embeddings.items()}

    def select(self, indices: Sequence[int] | NDArray[np.int64]) -> Corpus:
        """Only these utterances, in this order."""
        chosen = np.asarray(indices, dtype=np.int64)
        utterances = tuple(self.utterances[index] for index in chosen)
        return dataclasses.replace(self, utterances=utterances, selection=self.rows[chosen])

    def split(self, name: str) -> Corpus:
        """The utterances of one split (`train`, `validation`, `test`)."""
        return self.select([i for i, utterance in enumerate(self.utterances) if utterance.split == name])


def load_corpus(*folders: Path, without: Collection[Path] = ()) -> Corpus:
    """All shards of the folders but those of `without`, as one Corpus sorted by id; shard order does not matter.

    The corpus and one shard at a time are in memory. DataError where there are no shards, where some are corrupt
    (all are named at once), where they were made by different codecs or encoders, or ids repeat.
    """
    paths = [path for folder in folders for path in sorted(folder.glob(SHARD_PATTERN)) if path not in without]
    shown = ", ".join(map(str, folders))
    if not paths:
        missing = [str(folder) for folder in folders if not folder.is_dir()]
        if missing:
            raise DataError(f"{', '.join(missing)}: no such folder; expected shards made by `marstts tokenize`")
        raise DataError(f"{shown}: no shards here; make them with `marstts tokenize`")
    headers = read_headers(paths)
    ids = [utterance.id for header in headers for utterance in header.info.utterances]
    repeated = len(ids) - len(set(ids))
    if repeated:
        raise DataError(f"{shown}: {repeated} utterance ids occur more than once; remove stale shards")
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)
    corpus = empty_corpus(headers, order)
    rows = np.argsort(order)  # the final row of each utterance of the concatenated shards
    complaints, done = [], 0
    for path, header in zip(paths, headers, strict=True):
        count = len(header.num_patches)
        try:
            copy_into(corpus, read_shard(path), rows[done : done + count])
        except DataError as error:
            complaints.append(str(error))
        done += count
    raise_all(complaints)
    return corpus


def read_headers(paths: Sequence[Path]) -> list[ShardHeader]:
    """The headers of all shards; DataError naming all corrupt shards, or what they disagree on."""
    headers, complaints = [], []
    for path in paths:
        try:
            headers.append(read_header(path))
        except DataError as error:
            complaints.append(str(error))
    if complaints:  # then name the shards with corrupt arrays, too
        named = " ".join(complaints)
        complaints += [str(error) for path in paths if str(path) not in named for error in errors_in(path)]
    raise_all(sorted(complaints))
    first = headers[0].info
    for other in headers[1:]:
        if first.codec != other.info.codec:
            raise DataError(
                f"shards disagree on the codec ({first.codec} and {other.info.codec}); tokenize all with the same"
            )
        for role in sorted(first.encoders.keys() | other.info.encoders.keys()):
            one, two = first.encoders.get(role), other.info.encoders.get(role)
            if one != two:
                raise DataError(f"shards disagree on the {role} encoder ({one} and {two}); tokenize all with the same")
    return headers


def errors_in(path: Path) -> list[DataError]:
    """The error of reading a shard; empty if it is valid."""
    try:
        read_shard(path)
    except DataError as error:
        return [error]
    return []


def raise_all(complaints: Sequence[str]) -> None:
    """DataError with the first complaints, if there are any."""
    if complaints:
        more = len(complaints) - MAX_COMPLAINTS
        raise DataError("; ".join(complaints[:MAX_COMPLAINTS]) + (f"; and {more} more" if more > 0 else ""))


def empty_corpus(headers: Sequence[ShardHeader], order: NDArray[np.int64]) -> Corpus:
    """A corpus with uninitialized arrays for the utterances of the shards, in this order of their concatenation."""
    info = headers[0].info
    utterances = [utterance for header in headers for utterance in header.info.utterances]
    counts = np.concatenate([header.num_patches for header in headers])[order]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return Corpus(
        codec=info.codec,
        encoders=info.encoders,
        utterances=tuple(utterances[row] for row in order),
        codes=tuple(np.empty(offsets[-1] * n, np.uint16) for n in info.codec.patch_layout),
        offsets=offsets,
        embeddings={role: np.empty((len(order), one.size), np.float16) for role, one in info.encoders.items()},
    )


def copy_into(corpus: Corpus, shard: Shard, rows: NDArray[np.int64]) -> None:
    """Write the arrays of a shard into these rows (N,) of the corpus."""
    counts = shard.num_patches
    patches = np.repeat(corpus.offsets[rows] - shard.offsets[:-1], counts) + np.arange(shard.offsets[-1])
    for ours, theirs, n in zip(corpus.codes, shard.codes, corpus.codec.patch_layout, strict=True):
        ours.reshape(-1, n)[patches] = theirs.reshape(-1, n)
    for role, values in shard.embeddings.items():
        corpus.embeddings[role][rows] = values
