"""The recipe that predicts codes of recordings by teacher forcing."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from toy_training import CORPUS, TOKENIZER, collator, config, write_shards

from marstts.mars6.model import Mars6
from marstts_lab.data.corpus import load_corpus

RECIPE = Path(__file__).resolve().parents[3] / "recipes" / "mini" / "predicted_codes.py"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script, for which the bundle has a small model with random weights."""
    spec = importlib.util.spec_from_file_location("predicted_codes", RECIPE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    TOKENIZER.save(tmp_path / "tokenizer.json")
    torch.manual_seed(0)
    model = Mars6(config().model)
    monkeypatch.setattr(module, "find_bundle", lambda name: tmp_path)
    monkeypatch.setattr(module, "load_for_training", lambda name: model)
    module.model = model
    return module


def test_a_patch_begins_as_recorded_and_goes_on_as_predicted_after_the_recorded_ones(recipe: ModuleType) -> None:
    rng = np.random.default_rng(0)
    items = next(recipe.batches(CORPUS, {f"u{i}" for i in range(5)}, rng))
    batch = collator()(items)
    model = recipe.model.eval()
    found = recipe.predict(model, batch, 0.0, rng)
    for row, tokens in enumerate(found):
        recorded = batch.patches[row, : len(tokens)]
        assert len(tokens) == batch.patch_lengths[row] - 1
        np.testing.assert_array_equal(tokens[:, 0], recorded[:, 0])
        for patch in range(len(tokens)):  # the slow obvious version: position by position, the best code of each
            trial = batch.patches[row : row + 1, : patch + 1].clone()
            for position in range(1, trial.shape[2]):
                trial[0, patch, :position] = torch.from_numpy(tokens[patch, :position])
                one = [part[row : row + 1] for part in batch.model_inputs()[:4]]
                with torch.no_grad():
                    output = model(*one, trial, torch.tensor([patch + 1]))
                level = model.config.position_levels[position]
                of_level = position - model.config.position_levels.index(level)
                scores = output.logits[level][-1, of_level, : model.config.codebook_size]
                assert tokens[patch, position] == int(scores.argmax()) + level * model.config.codebook_size


def test_the_shards_have_the_utterances_of_the_recordings_and_are_kept(
    recipe: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_shards(tmp_path / "shards")
    monkeypatch.setattr(sys, "argv", ["", "mini", str(tmp_path / "shards"), str(tmp_path / "predicted")])
    recipe.main()
    before, after = (load_corpus(tmp_path / name) for name in ("shards", "predicted"))
    assert list(before.utterances.strings("id")) == list(after.utterances.strings("id"))
    for index in range(len(before)):
        np.testing.assert_array_equal(before.codes_of(index)[0], after.codes_of(index)[0])
    assert any((before.codes_of(i)[2] != after.codes_of(i)[2]).any() for i in range(len(before)))
    times = [path.stat().st_mtime_ns for path in sorted((tmp_path / "predicted").iterdir())]
    recipe.main()
    assert times == [path.stat().st_mtime_ns for path in sorted((tmp_path / "predicted").iterdir())]
