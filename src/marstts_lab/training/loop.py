"""The training loop that codec, speaker encoders, MARS6 and MARS5 share: steps, logs, checkpoints, resumption.

Upstream: a `Task`: modules and how to train them.  Downstream: the run folder (`checkpoint`, `run_log`).
Step n depends only on the weights and on n, because data order and randomness are functions of the step. So a resumed
training run equals an uninterrupted one, in every process, and a checkpoint needs no state of samplers or generators.
Under `torchrun` all processes train and the first one writes.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn

from marstts.errors import CheckpointError
from marstts.io.config import Config
from marstts.io.reading import disk_problem, printable_name
from marstts_lab.data.workers import progress_line, show_duration
from marstts_lab.training import distributed
from marstts_lab.training.bounds import step_seed
from marstts_lab.training.checkpoint import BEST, StatefulTask, best, latest, restore, save
from marstts_lab.training.distributed import lock_run
from marstts_lab.training.run_log import LOG_FILE, drop_log_after, is_stalled, read_log, report, validations_since_best

__all__ = [
    "BEST",
    "LOG_FILE",
    "LoopConfig",
    "StatefulTask",
    "Task",
    "best",
    "latest",
    "read_log",
    "restore",
    "run",
    "save",
]

logger = logging.getLogger(__name__)


class LoopConfig(Config):
    """Length of a training run, and how often it is logged, validated and saved."""

    steps: int = Field(ge=1, le=10**12)
    """Number of optimizer updates."""

    max_minutes: float = Field(0.0, ge=0.0)
    """Stop (resumably) after this many minutes of wall time; 0 = only by steps."""

    log_every: int = Field(50, ge=1)
    """Steps between reports of means over steps."""

    validate_every: int = Field(500, ge=1)
    """Steps between validations; there is one after the last step, too."""

    checkpoint_minutes: float = Field(3.0, ge=0.0)
    """Minutes between checkpoints."""

    checkpoint_every: int = Field(0, ge=0)
    """Steps between checkpoints, in addition; 0 = only by minutes."""

    keep_checkpoints: int = Field(2, ge=1)
    """Number of the last checkpoints that stay on disk."""

    patience: int = Field(0, ge=0)
    """Stop after this many validations in a row without a lower loss, and keep the best checkpoint; 0 = never."""

    seed: int = Field(0, ge=0, lt=2**40)
    """Seed of all random numbers."""


class Task(Protocol):
    """Modules and optimizers, and how to train and validate them; the loop decides when."""

    modules: dict[str, nn.Module]
    optimizers: dict[str, torch.optim.Optimizer]

    def train_step(self, step: int) -> Mapping[str, float | Tensor]:
        """One update (forward, backward, optimizer step); returns what to log. Its data depend on `step` only."""
        ...

    def validate(self, step: int) -> dict[str, float]:
        """Scores on held-out data."""
        ...


class MeanScores:
    """Means of the scores of the steps since the last report."""

    def __init__(self, step: int) -> None:
        self.sums: dict[str, Tensor] = {}
        self.step = step  # the last step of the report before; after a resume, the step of the checkpoint
        self.time = time.monotonic()

    def add(self, scores: Mapping[str, float | Tensor]) -> None:
        """Add the scores of one step on their device, because copying them from a GPU would make it wait."""
        for name, value in scores.items():
            self.sums[name] = torch.as_tensor(value).detach().float() + self.sums.get(name, 0.0)

    def take(self, step: int) -> dict[str, float]:
        """The means over the steps up to `step` and over all processes, and steps per second; then start over."""
        count = step - self.step
        means = {name: value / count for name, value in distributed.means(self.sums).items()}
        means["steps_per_second"] = count / (time.monotonic() - self.time)
        self.sums, self.step, self.time = {}, step, time.monotonic()
        return means


class Pace:
    """How long the rest takes: steps at the rate of the last ones, and validations as long as those before."""

    def __init__(self, config: LoopConfig) -> None:
        self.config = config
        self.validation_seconds, self.num_validations = 0.0, 0

    def validated(self, seconds: float) -> None:
        """Count a validation."""
        self.validation_seconds += seconds
        self.num_validations += 1

    def seconds(self, step: int, end: int, steps_per_second: float) -> float:
        """Seconds from a step to the end of another one."""
        every = self.config.validate_every
        validations = end // every - step // every + (end == self.config.steps and end % every > 0)
        each = self.validation_seconds / max(self.num_validations, 1)
        return (end - step) / max(steps_per_second, 1e-9) + validations * each

    def earliest_end(self, step: int, validations_since_best: int) -> int:
        """The step after which the training may stop by `patience`: if no later validation has a lower loss."""
        config = self.config
        if not config.patience:
            return config.steps
        next_one = (step // config.validate_every + 1) * config.validate_every
        further = max(0, config.patience - validations_since_best - 1)
        return min(config.steps, next_one + further * config.validate_every)


def run(task: Task, config: LoopConfig, folder: Path, *, shown: Sequence[str] = ()) -> int:
    """Train to `config.steps` or for `config.max_minutes`, from the newest checkpoint of `folder`; returns the step.

    shown: the scores that the logger shows, where not all; the log in the folder has all of them.

    Raises CheckpointError if another process trains in this folder, or if no checkpoint can be read or written.
    """
    with lock_run(folder), disk_errors(folder):
        return run_locked(task, config, folder, shown)


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Raise CheckpointError where a disk that is full or read-only ends the body, or TensorBoard's thread."""
    hook = threading.excepthook

    def report_thread_error(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is None or disk_problem(arguments.exc_value, folder) is None:
            hook(arguments)

    threading.excepthook = report_thread_error
    try:
        yield
    except OSError as error:
        problem = disk_problem(error, folder)
        if problem is None:
            raise
        raise CheckpointError(f"{printable_name(folder)}: cannot be written: {problem}") from error
    finally:
        threading.excepthook = hook


def run_locked(task: Task, config: LoopConfig, folder: Path, shown: Sequence[str] = ()) -> int:
    """`run` in a folder that is locked."""
    from torch.utils.tensorboard import SummaryWriter  # slow to import, and not needed to load a checkpoint

    main = distributed.is_main()
    folder.mkdir(parents=True, exist_ok=True)
    step = restore(task, folder)
    if main:
        drop_log_after(folder, step or -1)  # step 0 is validated again, too
        logger.info("%s: %s step %d", folder, "resuming at" if step else "starting from", step)
    started = last_saved = time.monotonic()
    means, pace = MeanScores(step), Pace(config)
    open_writer = partial(SummaryWriter, str(folder / "tensorboard"), purge_step=step + 1)
    over = distributed.broadcast_bool(is_stalled(folder, config.patience))
    with open_writer() if main else nullcontext() as writer:
        if main and config.patience and step == 0:  # the score that later steps are compared with
            pace.validated(validate(task, config, folder, step, writer, shown))
            means.time = time.monotonic()
        while step < config.steps and not over:
            means.add(train_step(task, config, step))
            step += 1
            if step % config.log_every == 0:
                scores = means.take(step)
                if main:
                    note = progress(pace, step, scores["steps_per_second"], started, folder)
                    report(folder, writer, step, "train", scores, note, shown)
            if main and (step % config.validate_every == 0 or step == config.steps):
                seconds = validate(task, config, folder, step, writer, shown)
                pace.validated(seconds)
                means.time += seconds  # it is no part of the rate of steps
                over = is_stalled(folder, config.patience)
            now = time.monotonic()
            timed_out = bool(config.max_minutes) and now - started > config.max_minutes * 60
            over = distributed.broadcast_bool(over or timed_out)
            if main and (over or step == config.steps or is_due(config, step, now - last_saved)):
                save(task, folder, step, keep=config.keep_checkpoints)
                last_saved = now
    return step


def progress(pace: Pace, step: int, steps_per_second: float, started: float, folder: Path) -> str:
    """The fraction of steps that is done, and the time left, at most the limit; from the earliest end to the last."""
    config = pace.config
    limit = max(0.0, started + config.max_minutes * 60 - time.monotonic()) if config.max_minutes else math.inf
    latest = min(limit, pace.seconds(step, config.steps, steps_per_second))
    end = pace.earliest_end(step, validations_since_best(folder)) if config.patience else config.steps
    if end == config.steps or (earliest := pace.seconds(step, end, steps_per_second)) >= latest:
        return progress_line(step, config.steps, "steps", latest)
    done = progress_line(step, config.steps, "steps", None)
    return f"{done}, {show_duration(earliest)} (without a lower loss) to {show_duration(latest)} left"


def train_step(task: Task, config: LoopConfig, step: int) -> Mapping[str, float | Tensor]:
    """One step, for which the global generator (dropout) is seeded by the step."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(step_seed(config.seed, step))
        return task.train_step(step)


def validate(task: Task, config: LoopConfig, folder: Path, step: int, writer: Any, shown: Sequence[str] = ()) -> float:
    """Report the scores on held-out data -> seconds that they took.

    With `patience`, the checkpoint is kept where the loss is the lowest so far.
    """
    started = time.monotonic()
    report(folder, writer, step, "validation", task.validate(step), shown=shown)
    if config.patience and validations_since_best(folder) == 0:
        save(task, folder, step, name=BEST)
    return time.monotonic() - started


def is_due(config: LoopConfig, step: int, seconds: float) -> bool:
    """True where a checkpoint is due at this step, this many seconds after the last one."""
    by_steps = bool(config.checkpoint_every) and step % config.checkpoint_every == 0
    return by_steps or seconds > config.checkpoint_minutes * 60
