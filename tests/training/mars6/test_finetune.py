"""Fine-tuning: from a folder of recordings to a bundle, by one command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from marstts.audio import Waveform, write
from marstts.cli.main import app
from marstts.errors import CheckpointError, ConfigError, DataError
from marstts.models import load_for_training
from marstts.training.mars6.finetune import (
    KeptCheckpoint,
    check_folders,
    finetune_defaults,
    holds_recordings,
    kept_checkpoint,
    tokenize_recordings,
)
from marstts.training.run_log import read_log

TEXTS = ("She sells sea shells.", "The cat sat on the mat.", "The mat sat.", "She sat on shells.")


@pytest.fixture(scope="module")
def my_voice(tmp_path_factory) -> Path:
    """Six recordings with texts next to them, and one without."""
    folder = tmp_path_factory.mktemp("recordings") / "my_voice"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for index in range(7):
        time = np.arange(int(16_000 * (1.0 + 0.2 * index))) / 16_000
        tone = 0.2 * np.sin(2 * np.pi * (150 + 20 * index) * time) + 0.01 * rng.normal(size=len(time))
        write(Waveform(tone.astype(np.float32), 16_000), folder / f"{index}.wav")
        if index < 6:
            (folder / f"{index}.txt").write_text(TEXTS[index % 4])
    return folder


def run_command(*words: object) -> Result:
    return CliRunner().invoke(app, ["finetune", *map(str, words)])


@pytest.mark.slow
def test_one_command_writes_a_bundle_of_a_voice(toy_bundle: Path, my_voice: Path, tmp_path: Path):
    run = tmp_path / "run"
    # a hundredth of a minute: stopped after a step or so
    words = ("--init-from", toy_bundle, "--data", my_voice, "--output", run)
    result = run_command(*words, "--max-minutes", "0.01")
    assert result.exit_code == 0, result.output
    rejects = [json.loads(line) for line in (run / "corpus" / "rejects.jsonl").read_text().splitlines()]
    assert [reject["id"] for reject in rejects] == ["6"]
    first = read_log(run)[0]
    assert (first["step"], first["split"]) == (0, "validation")
    settings = json.loads((run / "config.json").read_text())
    assert settings["model"]["dropout"] == 0.1 and settings["loop"]["patience"] > 0
    tuned, before = (load_for_training(folder).state_dict() for folder in (run / "bundle", toy_bundle))
    assert tuned.keys() == before.keys()
    assert json.loads((run / "bundle" / "bundle.json").read_text())["codec"]["kind"] == "toy"
    # the checkpoint with the lowest validation loss is exported: at least the initial one
    assert all(torch.allclose(tuned[name], before[name], atol=0.05) for name in tuned)
    assert kept_checkpoint(run).summary in result.stdout and "kept" in result.stdout


def test_the_kept_step_is_reported_with_its_gain():
    assert KeptCheckpoint(175, 3.13, 4.28).summary == (
        "step 175 was kept: its validation loss is 3.130, 1.150 lower than that of the initial model (4.280)"
    )
    assert "no step had a lower validation loss than the initial model (4.280)" in KeptCheckpoint(0, 4.28, 4.28).summary
    assert "step 60 was kept; it was not compared" in KeptCheckpoint(60, None, None).summary


def test_a_run_without_checkpoints_has_no_kept_step(tmp_path: Path):
    with pytest.raises(CheckpointError, match="run the same command again to resume"):
        kept_checkpoint(tmp_path)


def test_recordings_are_tokenized_by_a_bundle_only(my_voice: Path, tmp_path: Path):
    (tmp_path / "step-00000001").mkdir()
    (tmp_path / "step-00000001" / "state.json").write_text("{}")
    with pytest.raises(ConfigError, match="which only a bundle has a codec and encoders for"):
        tokenize_recordings(my_voice, tmp_path / "new", str(tmp_path), 1)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("nope", "nope: no such folder"), ("file", "but this is a file"), ("empty", "no recordings here")],
)
def test_folders_without_recordings_are_refused_before_anything_is_opened(name: str, complaint: str, tmp_path: Path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=complaint):
        check_folders([tmp_path / name])
    result = run_command("--init-from", "no-such-model", "--data", tmp_path / name, "--output", tmp_path / "run")
    assert result.exit_code == 2 and complaint in result.stderr and result.stderr.count("\n") == 1


def test_train_mars6_points_recordings_to_finetune(my_voice: Path, tmp_path: Path):
    (tmp_path / "mars6.toml").write_text("[model]\n[loop]\nsteps = 1\n")
    words = ["train", "mars6", "--data", str(my_voice), "--config", str(tmp_path / "mars6.toml")]
    result = CliRunner().invoke(app, [*words, "--output", str(tmp_path / "run")])
    assert result.exit_code == 2 and "marstts finetune --data" in result.stderr


def test_a_folder_holds_recordings_where_it_has_audio_or_a_table_and_no_shards(my_voice: Path, tmp_path: Path):
    assert holds_recordings(my_voice) and not holds_recordings(tmp_path / "nothing")
    assert not holds_recordings(tmp_path)
    (tmp_path / "metadata.csv").write_text("a|b")
    assert holds_recordings(tmp_path)
    (tmp_path / "shard-00000.safetensors").write_bytes(b"")
    assert not holds_recordings(tmp_path)


def test_the_defaults_keep_the_model_and_learn_slowly(toy_bundle: Path):
    settings = finetune_defaults(str(toy_bundle))
    assert settings.model.width == 32 and settings.model.dropout > 0
    assert settings.optimizer.learning_rate < 5e-4 and settings.loop.patience
