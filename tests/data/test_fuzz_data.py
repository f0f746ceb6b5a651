"""Manifests, shards, pairs, takes and lists of corpora: any bytes in them give a value or one sentence."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import miniature_corpora
from marstts.codec.base import CodecSpec
from marstts.data.corpora.build_manifest import ManifestConfig, build_manifest
from marstts.data.corpora.catalog import RECIPES
from marstts.data.corpora.folder import folder
from marstts.data.corpora.synthetic import SyntheticConfig, finished_rows, read_sentences
from marstts.data.corpus import load_corpus
from marstts.data.manifest import Utterance, read_manifest, scan_manifest, write_manifest
from marstts.data.mined_takes import GeneratedHalf, MinedTake, PlannedTake, read_takes, write_takes
from marstts.data.pairs import Pair, PairLine, SideLine, check_pairs, read_pairs, tensors_path, write_pairs
from marstts.data.shards import EncoderInfo, ShardInfo, shard_path, write_shard
from marstts.generation.request import StopReason
from marstts.preference.mine import read_texts
from test_fuzz_files import attack

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


@pytest.mark.parametrize("which", ["lines", "tensors"])
def test_pairs(which: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    line = PairLine(
        id="p", scheme="s", text="hello", transcript="before", speaker="anna", codec="toy", encoders=ENCODERS, row=0,
        chosen=SideLine(source="recording", patches=3, has_eos=True),
        rejected=SideLine(source="cycle x", patches=4, has_eos=False, seed=3, cer=0.5),
    )  # fmt: skip
    write_pairs([Pair(line, embeddings(1.0), codes(1, 2), codes(2, 3), codes(3, 4))], path, SPEC.patch_layout)
    check_pairs(read_pairs(path), SPEC, ENCODERS)
    target = path if which == "lines" else tensors_path(path)
    attack_file(target, lambda: check_pairs(read_pairs(path), SPEC, ENCODERS), f"pairs {which}")


@pytest.mark.parametrize("which", ["lines", "tensors"])
def test_takes(which: str, tmp_path: Path) -> None:
    path = tmp_path / "takes-00000.jsonl"
    plan = PlannedTake(
        id="t", reference="r", audio=Path("/a.wav"), transcript="words", speaker="anna", style="regular", text="hello",
        seed=1,
    )  # fmt: skip
    half = GeneratedHalf(embeddings(2.0), codes(0, 0), codes(4, 3), StopReason.EOS)
    take = MinedTake(plan, 0.2, codes(5, 3), half, half, None)
    write_takes([take], path, SPEC.patch_layout, {"identity": 5, "style": 4})
    target = path if which == "lines" else path.with_suffix(".safetensors")
    attack_file(target, lambda: read_takes(path), f"takes {which}")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
def test_files_of_sentences(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"sentences{suffix}"
    content = "".join(f"rules\tThe ship number {'abcdefghij'[n % 10] * (n + 1)} left.\n" for n in range(9)).encode()
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    config = SyntheticConfig(base_voices=("flite-slt",))

    def read() -> None:
        read_texts(path, 100)
        read_sentences([(path, 1.0)], config)

    attack_file(path, read, f"sentences{suffix}")


LISTS = {
    "libriheavy": "libriheavy_cuts_small.jsonl.gz",
    "ccv2": "transcripts.jsonl",
    "ears": "transcripts.json",
    "globe": "data/train-00000-of-00001.parquet",
    "ljspeech": "metadata.csv",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LISTS)
def test_lists_of_corpora(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in {"globe": ["pyarrow"], "ljspeech": ["lhotse", "torch"]}.get(name, []):
        pytest.importorskip(package)
    root = tmp_path / "corpus"
    root.mkdir()
    getattr(miniature_corpora, name)(root)
    config = ManifestConfig(max_reject_ratio=1.0)
    attack_file(root / LISTS[name], lambda: build_manifest(RECIPES[name].open(root), tmp_path / "out", config), name)


@pytest.mark.slow
def test_tables_of_folders(tmp_path: Path) -> None:
    for name in ("a", "b"):
        miniature_corpora.record(tmp_path / "mine" / f"{name}.wav", 24_000)
    table = tmp_path / "mine" / "metadata.csv"
    table.write_text("a|Good morning.|anna\nb.wav|Grüße an alle.\n\nc|There is no such file.\n", encoding="utf-8")
    config = ManifestConfig(max_reject_ratio=1.0)

    def read() -> None:
        build_manifest(folder(tmp_path / "mine", "CC0"), tmp_path / "out", config)
        for line in (tmp_path / "out" / "rejects.jsonl").read_text(encoding="utf-8").splitlines():
            assert json.loads(line)["reason"]

    attack_file(table, read, "table")
