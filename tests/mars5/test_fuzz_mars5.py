"""Corrupt files of MARS5: tokenizers, published checkpoints and the parts of a bundle (see `test_fuzz_files`)."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

from test_mars5_bundle import bundle  # noqa: F401

from mars5_published import ar_content, nar_content, save
from marstts.mars5.checkpoint import load_released
from marstts.mars5.text import END_OF_SPEECH, SpeechBPE
from marstts.synthesis.loading import load
from test_fuzz_commands import mutated_json
from test_fuzz_files import INPUTS, attack

TOKENIZER = SpeechBPE(((0, 1), (2, 2), (13, 3), (14, 14)), {END_OF_SPEECH: 17}, 13)


def test_speech_tokenizers(tmp_path: Path) -> None:
    path = tmp_path / "speech.json"
    TOKENIZER.save(path)
    seed = path.read_bytes()

    def read(content: bytes) -> None:
        path.write_bytes(content)
        SpeechBPE.load(path).encode([0, 1, 2, 2, 3])

    attack([seed], read, "speech tokenizer")

    def read_values(content: bytes) -> None:
        read(mutated_json(seed, random.Random(content)))

    attack([seed], read_values, "values of a speech tokenizer")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_published_checkpoints(suffix: str, tmp_path: Path) -> None:
    path = save(ar_content(), tmp_path / f"ar{suffix}")
    other = save(nar_content(), tmp_path / f"nar{suffix}")
    seed = path.read_bytes()

    def read(content: bytes) -> None:
        path.write_bytes(content + seed[2000:])
        load_released(path, other, ar_heads=4, nar_heads=3)

    attack([seed[:2000]], read, f"published MARS5 {suffix}")


@pytest.mark.slow
def test_bundles(bundle: Path, tmp_path: Path) -> None:  # noqa: F811
    copy = Path(shutil.copytree(bundle, tmp_path / "mars5"))
    for path in sorted(path for path in copy.rglob("*") if path.is_file() and path.name != "nar.safetensors"):
        seed = path.read_bytes()
        attack([seed[:4000]], reader(copy, path, seed), f"MARS5 bundle {path.name}", INPUTS // 5)
        path.write_bytes(seed)


def reader(folder: Path, path: Path, seed: bytes) -> Callable[[bytes], None]:
    def read(content: bytes) -> None:
        is_json = path.suffix == ".json" and random.Random(content).random() < 0.7
        path.write_bytes(mutated_json(seed, random.Random(content)) if is_json else content + seed[4000:])
        load(folder)

    return read
