"""The tokenized corpus stays on disk: memory does not grow with the shards, and rows are those of the shards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marstts.codec.base import CodecSpec
from marstts.errors import DataError
from marstts_lab.data.corpus import load_corpus
from marstts_lab.data.manifest import Utterance
from marstts_lab.data.shards import EncoderInfo, ShardInfo, read_shard, shard_path, write_shard
from marstts_lab.data.utterance_table import UtteranceTable

SPEC = CodecSpec(name="toy", sample_rate=8000, codebook_size=997, hop_lengths=(400, 200, 100))
UTTERANCE = Utterance(
    id="u", audio="a.wav", text="Grüße “an” alle.", speaker="s", style="regular", seconds=1.5, source_rate=8000,
    split="train", license="CC0",
)  # fmt: skip


def write_shards(folder: Path, shards: int, rows: int, patches: int, size: int = 5) -> list[Path]:
    """Shards of `rows` utterances of 0 to `patches` patches; their order is not that of their ids."""
    rng = np.random.default_rng(shards)
    for number in range(shards):
        ids = [f"u{(row * shards + number) * 7919 % 10_007}" for row in range(rows)]
        split = "validation" if number % 3 else "train"
        info = ShardInfo(
            codec=SPEC, encoders={"identity": EncoderInfo("who", size), "style": EncoderInfo("how", 3)},
            fingerprint="f",
            utterances=tuple(replace(UTTERANCE, id=name, split=split) for name in ids),
        )  # fmt: skip
        counts = [patches, *rng.integers(0, patches, rows - 1)]
        codes = [tuple(rng.integers(0, 997, count * n) for n in SPEC.patch_layout) for count in counts]
        embeddings = {"identity": rng.standard_normal((rows, size)), "style": rng.standard_normal((rows, 3))}
        write_shard(shard_path(folder, number), info, codes, embeddings)
    return [shard_path(folder, number) for number in range(shards)]


def test_rows_read_from_disk_are_those_of_the_shards(tmp_path: Path) -> None:
    expected = {}
    for path in write_shards(tmp_path, shards=5, rows=4, patches=6):
        shard = read_shard(path)
        for row, utterance in enumerate(shard.info.utterances):
            spans = [slice(*(shard.offsets[row : row + 2] * n)) for n in SPEC.patch_layout]
            codes = [level[span] for level, span in zip(shard.codes, spans, strict=True)]
            expected[utterance.id] = codes, {role: values[row] for role, values in shard.embeddings.items()}
    corpus = load_corpus(tmp_path)
    assert [utterance.id for utterance in corpus.utterances] == sorted(expected)
    found = corpus.embeddings_of(range(len(corpus)))
    for index, utterance in enumerate(corpus.utterances):
        codes, embeddings = expected[utterance.id]
        for ours, right in zip(corpus.codes_of(index), codes, strict=True):
            np.testing.assert_array_equal(ours, right)
        for role, values in embeddings.items():
            np.testing.assert_array_equal(found[role][index], values)
    assert corpus.embeddings_of([])["identity"].shape == (0, 5)
    whole = np.concatenate([read_shard(path).codes[1] for path in sorted(tmp_path.glob("*.safetensors"))])
    np.testing.assert_array_equal(corpus.codes[1][:], whole)  # across files
    np.testing.assert_array_equal(corpus.codes[1][7:-9], whole[7:-9])


def test_a_shard_that_is_cut_or_removed_while_it_is_used_is_one_sentence(tmp_path: Path) -> None:
    [path] = write_shards(tmp_path, shards=1, rows=3, patches=6)
    corpus = load_corpus(tmp_path)
    path.write_bytes(path.read_bytes()[:-4000])
    with pytest.raises(DataError, match="was cut short while it was used"):
        corpus.codes_of(2)
    path.unlink()
    with pytest.raises(DataError, match="no such file"):
        corpus.embeddings_of([1])


def test_a_table_gives_back_its_utterances() -> None:
    utterances = [
        UTTERANCE,
        replace(UTTERANCE, id="", text="", speaker="t", start=0.25, seconds=7.125, split="test", source_rate=48_000),
        replace(UTTERANCE, id="😀", text="\0", style="loud", start=0.0, license=""),
    ]
    table = UtteranceTable(utterances)
    assert list(table) == utterances and len(table) == 3 and table[-1] == utterances[-1]
    assert list(table[::-1]) == utterances[::-1] and list(table[1:].select(np.array([1, 0, 1]))) == [
        utterances[2], utterances[1], utterances[2],
    ]  # fmt: skip
    assert list(table[1:].strings("speaker")) == ["t", "s"] and list(table.strings("id")) == ["u", "", "😀"]
    with pytest.raises(IndexError):
        table[3]
    assert list(UtteranceTable()) == []
