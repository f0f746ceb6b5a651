"""The toy MARS6 of `test_pretrain`, trained by one of several processes; what `torchrun` starts for `test_ranks`.

torchrun ... ranks.py RUN_FOLDER [STEP]      rank 1 kills itself before STEP, once
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from test_pretrain import config, task

from marstts.training import distributed
from marstts.training.loop import run
from marstts.training.pretrain import PretrainTask

BATCHES = 4
"""Of every step, however many processes there are."""


def settings():
    """Everything that draws at random is on."""
    return config(
        precision="fp32",
        batches_per_step=BATCHES,
        history_noise=0.1,
        model={"dropout": 0.1},
        objective={"flux": {"beta": 0.1}},
        loop={"steps": 6, "log_every": 1, "validate_every": 6, "checkpoint_every": 2, "keep_checkpoints": 3},
    )


def train(folder: Path, dies_before: int = -1) -> PretrainTask:
    learner, died = task(settings()), folder / "died"
    learn = learner.train_step

    def step_or_die(step):
        if step == dies_before and distributed.rank() == 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return learn(step)

    learner.train_step = step_or_die
    run(learner, settings().loop, folder, print)
    return learner


if __name__ == "__main__":
    train(Path(sys.argv[1]), *map(int, sys.argv[2:]))
