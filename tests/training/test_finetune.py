"""From a folder of recordings to a bundle that speaks, by one command."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from marstts.audio import Waveform, write
from marstts.checkpoint import load_mars6
from marstts.cli.main import app
from marstts.errors import ConfigError
from marstts.training.finetune import gentle_settings, holds_recordings, listen
from marstts.training.loop import read_log

TEXTS = ("She sells sea shells.", "The cat sat on the mat.", "The mat sat.", "She sat on shells.")


@pytest.fixture(scope="module")
def my_voice(tmp_path_factory) -> Path:
    """Six recordings with their words beside them, and one without."""
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


def test_one_command_makes_a_bundle_of_ones_own_voice(toy_bundle: Path, my_voice: Path, tmp_path: Path):
    run = tmp_path / "run"
    # a hundredth of a minute: stopped after a step or so, as anyone may stop it
    words = ["train", "mars6", "--from", str(toy_bundle), "--data", str(my_voice), "--output", str(run)]
    result = CliRunner().invoke(app, [*words, "--minutes", "0.01"])
    assert result.exit_code == 0, result.output
    rejects = [json.loads(line) for line in (run / "corpus" / "rejects.jsonl").read_text().splitlines()]
    assert [reject["id"] for reject in rejects] == ["6"]
    first = read_log(run)[0]
    assert (first["step"], first["split"]) == (0, "validation")
    settings = json.loads((run / "config.json").read_text())
    assert settings["model"]["dropout"] == 0.1 and settings["loop"]["patience"] > 0
    tuned, before = load_mars6(run / "bundle").state_dict(), load_mars6(toy_bundle).state_dict()
    assert tuned.keys() == before.keys()
    assert json.loads((run / "bundle" / "bundle.json").read_text())["codec"]["kind"] == "toy"
    # the best checkpoint speaks: at the latest the beginning
    assert all(torch.allclose(tuned[name], before[name], atol=0.05) for name in tuned)


def test_recordings_need_something_to_begin_with(toy_bundle: Path, my_voice: Path, tmp_path: Path):
    words = ["train", "mars6", "--data", str(my_voice), "--output", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2 and "--from mini" in result.stderr
    (tmp_path / "step-00000001").mkdir()
    (tmp_path / "step-00000001" / "state.json").write_text("{}")
    with pytest.raises(ConfigError, match="which only a bundle has a codec and encoders for"):
        listen(my_voice, tmp_path / "new", str(tmp_path), 1, print)


def test_a_folder_with_recordings_and_no_shards_is_listened_to(my_voice: Path, tmp_path: Path):
    assert holds_recordings(my_voice) and not holds_recordings(tmp_path / "nothing")
    assert not holds_recordings(tmp_path)
    (tmp_path / "metadata.csv").write_text("a|b")
    assert holds_recordings(tmp_path)
    (tmp_path / "shard-00000.safetensors").write_bytes(b"")
    assert not holds_recordings(tmp_path)


def test_gentle_settings_keep_the_model_and_learn_slowly(toy_bundle: Path):
    settings = gentle_settings(str(toy_bundle))
    assert settings.model.width == 32 and settings.model.dropout > 0
    assert settings.optimizer.learning_rate < 5e-4 and settings.loop.patience
