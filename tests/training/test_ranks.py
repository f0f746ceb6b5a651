"""MARS6 trained by several processes under torchrun: the same as by one, also where one of them is killed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from marstts.errors import ConfigError
from marstts.training import distributed
from marstts.training.loop import read_log

SCRIPT = Path(__file__).with_name("ranks.py")


def torchrun(processes: int, *arguments: object) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "1"]
    command += ["--nproc-per-node", str(processes), str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """The run of one process, undisturbed."""
    from ranks import train

    folder = tmp_path_factory.mktemp("ranks") / "alone"
    train(folder)
    return folder


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory) -> tuple[Path, str]:
    """The run of two processes, one of which dies after three steps; and what they said."""
    folder = tmp_path_factory.mktemp("ranks") / "two"
    folder.mkdir()
    return folder, torchrun(2, folder, 3)


def same_as(run: Path, other: Path) -> None:
    for name in ("model", "average", "optimizer-model"):
        ours, theirs = (load_file(folder / "step-00000006" / f"{name}.safetensors") for folder in (run, other))
        assert ours.keys() == theirs.keys()
        for key, value in ours.items():
            torch.testing.assert_close(moved(key, value), moved(key, theirs[key]), rtol=1e-4, atol=2e-6, msg=key)


def moved(key: str, value: torch.Tensor) -> torch.Tensor:
    """What a loss can move of these weights: all but the keys' biases, which add the same to every score of a softmax.
    Their gradient is nothing but rounding, which Adam makes as large as any other.
    """
    return value[len(value) // 2 :] if key.endswith("key_value.bias") else value


def losses(run: Path) -> dict[int, list[float]]:
    """By step: all that one log says of it."""
    trained = [line for line in read_log(run) if line["split"] == "train"]
    return {
        line["step"]: [value for name, value in line.items() if name.startswith(("loss", "accuracy", "flux", "align"))]
        for line in trained
    }


def test_a_killed_process_costs_the_steps_since_the_checkpoint_and_changes_nothing(alone, disturbed):
    folder, said = disturbed
    assert (folder / "died").exists() and "resuming at step 2" in said
    same_as(folder, alone)


def test_two_processes_learn_from_the_same_batches_as_one(alone, disturbed):
    ours, theirs = losses(disturbed[0]), losses(alone)
    assert list(ours) == list(theirs) == [1, 2, 3, 4, 5, 6]
    for step, values in ours.items():
        assert values == pytest.approx(theirs[step], rel=1e-4, abs=1e-5)


def test_four_processes_go_on_where_two_were(alone, disturbed, tmp_path):
    checkpoint = "step-00000002"
    shutil.copytree(disturbed[0] / checkpoint, tmp_path / "four" / checkpoint)
    torchrun(4, tmp_path / "four")
    same_as(tmp_path / "four", alone)
    ours, theirs = losses(tmp_path / "four"), losses(alone)
    assert list(ours) == [3, 4, 5, 6]
    for step, values in ours.items():
        assert values == pytest.approx(theirs[step], rel=1e-4, abs=1e-5)


def test_batches_are_shared_out_in_turn_and_only_evenly(monkeypatch):
    monkeypatch.setattr(distributed, "world_size", lambda: 3)
    monkeypatch.setattr(distributed, "rank", lambda: 1)
    assert distributed.batches_of_step(12, 6) == [13, 16]
    with pytest.raises(ConfigError, match="a step of 4 batches cannot be shared by 3 processes"):
        distributed.batches_of_step(12, 4)
