"""The tokenized corpus: all shards of some folders as one value, sorted by utterance id.

Codes and embeddings stay on disk, and each row is read when it is used (46,000 h are 28 GB of codes and 50 GB of
embeddings). In memory are the texts and labels, as columns. Splits and selections share everything.

Upstream: `data.shards`, `data.utterance_table`, `data.shards`.  Downstream: `data.batching`, `training`.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marstts.codec.base import CodecSpec, Codes
from marstts.errors import DataError
from marstts.io.jsonl import MAX_COMPLAINTS
from marstts_lab.data.held_out_people import refuse_test_people
from marstts_lab.data.manifest import Utterance
from marstts_lab.data.shards import (
    SHARD_PATTERN,
    EncoderInfo,
    ShardInfo,
    StoredArray,
    StoredPart,
    embedding_name,
    read_shard,
    stored_arrays,
)
from marstts_lab.data.utterance_table import UtteranceTable


@dataclass(frozen=True, eq=False, kw_only=True)
class Corpus:
    """A tokenized corpus, or a selection of its utterances, which shares its arrays.

    Row r of the arrays owns the patches `offsets[r]` to `offsets[r + 1]`; utterance i is row `rows[i]`.
    """

    codec: CodecSpec

    encoders: Mapping[str, EncoderInfo]
    """Speaker encoders by role."""

    utterances: UtteranceTable
    """N of them."""

    codes: tuple[NDArray[np.uint16] | StoredArray, ...]
    """Per level, (patches * codes per patch,)."""

    offsets: NDArray[np.int64]
    """(rows + 1,), in patches."""

    embeddings: Mapping[str, NDArray[np.float16] | StoredArray]
    """Embeddings by role, (rows, E)."""

    selection: NDArray[np.int64] | None = None
    """(N,) the row of each utterance; None = all rows, in order."""

    digest: str = ""
    """Hash of all shards, selected or not."""

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
        """Return only these utterances, in this order."""
        chosen = np.asarray(indices, dtype=np.int64)
        return dataclasses.replace(self, utterances=self.utterances.select(chosen), selection=self.rows[chosen])

    def split(self, name: str) -> Corpus:
        """The utterances of one split (`train`, `validation`, `test`)."""
        return self.select([i for i, split in enumerate(self.utterances.strings("split")) if split == name])


@dataclass(frozen=True)
class CheckedShard:
    """The part of a shard that is kept after it was read and found valid."""

    info: ShardInfo
    """Description of the shard without its utterances."""

    num_patches: NDArray[np.int64]
    arrays: Mapping[str, StoredPart]


def load_corpus(*folders: Path) -> Corpus:
    """All shards of the folders as one Corpus sorted by id, to train on; shard order does not matter.

    Each shard is read once, and its checksum compared; it must not be changed while the corpus is in use. DataError
    where there are no shards, where some are corrupt (all are named at once), where they were made by different codecs
    or encoders, ids repeat, or people whom models are judged on are in another split than `test`.
    """
    paths = [path for folder in folders for path in sorted(folder.glob(SHARD_PATTERN))]
    shown = ", ".join(map(str, folders))
    if not paths:
        missing = [str(folder) for folder in folders if not folder.is_dir()]
        if missing:
            raise DataError(f"{', '.join(missing)}: no such folder; expected shards made by `marstts tokenize`")
        raise DataError(f"{shown}: no shards here; make them with `marstts tokenize`")
    shards: list[CheckedShard] = []
    utterances = UtteranceTable(check_shards(paths, shards))
    ids = list(utterances.strings("id"))
    columns = (utterances.strings(name) for name in ("speaker", "id", "audio", "split"))
    used = ((speaker, (id, audio)) for speaker, id, audio, split in zip(*columns, strict=True) if split != "test")
    refuse_test_people(used, shown)
    repeated = len(ids) - len(set(ids))
    if repeated:
        raise DataError(f"{shown}: {repeated} utterance ids occur more than once; remove stale shards")
    return join_shards(shards, utterances).select(sorted(range(len(ids)), key=ids.__getitem__))


def check_shards(paths: Sequence[Path], shards: list[CheckedShard]) -> Iterator[Utterance]:
    """The utterances of all shards, which are added to `shards`, one in memory at a time.

    DataError at the end naming all corrupt shards, or what they disagree on.
    """
    complaints = []
    for path in paths:
        try:
            shard = read_shard(path)
            arrays = stored_arrays(path)
        except DataError as error:
            complaints.append(str(error))
            continue
        shards.append(
            CheckedShard(dataclasses.replace(shard.info, utterances=(), rejects=()), shard.num_patches, arrays)
        )
        yield from shard.info.utterances
    raise_all(complaints)
    for other in shards[1:]:
        check_agreement(shards[0].info, other.info)


def check_agreement(first: ShardInfo, other: ShardInfo) -> None:
    """DataError where two shards were made by different codecs or encoders."""
    if first.codec != other.codec:
        raise DataError(f"shards disagree on the codec ({first.codec} and {other.codec}); tokenize all with the same")
    for role in sorted(first.encoders.keys() | other.encoders.keys()):
        one, two = first.encoders.get(role), other.encoders.get(role)
        if one != two:
            raise DataError(f"shards disagree on the {role} encoder ({one} and {two}); tokenize all with the same")


def join_shards(shards: Sequence[CheckedShard], utterances: UtteranceTable) -> Corpus:
    """The corpus of shards that agree, in their order."""
    info = shards[0].info
    counts = np.concatenate([shard.num_patches for shard in shards])

    def join(name: str) -> StoredArray:
        return StoredArray([shard.arrays[name] for shard in shards])

    return Corpus(
        codec=info.codec,
        encoders=info.encoders,
        utterances=utterances,
        codes=tuple(join(f"codes.{level}") for level in range(len(info.codec.hop_lengths))),
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
        embeddings={role: join(embedding_name(role)) for role in info.encoders},
        digest=hashlib.sha256("\n".join(sorted(shard.info.digest for shard in shards)).encode()).hexdigest()[:16],
    )


def raise_all(complaints: Sequence[str]) -> None:
    """DataError with the first complaints, if there are any."""
    if complaints:
        more = len(complaints) - MAX_COMPLAINTS
        raise DataError("; ".join(complaints[:MAX_COMPLAINTS]) + (f"; and {more} more" if more > 0 else ""))
