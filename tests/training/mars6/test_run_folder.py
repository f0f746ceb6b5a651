"""The run folder of a MARS6: tokenizer, configuration, initial weights, trained model."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from toy_training import CORPUS, VOCAB, config, make_corpus, task
from typer.testing import CliRunner

from marstts.cli.main import app
from marstts.errors import CheckpointError, DataError
from marstts.mars6.model import Mars6
from marstts.models import load_for_training
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.training.checkpoint import restore, save
from marstts_lab.training.mars6.run_folder import init_from, open_run, trained_model
from marstts_lab.training.run_log import check_data_folders

pytestmark = pytest.mark.slow


def test_data_folders_that_do_not_exist_are_named(tmp_path):
    with pytest.raises(DataError, match=r"nope: no such folder; --data takes a folder of shards"):
        check_data_folders([tmp_path / "nope"])
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="expected a folder of shards, but this is a file"):
        check_data_folders([tmp_path / "file"])


def test_the_command_names_data_that_does_not_exist(tmp_path):
    (tmp_path / "mars6.toml").write_text("[model]\n[loop]\nsteps = 1\n")
    words = ["train", "mars6", "--data", str(tmp_path / "nope"), "--config", str(tmp_path / "mars6.toml")]
    result = CliRunner().invoke(app, [*words, "--output", str(tmp_path / "run")])
    assert result.exit_code == 2 and "nope: no such folder" in result.stderr and result.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_checkpoint_before_a_corrupt_one_is_used_with_a_warning(tmp_path, caplog):
    settings = config()
    open_run(tmp_path, settings, CORPUS)
    learner = task(settings)
    learner.train_step(0)
    save(learner, tmp_path, 1)
    expected = {name: value.clone() for name, value in learner.ema.state_dict().items()}
    learner.train_step(1)
    save(learner, tmp_path, 2)
    weights = tmp_path / "step-00000002" / "ema.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    model = trained_model(tmp_path)
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    assert "step-00000002" in caplog.text and "step-00000001 is used instead" in caplog.text
    (tmp_path / "step-00000001" / "ema.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="expected weights as safetensors"):
        trained_model(tmp_path)


def test_a_run_folder_keeps_tokenizer_and_configuration_and_returns_its_model(tmp_path):
    settings = config()
    tokenizer = open_run(tmp_path, settings, CORPUS)
    assert tokenizer.vocab_size == VOCAB
    assert open_run(tmp_path, settings, make_corpus(12)).encode("One two.") == tokenizer.encode("One two.")
    with pytest.raises(CheckpointError, match="no checkpoint here"):
        trained_model(tmp_path)
    learner = task(settings)
    learner.train_step(0)
    save(learner, tmp_path, 1)
    model = trained_model(tmp_path)
    for name, value in model.state_dict().items():
        assert torch.equal(value, learner.ema.state_dict()[name])


def test_a_run_with_checkpoints_keeps_the_configuration_of_its_model(tmp_path):
    settings = config()
    open_run(tmp_path, config(model={"heads": 4}), CORPUS)  # no checkpoint yet: this may still change
    open_run(tmp_path, settings, CORPUS)
    save(task(settings), tmp_path, 1)
    before = (tmp_path / "config.json").read_bytes()
    for change in ({"width": 40}, {"heads": 4}):  # of other shapes, and of the same
        with pytest.raises(
            CheckpointError, match=r"config.json: the checkpoints here are of another model \(\w+ is \d"
        ):
            open_run(tmp_path, config(model=change), CORPUS)
    assert (tmp_path / "config.json").read_bytes() == before
    trained_model(tmp_path)
    open_run(tmp_path, config(model={"dropout": 0.1}, loop={"steps": 9}), CORPUS)  # what training alone uses may change


def test_init_from_copies_the_ema_weights_of_another_run(tmp_path):
    settings = config()
    tokenizer = open_run(tmp_path / "base", settings, CORPUS)
    base = task(settings)
    base.train_step(0)
    save(base, tmp_path / "base", 1)
    assert open_run(tmp_path / "tuned", settings, CORPUS, tmp_path / "base").encode("Two.") == tokenizer.encode("Two.")
    tuned = task(config(loop={"seed": 9}))
    init_from(tuned, tmp_path / "base")
    for module in tuned.modules.values():
        for name, value in module.state_dict().items():
            assert torch.equal(value, base.ema.state_dict()[name])
    other = task(config(model={"width": 64}))
    with pytest.raises(CheckpointError, match="do not fit"):
        init_from(other, tmp_path / "base")


def test_init_from_copies_the_weights_and_the_tokenizer_of_a_bundle(toy_bundle: Path, tmp_path: Path):
    published = load_for_training(toy_bundle)
    modules = {name: Mars6(published.config) for name in ("model", "ema")}
    fresh = SimpleNamespace(modules=modules, tokenizer=BPE.load(toy_bundle / "tokenizer.json"))
    init_from(fresh, toy_bundle)
    for module in fresh.modules.values():
        for name, value in module.state_dict().items():
            assert torch.equal(value, published.state_dict()[name])
    words = open_run(tmp_path, config(), CORPUS, toy_bundle)
    assert words.encode("Two.") == BPE.load(toy_bundle / "tokenizer.json").encode("Two.")


def test_restoring_a_checkpoint_restores_the_optimizer(tmp_path):
    learner = task()
    learner.train_step(0)
    save(learner, tmp_path, 1)
    other = task()
    assert restore(other, tmp_path) == 1
    one, two = learner.train_step(1), other.train_step(1)
    assert float(one["loss"]) == float(two["loss"]) and float(one["grad_norm"]) == float(two["grad_norm"])
