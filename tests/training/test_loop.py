"""The training loop: early stopping, checkpoints, logs, resumption, locks."""

from __future__ import annotations

import errno
import json
import logging
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from marstts.errors import CheckpointError
from marstts.io.files import lock_folder
from marstts_lab.training.checkpoint import BEST, best, latest, restore, save
from marstts_lab.training.distributed import lock_run
from marstts_lab.training.loop import LoopConfig, Pace, run
from marstts_lab.training.run_log import read_log

pytestmark = pytest.mark.slow


class Descent:
    """A weight that counts steps; its validation losses are given."""

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

    def validate(self, step):
        return {"loss": self.losses[step]}

    def data_state(self, step):
        return {"batches": 10 * step}

    def load_data_state(self, step, state):
        self.resumed = (step, dict(state))


def settings(**changes) -> LoopConfig:
    return LoopConfig(**{"steps": 9, "log_every": 1, "validate_every": 1, **changes})


def test_a_run_stops_when_validation_stalls_and_keeps_its_best(tmp_path: Path):
    losses = [5.0, 4.0, 3.0, 3.5, 2.0, 2.1, 2.2, 1.0, 0.5, 0.1]
    stubborn = Descent(losses)
    assert run(stubborn, settings(patience=2), tmp_path) == 6
    kept = best(tmp_path)
    assert kept == tmp_path / BEST and json.loads((kept / "state.json").read_text())["step"] == 4
    assert run(Descent(losses), settings(patience=2), tmp_path) == 6  # it stays stopped
    assert run(Descent(losses), settings(), tmp_path) == 9


def test_a_run_that_only_gets_worse_keeps_its_initial_weights(tmp_path: Path):
    run(Descent([1.0, 2.0, 3.0, 4.0]), settings(patience=3), tmp_path)
    assert json.loads((tmp_path / BEST / "state.json").read_text())["step"] == 0


def test_the_last_checkpoints_are_kept_every_so_many_steps(tmp_path: Path):
    run(Descent([0.0] * 10), settings(checkpoint_every=2, keep_checkpoints=3), tmp_path)
    assert [path.name for path in sorted(tmp_path.glob("step-*"))] == [f"step-0000000{n}" for n in (6, 8, 9)]
    assert best(tmp_path) == latest(tmp_path) == tmp_path / "step-00000009"


def test_steps_taken_again_are_logged_once(tmp_path: Path):
    run(Descent([0.0] * 10), settings(steps=4), tmp_path)
    (tmp_path / "step-00000004").rename(tmp_path / "gone")
    save(Descent([]), tmp_path, 2)
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('{"step": 3, "spl')  # killed while writing
    assert run(Descent([0.0] * 10), settings(steps=5), tmp_path) == 5
    trained = [line["step"] for line in read_log(tmp_path) if line["split"] == "train"]
    assert trained == [1, 2, 3, 4, 5]


def test_the_first_report_after_a_resume_is_the_mean_of_the_steps_taken_since(tmp_path: Path):
    options = {"log_every": 4, "validate_every": 8}
    run(Descent([0.0] * 10), settings(steps=3, **options), tmp_path)
    run(Descent([0.0] * 10), settings(steps=8, **options), tmp_path)
    trained = {line["step"]: line["loss"] for line in read_log(tmp_path) if line["split"] == "train"}
    assert trained == {4: 3.0, 8: (4 + 5 + 6 + 7) / 4}


def test_a_checkpoint_keeps_the_position_in_the_data(tmp_path: Path):
    save(Descent([]), tmp_path, 7)
    task = Descent([])
    assert restore(task, tmp_path) == 7 and task.resumed == (7, {"batches": 70})


def test_a_second_process_in_a_run_folder_is_refused(tmp_path: Path):
    holder = "import sys, time; from pathlib import Path; from marstts.io.files import lock_folder\n"
    holder += "with lock_folder(Path(sys.argv[1])):\n    print('locked', flush=True)\n    time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", holder, str(tmp_path)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"locked\n"
            with pytest.raises(CheckpointError, match="another process is working in this folder"):
                run(Descent([0.0] * 10), settings(steps=1), tmp_path)
            assert not (tmp_path / "log.jsonl").exists()
        finally:
            process.kill()
    assert run(Descent([0.0] * 10), settings(steps=1), tmp_path) == 1  # the lock of a killed process is free


def test_the_lock_of_a_run_folder_may_be_entered_again_by_its_process(tmp_path: Path):
    with lock_run(tmp_path):
        with lock_run(tmp_path):
            pass
        with pytest.raises(CheckpointError, match="another process"), lock_folder(tmp_path, CheckpointError):
            pass
    with lock_folder(tmp_path, CheckpointError):
        pass


def test_scores_that_are_not_finite_are_logged_as_null_and_are_never_the_best(tmp_path: Path):
    run(Descent([math.nan, 2.0, math.inf, 3.0]), settings(patience=2, steps=3), tmp_path)
    losses = [line["loss"] for line in read_log(tmp_path) if line["split"] == "validation"]
    assert losses == [None, 2.0, None, 3.0]
    assert json.loads((tmp_path / BEST / "state.json").read_text())["step"] == 1


