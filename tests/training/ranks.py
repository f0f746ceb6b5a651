"""The training of `toy_training` or `toy_pairs` in one of several processes, for `test_ranks`.

torchrun ... ranks.py pretrain RUN_FOLDER [STEP]      rank 1 kills itself before STEP, once
torchrun ... ranks.py preference RUN_FOLDER
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "mars6"))

import toy_pairs
import toy_training

from marstts_lab.training import distributed
from marstts_lab.training.loop import run

BATCHES = 4
"""Batches of a step, whatever the number of processes."""


def settings():
    """Settings with all random options on."""
    return toy_training.config(
        precision="fp32",
        accumulation_batches=BATCHES,
        input_token_noise=0.1,
        model={"dropout": 0.1},
        objective={"flux": {"beta": 0.1}},
        loop={"steps": 6, "log_every": 1, "validate_every": 6, "checkpoint_every": 2, "keep_checkpoints": 3},
    )


def pretrain(folder: Path, dies_before: int = -1) -> None:
    learner, died = toy_training.task(settings()), folder / "died"
    train_step = learner.train_step

    def step_or_die(step):
        if step == dies_before and distributed.rank() == 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return train_step(step)

    learner.train_step = step_or_die
    run(learner, settings().loop, folder)


def preference(folder: Path) -> None:
    """Four pairs of every step, whatever the number of processes."""
    distributed.init_distributed()
    config = toy_pairs.config(
        pairs_per_batch=2,
        accumulation_batches=2,
        flux={"beta": 0.0},  # a mean over patches, whose number differs between processes
        loop={"steps": 4, "log_every": 1, "validate_every": 4},
    )
    run(toy_pairs.task(config), config.loop, folder)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    kind, folder, *steps = sys.argv[1:]
    {"pretrain": pretrain, "preference": preference}[kind](Path(folder), *map(int, steps))
