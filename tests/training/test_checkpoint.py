"""Checkpoints: written atomically, refused in one sentence where malformed, with a fallback to the one before."""

from __future__ import annotations

import json
import logging
import os
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from marstts.errors import CheckpointError
from marstts_lab.training.checkpoint import checkpoints, latest, load_weights, restore, save

pytestmark = pytest.mark.slow


class Small:
    """Two weights under AdamW."""

    def __init__(self, width: int = 3) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(width, 2)
        self.modules: dict[str, nn.Module] = {"model": self.model}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.optimizers: dict[str, torch.optim.Optimizer] = {"model": self.optimizer}
        self.batches = 0

    def train(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(1, self.model.in_features)).square().sum().backward()
        self.optimizer.step()
        self.batches += 3

    def data_state(self, step: int) -> dict[str, int]:
        return {"batches": self.batches}

    def load_data_state(self, step: int, state: dict[str, int]) -> None:
        self.batches = state["batches"]

    def values(self) -> list[list[float]]:
        moments = [state["exp_avg"] for state in self.optimizer.state.values()]
        return [tensor.flatten().tolist() for tensor in (*self.model.parameters(), *moments)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Checkpoints of steps 1 and 2, which differ."""
    task = Small()
    for step in (1, 2):
        task.train()
        save(task, tmp_path, step)
    return tmp_path


def restored(run: Path) -> tuple[int, Small]:
    task = Small()
    return restore(task, run), task


def test_weights_optimizer_and_data_state_are_restored(run: Path) -> None:
    task = Small()
    task.train()
    task.train()
    step, other = restored(run)
    assert (step, other.batches) == (2, 6) and other.values() == task.values()


FILES = ("model.safetensors", "optimizer-model.safetensors", "state.json")
DAMAGES = ("truncated", "empty", "folder", "device", "pipe")


@pytest.mark.parametrize(
    ("file", "damage"), [("model.safetensors", "missing"), *((file, damage) for file in FILES for damage in DAMAGES)]
)
def test_the_checkpoint_before_a_corrupt_one_is_resumed_with_a_warning(
    file: str, damage: str, run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = Small()
    expected.train()
    path = run / "step-00000002" / file
    content = path.read_bytes()
    path.unlink()
    match damage:
        case "truncated":
            path.write_bytes(content[:-10])
        case "empty":
            path.write_bytes(b"")
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(path)
    with caplog.at_level(logging.WARNING):
        step, task = restored(run)
    assert step == 1 and task.batches == 3 and task.values() == expected.values()
    assert f"step-00000002{os.sep}{file}" in caplog.text and "step-00000001 is used instead" in caplog.text


def test_the_next_checkpoint_replaces_a_corrupt_newer_one(run: Path) -> None:
    (run / "step-00000002").rename(run / "step-00000009")
    (run / "step-00000009" / "model.safetensors").write_bytes(b"")
    step, task = restored(run)
    assert step == 1
    save(task, run, 3)
    assert [path.name for path in checkpoints(run)] == ["step-00000003", "step-00000001"]


def test_no_readable_checkpoint_is_an_error_that_leaves_the_task_as_it_was(run: Path) -> None:
    for checkpoint in checkpoints(run):
        (checkpoint / "optimizer-model.safetensors").write_bytes(b"")
    task = Small()
    before = task.values()
    with pytest.raises(CheckpointError, match=r"step-00000002/optimizer-model\.safetensors: expected weights"):
        restore(task, run)
    assert task.values() == before


def test_weights_of_other_shapes_are_named(run: Path) -> None:
    with pytest.raises(CheckpointError, match=r"weight is \(2, 3\) instead of \(2, 5\).*use another folder"):
        restore(Small(width=5), run)
    with pytest.raises(CheckpointError, match=r"0\.exp_avg of shape"):
        tensors = load_file(run / "step-00000002" / "optimizer-model.safetensors")
        for checkpoint in checkpoints(run):
            save_file({**tensors, "0.exp_avg": torch.zeros(7)}, checkpoint / "optimizer-model.safetensors")
        restored(run)
    with pytest.raises(CheckpointError, match="weight is missing"):
        save_file({"bias": torch.zeros(2)}, run / "bias.safetensors")
        load_weights(nn.Linear(3, 2), run / "bias.safetensors")


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "null", '"2"', "{}", '{"step": -1}', '{"step": 1.5}', '{"step": "2"}', '{"step": true}',
        '{"step": 1e999}', '{"step": NaN}', '{"step": ' + "9" * 5000 + "}", '{"step": 9999999999999999999}',
        '{"step": 2, "batches": -3}', '{"step": 2, "batches": []}', '{"step": 2, "other": 1}', "[" * 100_000,
        '{"step": 2, "batches": "\\ud800"}', "\xff",
    ],
)  # fmt: skip
def test_a_malformed_state_is_refused_in_one_sentence(content: str, run: Path) -> None:
    (run / "step-00000001" / "state.json").unlink()
    (run / "step-00000002" / "state.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(CheckpointError) as caught:
        restored(run)
    assert "state.json" in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize("file", FILES)
def test_random_mutations_of_a_checkpoint_are_loaded_or_refused(file: str, tmp_path: Path) -> None:
    rng = random.Random(17)
    save(Small(), tmp_path, 1)
    path = tmp_path / "step-00000001" / file
    content = path.read_bytes()
    refused = 0
    for _ in range(150):
        mutated = bytearray(content)
        for _ in range(rng.choice((1, 1, 4, 30))):
            mutated[rng.randrange(len(mutated))] = rng.choice((0, 255, 34, 57, 123, rng.randrange(256)))
        start = rng.randrange(len(mutated))
        path.write_bytes(mutated if rng.random() < 0.8 else mutated[:start] + mutated[start + rng.randrange(9) :])
        try:
            restored(tmp_path)
        except CheckpointError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 10


def test_a_checkpoint_that_cannot_be_written_is_an_error_and_keeps_the_others(run: Path) -> None:
    (run / "step-00000003").write_text("a file is in the way")
    with pytest.raises(CheckpointError, match="expected a folder"):
        save(Small(), run, 3)
    newest = latest(run)
    assert newest is not None and newest.name == "step-00000002"


def test_checkpoints_hold_the_step_and_the_position_in_the_data(run: Path) -> None:
    assert json.loads((run / "step-00000002" / "state.json").read_text()) == {"step": 2, "batches": 6}