@pytest.mark.parametrize("line", ["[]", '{"step": 1}', '{"step": "x", "split": "train", "time": 1}', "{"])
def test_a_malformed_log_is_refused_with_its_line(line: str, tmp_path: Path):
    (tmp_path / "log.jsonl").write_text('{"step": 1, "split": "train", "time": 5}\n' + line + "\n")
    with pytest.raises(CheckpointError, match=r"log\.jsonl:2:"):
        read_log(tmp_path)


def test_a_run_stops_after_max_minutes_and_can_be_resumed(tmp_path: Path):
    assert run(Descent([0.0] * 10), settings(max_minutes=1e-9), tmp_path) == 1
    assert run(Descent([0.0] * 10), settings(), tmp_path) == 9


def test_progress_is_logged_and_nothing_is_printed(tmp_path: Path, caplog, capsys):
    with caplog.at_level(logging.INFO):
        run(Descent([0.0] * 10), settings(steps=1), tmp_path)
    assert "starting from step 0" in caplog.text and "step 1 train: loss 0" in caplog.text
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "change",
    [{"steps": 0}, {"log_every": 0}, {"validate_every": -1}, {"seed": -1}, {"seed": 2**63}, {"max_minutes": math.nan}],
)
def test_impossible_loop_settings_are_refused(change: dict[str, float]):
    with pytest.raises(ValidationError):
        settings(**change)


@pytest.mark.parametrize("failing", ["validate", "train_step"])
def test_a_full_disk_is_one_sentence(failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    task = Descent([0.0] * 10)
    monkeypatch.setattr(task, failing, fail)
    with pytest.raises(CheckpointError, match=r"cannot be written: the disk is full"):
        run(task, settings(), tmp_path)


def test_other_errors_of_the_system_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise ConnectionResetError("a bug, or a network")

    task = Descent([0.0] * 10)
    monkeypatch.setattr(task, "train_step", fail)
    with pytest.raises(ConnectionResetError):
        run(task, settings(), tmp_path)


def test_the_time_left_has_that_of_validations():
    pace = Pace(LoopConfig(steps=100, validate_every=30, log_every=10))
    assert pace.seconds(20, 100, 2.0) == 40.0
    pace.validated(4.0)
    pace.validated(6.0)
    assert pace.seconds(20, 100, 2.0) == 40.0 + 4 * 5.0  # after 30, 60, 90 and the last step
    assert pace.seconds(20, 60, 2.0) == 20.0 + 2 * 5.0


def test_a_training_that_may_stop_early_tells_the_earliest_end():
    pace = Pace(LoopConfig(steps=600, validate_every=25, log_every=10, patience=4))
    assert [pace.earliest_end(10, since) for since in (0, 1, 3)] == [100, 75, 25]
    assert pace.earliest_end(590, 0) == 600
    assert Pace(LoopConfig(steps=600)).earliest_end(10, 0) == 600


def test_steps_are_timed_without_the_validations_between_them(tmp_path, monkeypatch: pytest.MonkeyPatch):
    task = Descent([0.5] * 9)
    now = 0.0

    def pass_seconds(seconds, function):
        def wrapped(step):
            nonlocal now
            now += seconds
            return function(step)

        return wrapped

    monkeypatch.setattr("marstts_lab.training.loop.time.monotonic", lambda: now)
    monkeypatch.setattr(task, "train_step", pass_seconds(2.0, task.train_step))
    monkeypatch.setattr(task, "validate", pass_seconds(50.0, task.validate))
    run(task, LoopConfig(steps=8, log_every=4, validate_every=3, checkpoint_minutes=1000), tmp_path)
    rates = [line["steps_per_second"] for line in read_log(tmp_path) if line["split"] == "train"]
    assert rates == [0.5, 0.5]


def test_only_the_chosen_numbers_are_shown_and_all_are_kept(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "marstts_lab.training.run_log"):
        run(Descent([0.5] * 9), settings(steps=2), tmp_path, shown=["loss", "word_errors"])
    shown = [record.message.partition("; ")[0] for record in caplog.records]
    assert {"step 2 train: loss 1", "step 2 validation: loss 0.5"} <= set(shown)
    assert any("steps_per_second" in line for line in read_log(tmp_path))


def test_reports_tell_the_share_done_and_the_time_left(tmp_path, caplog):
    settings = LoopConfig(steps=8, log_every=2, validate_every=8, max_minutes=30.0)
    with caplog.at_level(logging.INFO, "marstts_lab.training.run_log"):
        run(Descent([0.0] * 9), settings, tmp_path)
    notes = [record.message.partition("; ")[2] for record in caplog.records if " train: " in record.message]
    assert notes[0].startswith("2 of 8 steps (25%), about ") and notes[0].endswith(" left")
    assert notes[-1] == "8 of 8 steps (100%)"
