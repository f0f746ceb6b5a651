"""The twin that reads a BPE: its vocabulary begins with the bytes of the model that teaches it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from toy_training import CONFIG, CORPUS, TOKENIZER, config, write_shards

from marstts.mars6.model import Mars6
from marstts.mars6.prompt import SPECIAL_TOKENS
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.training.mars6.run_folder import train_tokenizer, trained_model

RECIPE = Path(__file__).resolve().parents[3] / "recipes" / "twins" / "bpe.py"
NUM_BYTES = 256 + len(SPECIAL_TOKENS)


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script, for which mini is a small model of bytes."""
    spec = importlib.util.spec_from_file_location("bpe_twin", RECIPE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    train_tokenizer(CORPUS, NUM_BYTES).save(tmp_path / "tokenizer.json")
    torch.manual_seed(0)
    teacher = Mars6(config(model={"text_vocab_size": NUM_BYTES}).model)
    monkeypatch.setattr(module, "find_bundle", lambda name: tmp_path)
    monkeypatch.setattr(module, "load_for_training", lambda name: teacher)
    module.teacher = teacher
    return module


def test_a_merge_begins_as_the_mean_of_its_bytes_and_bytes_as_they_were(recipe: ModuleType, tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "bpe" / "tokenizer.json")
    bytes_ids, bpe_ids = recipe.symbols_of(tmp_path), recipe.symbols_of(tmp_path / "bpe")
    assert len(bytes_ids) == NUM_BYTES and len(bpe_ids) == TOKENIZER.vocab_size
    rows = torch.randn(NUM_BYTES, 5)
    found = recipe.with_merges(rows, bytes_ids, bpe_ids)
    torch.testing.assert_close(found[:NUM_BYTES], rows)
    for index in range(NUM_BYTES, TOKENIZER.vocab_size):
        parts = train_tokenizer(CORPUS, NUM_BYTES).encode(TOKENIZER.decode([index]))
        assert len(parts) > 1
        torch.testing.assert_close(found[index], rows[parts].mean(dim=0))


def test_the_model_learns_from_the_distribution_of_its_teacher_and_bytes_stay(
    recipe: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_shards(tmp_path / "shards")
    settings = {
        **CONFIG, "letters_distillation": {}, "precision": "fp32", "loop": {**CONFIG["loop"], "steps": 30},
        "model": {**CONFIG["model"], "text_vocab_size": TOKENIZER.vocab_size},
    }  # fmt: skip
    (tmp_path / "config.toml").write_text(as_toml(settings))
    arguments = ["bpe.py", str(tmp_path / "config.toml"), str(tmp_path / "shards"), str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", arguments)
    recipe.main()
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    losses = [line["distill_loss"] for line in lines if line["split"] == "validation"]
    assert losses[-1] < losses[0]
    trained = trained_model(tmp_path / "run")
    assert (
        trained.config.text_vocab_size == TOKENIZER.vocab_size == BPE.load(tmp_path / "run/tokenizer.json").vocab_size
    )
    torch.testing.assert_close(
        trained.encoder.text_embedding.weight[:NUM_BYTES], recipe.teacher.encoder.text_embedding.weight
    )
    recipe.main()  # nothing is left to do


def test_the_teacher_reads_the_same_texts_in_bytes(recipe: ModuleType) -> None:
    settings = config(letters_distillation={}, model={"text_vocab_size": TOKENIZER.vocab_size})
    bytes_tokenizer = train_tokenizer(CORPUS, NUM_BYTES)
    task = recipe.BpeTask(settings, CORPUS, TOKENIZER, bytes_tokenizer)
    batch = task.training_batch(0)
    assert batch.letters["is_distilled"].all() and int(batch.letters["ids"].max()) < NUM_BYTES
    for row, length in enumerate(batch.letters["lengths"].tolist()):
        ours = TOKENIZER.decode(batch.text_ids[row, : batch.text_lengths[row]].tolist())
        assert bytes_tokenizer.decode(batch.letters["ids"][row, :length].tolist()) == ours


def as_toml(values: dict[str, object]) -> str:
    """Values and tables of values as TOML."""
    plain = [f"{name} = {json.dumps(value)}" for name, value in values.items() if not isinstance(value, dict)]
    tables = [f"[{name}]\n{as_toml(value)}" for name, value in values.items() if isinstance(value, dict)]
    return "\n".join([*plain, *tables]) + "\n"
