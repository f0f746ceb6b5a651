"""Manifests, shards, pairs, takes and lists of corpora: any bytes in them give a value or one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marstts.codec.base import CodecSpec
from marstts.generation.request import StopReason
from marstts_lab.data.corpora.synthetic import finished_rows
from marstts_lab.data.corpus import load_corpus
from marstts_lab.data.manifest import Utterance, read_manifest, scan_manifest, write_manifest
from marstts_lab.data.mined_takes import GeneratedHalf, MinedTake, PlannedTake, read_takes, write_takes
from marstts_lab.data.pairs import Pair, PairLine, SideLine, check_pairs, read_pairs, tensors_path, write_pairs
from marstts_lab.data.shards import EncoderInfo, ShardInfo, shard_path, write_shard
from test_fuzz_files import attack

pytestmark = pytest.mark.slow

SPEC = CodecSpec(name="toy", sample_rate=8000, codebook_size=9, hop_lengths=(400, 200, 100))
ENCODERS = {"identity": "who", "style": "how"}


def codes(seed: int, patches: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(0, 9, patches * count) for count in SPEC.patch_layout)


def embeddings(value: float) -> dict[str, np.ndarray]:
    return {"identity": np.full(5, value, np.float32), "style": np.full(4, -value, np.float32)}


def utterance(number: int) -> Utterance:
    return Utterance(
        id=f"u{number}", audio="a.wav", text="Grüße “an” alle.", speaker="s", style="regular", seconds=1.5,
        source_rate=8000, split="train", license="CC0",
    )  # fmt: skip


def attack_file(path: Path, read: Callable[[], Any], name: str) -> None:
    """Replace a file by mutations of itself."""
    seed = path.read_bytes()

    def read_content(content: bytes) -> None:
        path.write_bytes(content)
        read()

    attack([seed], read_content, name)


def test_manifests(tmp_path: Path) -> None:
    path = tmp_path / "utterances.jsonl"
    write_manifest(map(utterance, range(4)), path)

    def read() -> None:
        list(scan_manifest(path))
        finished_rows(Utterance, path)
        read_manifest(path)

    attack_file(path, read, "manifest")


def test_shards(tmp_path: Path) -> None:
    info = ShardInfo(
        codec=SPEC, encoders={"identity": EncoderInfo("who", 5), "style": EncoderInfo("how", 4)}, fingerprint="f",
        utterances=(utterance(0), utterance(1)), rejects=(("u9", "too long"),),
    )  # fmt: skip
    rows = {role: np.stack([values, values]) for role, values in embeddings(0.5).items()}
    write_shard(shard_path(tmp_path, 0), info, [codes(0, 3), codes(1, 2)], rows)
    attack_file(shard_path(tmp_path, 0), lambda: load_corpus(tmp_path), "shard")


def test_pairs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    line = PairLine(
        id="p", scheme="s", text="hello", transcript="before", speaker="anna", codec="toy", encoders=ENCODERS, row=0,
        chosen=SideLine(source="recording", patches=3, has_eos=True),
        rejected=SideLine(source="cycle x", patches=4, has_eos=False, seed=3, cer=0.5),
    )  # fmt: skip
    write_pairs([Pair(line, embeddings(1.0), codes(1, 2), codes(2, 3), codes(3, 4))], path, SPEC.patch_layout)
    check_pairs(read_pairs(path), SPEC, ENCODERS)
    attack_file(tensors_path(path), lambda: check_pairs(read_pairs(path), SPEC, ENCODERS), "pairs")


def test_takes(tmp_path: Path) -> None:
    path = tmp_path / "takes-00000.jsonl"
    plan = PlannedTake(
        id="t", reference="r", audio=Path("/a.wav"), transcript="words", speaker="anna", style="regular", text="hello",
        seed=1,
    )  # fmt: skip
    half = GeneratedHalf(embeddings(2.0), codes(0, 0), codes(4, 3), StopReason.EOS)
    take = MinedTake(plan, 0.2, codes(5, 3), half, half, None)
    write_takes([take], path, SPEC.patch_layout, {"identity": 5, "style": 4})
    attack_file(path, lambda: read_takes(path), "takes")
