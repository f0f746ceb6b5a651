"""What the loop keeps, forgets and gives up."""

import json
from pathlib import Path

import torch
from torch import nn

from marstts.training.loop import BEST, LoopConfig, best, latest, read_log, restore, run, save


class Descent:
    """A weight that counts steps; its validation losses are told beforehand."""

    def __init__(self, losses: list[float]) -> None:
        self.weight = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.weight.weight)
        self.modules: dict[str, nn.Module] = {"weight": self.weight}
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        self.losses, self.resumed = losses, None

    def train_step(self, step):
        with torch.no_grad():
            self.weight.weight += 1
        return {"loss": float(step)}

    def validate(self, step, writer):
        return {"loss": self.losses[step]}

    def position(self, step):
        return {"batches": 10 * step}

    def resume(self, step, position):
        self.resumed = (step, dict(position))


def quiet(_: str) -> None:
    pass


def settings(**changes) -> LoopConfig:
    return LoopConfig(**{"steps": 9, "log_every": 1, "validate_every": 1, **changes})


def test_a_run_stops_when_validation_stalls_and_keeps_its_best(tmp_path: Path):
    losses = [5.0, 4.0, 3.0, 3.5, 2.0, 2.1, 2.2, 1.0, 0.5, 0.1]
    stubborn = Descent(losses)
    assert run(stubborn, settings(patience=2), tmp_path, quiet) == 6
    kept = best(tmp_path)
    assert kept == tmp_path / BEST and json.loads((kept / "state.json").read_text())["step"] == 4
    assert run(Descent(losses), settings(patience=2), tmp_path, quiet) == 6  # it stays stopped
    assert run(Descent(losses), settings(), tmp_path, quiet) == 9


def test_a_run_that_only_gets_worse_keeps_what_it_began_with(tmp_path: Path):
    run(Descent([1.0, 2.0, 3.0, 4.0]), settings(patience=3), tmp_path, quiet)
    assert json.loads((tmp_path / BEST / "state.json").read_text())["step"] == 0


def test_the_last_checkpoints_are_kept_every_so_many_steps(tmp_path: Path):
    run(Descent([0.0] * 10), settings(checkpoint_every=2, keep_checkpoints=3), tmp_path, quiet)
    assert [path.name for path in sorted(tmp_path.glob("step-*"))] == [f"step-0000000{n}" for n in (6, 8, 9)]
    assert best(tmp_path) == latest(tmp_path) == tmp_path / "step-00000009"


def test_steps_taken_again_are_logged_once(tmp_path: Path):
    run(Descent([0.0] * 10), settings(steps=4), tmp_path, quiet)
    (tmp_path / "step-00000004").rename(tmp_path / "gone")
    save(Descent([]), tmp_path, 2)
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('{"step": 3, "spl')  # killed while writing
    assert run(Descent([0.0] * 10), settings(steps=5), tmp_path, quiet) == 5
    trained = [line["step"] for line in read_log(tmp_path) if line["split"] == "train"]
    assert trained == [1, 2, 3, 4, 5]


def test_the_first_report_after_a_resume_is_the_mean_of_the_steps_taken_since(tmp_path: Path):
    options = {"log_every": 4, "validate_every": 8}
    run(Descent([0.0] * 10), settings(steps=3, **options), tmp_path, quiet)
    run(Descent([0.0] * 10), settings(steps=8, **options), tmp_path, quiet)
    trained = {line["step"]: line["loss"] for line in read_log(tmp_path) if line["split"] == "train"}
    assert trained == {4: 3.0, 8: (4 + 5 + 6 + 7) / 4}


def test_a_checkpoint_knows_where_the_data_stood(tmp_path: Path):
    save(Descent([]), tmp_path, 7)
    task = Descent([])
    assert restore(task, tmp_path) == 7 and task.resumed == (7, {"batches": 70})
