"""Shards on disk: whatever bytes they hold, they are read whole or refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from marstts.codec.base import CodecSpec
from marstts.errors import DataError
from marstts_lab.data.corpus import load_corpus
from marstts_lab.data.manifest import Utterance
from marstts_lab.data.shards import (
    FORMAT,
    EncoderInfo,
    ShardInfo,
    digest_of,
    info_values,
    read_info,
    read_shard,
    shard_path,
    write_shard,
)

SPEC = CodecSpec(name="toy", sample_rate=8000, codebook_size=9, hop_lengths=(400, 200, 100))


def utterance(number: int) -> Utterance:
    return Utterance(
        id=f"u{number}", audio="a.wav", text="Hello.", speaker="s", style="regular", seconds=1.0, source_rate=8000,
        split="train", license="CC0",
    )  # fmt: skip


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """A shard of three utterances of 2, 5 and 3 patches."""
    rng = np.random.default_rng(0)
    codes = [tuple(rng.integers(0, 9, patches * n) for n in SPEC.patch_layout) for patches in (2, 5, 3)]
    info = ShardInfo(
        codec=SPEC, encoders={"identity": EncoderInfo("who", 6), "style": EncoderInfo("how", 4)}, fingerprint="f",
        utterances=tuple(map(utterance, range(3))), rejects=(("u9", "too long"),),
    )  # fmt: skip
    embeddings = {"identity": rng.standard_normal((3, 6)), "style": rng.standard_normal((3, 4))}
    write_shard(shard_path(tmp_path, 0), info, codes, embeddings)
    return shard_path(tmp_path, 0)


def rewrite(path: Path, tensors: dict[str, np.ndarray], changes: dict[str, object]) -> None:
    """Replace tensors and keys of the metadata of a shard, with the checksum that belongs to the tensors."""
    found = load_file(path) | tensors
    values = info_values(read_info(path)) | {"digest": digest_of(read_info(path), found)} | changes
    save_file(found, path, metadata={FORMAT: json.dumps(values)})


def test_a_shard_is_read_as_it_was_written(shard: Path) -> None:
    found = read_shard(shard)
    assert found.info.rejects == (("u9", "too long"),) and list(found.num_patches) == [2, 5, 3]
    assert {role: values.shape for role, values in found.embeddings_of([2, 0]).items()} == {
        "identity": (2, 6),
        "style": (2, 4),
    }


def test_an_older_format_is_refused_in_one_sentence(shard: Path) -> None:
    save_file(load_file(shard), shard, metadata={"marstts-shard-1": "{}"})
    with pytest.raises(DataError, match="expected a shard of format marstts-shard-2, found marstts-shard-1, an older"):
        read_info(shard)


HUGE = 2**62
TENSORS = {
    "offsets of terabytes": {"offsets": np.array([0, 2, 7, HUGE])},
    "offsets that descend": {"offsets": np.array([0, 7, 2, 10])},
    "offsets that begin late": {"offsets": np.array([1, 2, 7, 10])},
    "too few offsets": {"offsets": np.array([0, 2, 10])},
    "offsets of another type": {"offsets": np.array([0.0, 2.0, 7.0, 10.0])},
    "codes of another type": {"codes.1": np.zeros(20, np.int64)},
    "missing codes": {"codes.2": np.zeros(3, np.uint16)},
    "codes outside the codebook": {"codes.0": np.full(10, 9, np.uint16)},
    "embeddings of another size": {"embedding.style": np.zeros((3, 5), np.float16)},
    "embeddings that are not finite": {"embedding.style": np.full((3, 4), np.nan, np.float16)},
    "a tensor too many": {"embedding.accent": np.zeros((3, 5), np.float16)},
}
CODEC = {"name": "toy", "sample_rate": 8000, "codebook_size": 9, "hop_lengths": [400, 200, 100]}
METADATA = {
    "a wrong digest": {"digest": "0" * 64},
    "no digest": {"digest": ""},
    "a codec without levels": {"codec": CODEC | {"hop_lengths": []}},
    "a codec of hops of zero": {"codec": CODEC | {"hop_lengths": [400, 0, 100]}},
    "a codec of ten thousand levels": {"codec": CODEC | {"hop_lengths": [1] * 10**4}},
    "a codebook of terabytes": {"codec": CODEC | {"codebook_size": 2**63}},
    "an encoder of terabytes": {"encoders": {"identity": {"name": "who", "size": 2**40}}},
    "encoders as a list": {"encoders": [1, 2]},
    "an encoder without a size": {"encoders": {"identity": {"name": "who"}}},
    "utterances of numbers": {"utterances": [1, 2, 3]},
    "other utterances": {"utterances": []},
    "an unknown key": {"virus": True},
    "deep nesting": {"rejects": json.loads("[" * 200 + "]" * 200)},
    "a large number": {"fingerprint": 10**500},
}


@pytest.mark.parametrize("what", TENSORS)
def test_arrays_that_contradict_the_metadata_are_refused(shard: Path, what: str) -> None:
    rewrite(shard, TENSORS[what], {})
    with pytest.raises(DataError, match=r"shard-00000.safetensors: corrupt since it was written .*tokenize again"):
        read_shard(shard)
    with pytest.raises(DataError):
        load_corpus(shard.parent)


@pytest.mark.parametrize("what", METADATA)
def test_metadata_out_of_bounds_is_refused(shard: Path, what: str) -> None:
    rewrite(shard, {}, METADATA[what])
    with pytest.raises(DataError, match=r"shard-00000.safetensors: corrupt since it was written .*tokenize again"):
        read_shard(shard)


def test_embeddings_that_are_not_finite_are_not_written(tmp_path: Path) -> None:
    info = ShardInfo(codec=SPEC, encoders={"identity": EncoderInfo("who", 2)}, fingerprint="f",
                     utterances=(utterance(0),))  # fmt: skip
    codes = [tuple(np.zeros(n, np.int64) for n in SPEC.patch_layout)]
    for values in ([np.nan, 0.0], [1e9, 0.0]):
        with pytest.raises(DataError, match="should be 1 by 2 finite numbers"), np.errstate(over="ignore"):
            write_shard(shard_path(tmp_path, 0), info, codes, {"identity": np.array([values])})
    assert not list(tmp_path.iterdir())
