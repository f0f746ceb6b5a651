"""MARS6 trained by several processes under torchrun: the same as by one, also where one of them is killed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from forked_commands import TRAINING, ForkedCommands
from marstts_lab.training import distributed
from marstts_lab.training.loop import read_log

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("ranks.py")


@pytest.fixture(scope="module")
def torchrun(tmp_path_factory) -> Iterator[Callable[..., str]]:
    """Run the script in some processes; their output."""
    commands = ForkedCommands(tmp_path_factory.mktemp("commands"), (*TRAINING, "training.ranks"), ranks=SCRIPT)

    def run(processes: int, *arguments: object) -> str:
        command = [str(commands.bin / "torchrun"), "--standalone", "--max-restarts", "1", "--nproc-per-node"]
        command += [str(processes), "--no-python", "ranks", *map(str, arguments)]
        environment = commands.environment({})
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout + done.stderr

    yield run
    commands.close()


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """The run of one process, undisturbed."""
    from ranks import pretrain

    folder = tmp_path_factory.mktemp("ranks") / "alone"
    pretrain(folder)
    return folder


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory, torchrun) -> tuple[Path, str]:
    """The run of two processes, one of which dies after three steps; and their output."""
    folder = tmp_path_factory.mktemp("ranks") / "two"
    folder.mkdir()
    return folder, torchrun(2, "pretrain", folder, 3)


def same_as(run: Path, other: Path, step: int = 6) -> None:
    for name in ("model", "ema", "optimizer-model"):
        ours, theirs = (load_file(folder / f"step-{step:08d}" / f"{name}.safetensors") for folder in (run, other))
        assert ours.keys() == theirs.keys()
        for key, value in ours.items():
            torch.testing.assert_close(trained(key, value), trained(key, theirs[key]), rtol=1e-4, atol=1e-5, msg=key)


def trained(key: str, value: torch.Tensor) -> torch.Tensor:
    """The part of the weights that a loss trains: all but the keys' biases, which no softmax depends on.

    The gradient of these biases is rounding error, which Adam scales to the size of any other.
    """
    return value[len(value) // 2 :] if key.endswith("key_value.bias") else value


def losses(run: Path) -> dict[int, list[float]]:
    """All logged losses and accuracies by step."""
    trained = [line for line in read_log(run) if line["split"] == "train"]
    return {
        line["step"]: [
            value for name, value in line.items() if name.startswith(("loss", "accuracy", "flux", "attention"))
        ]
        for line in trained
    }


@pytest.mark.end_to_end
def test_a_killed_process_costs_the_steps_since_the_checkpoint_and_changes_nothing(alone, disturbed):
    folder, output = disturbed
    assert (folder / "died").exists() and "resuming at step 2" in output
    same_as(folder, alone)


@pytest.mark.end_to_end
def test_two_processes_train_on_the_same_batches_as_one(alone, disturbed):
    ours, theirs = losses(disturbed[0]), losses(alone)
    assert list(ours) == list(theirs) == [1, 2, 3, 4, 5, 6]
    for step, values in ours.items():
        assert values == pytest.approx(theirs[step], rel=1e-4, abs=1e-5)


@pytest.mark.end_to_end
def test_four_processes_resume_the_run_of_two(alone, disturbed, tmp_path, torchrun):
    checkpoint = "step-00000002"
    shutil.copytree(disturbed[0] / checkpoint, tmp_path / "four" / checkpoint)
    torchrun(4, "pretrain", tmp_path / "four")
    same_as(tmp_path / "four", alone)
    ours, theirs = losses(tmp_path / "four"), losses(alone)
    assert list(ours) == [3, 4, 5, 6]
    for step, values in ours.items():
        assert values == pytest.approx(theirs[step], rel=1e-4, abs=1e-5)


@pytest.mark.end_to_end
def test_three_processes_train_on_pairs_as_one(tmp_path, torchrun):
    from ranks import preference

    preference(tmp_path / "one")
    torchrun(3, "preference", tmp_path / "three")
    same_as(tmp_path / "three", tmp_path / "one", step=4)
    names = ("loss", "chosen_nll", "preference_loss", "margin", "preference_accuracy", "grad_norm")
    ours, theirs = (
        [[line[name] for name in names] for line in read_log(tmp_path / run) if line["split"] == "train"]
        for run in ("three", "one")
    )
    assert len(ours) == 4
    for one, other in zip(ours, theirs, strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("rows", [1, 11, 12, 13])
@pytest.mark.parametrize(("processes", "batches"), [(1, 8), (3, 8), (5, 5), (6, 8), (7, 1), (8, 8), (32, 8), (96, 8)])
def test_any_number_of_processes_shares_every_row_of_a_step_once(monkeypatch, processes, batches, rows):
    monkeypatch.setattr(distributed, "world_size", lambda: processes)
    taken, most = [], 0
    for rank in range(processes):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        shares = distributed.shares_of_step(40, batches)
        mine = [
            (share.number, row) for share in shares for row in range(rows)[share.rows(rows)] if not share.is_empty(rows)
        ]
        assert shares and all(len(range(rows)[share.rows(rows)]) for share in shares)
        taken, most = taken + mine, max(most, len(mine))
    assert sorted(taken) == [(40 + batch, row) for batch in range(batches) for row in range(rows)]
    assert most <= rows * batches / processes + 1 + batches % processes
