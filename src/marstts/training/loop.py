"""The training loop that codec, speaker encoders and MARS6 share: steps, logs, checkpoints, resumption.

What is trained is a `Task`; what happens at step n depends only on the weights and on n (data order and randomness are
functions of the step number), so a resumed run equals an uninterrupted one. Checkpoints are safetensors, written under
a temporary name and renamed, the last two kept. Under `torchrun` all processes train and the first one writes.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from marstts.config import Config
from marstts.errors import CheckpointError
from marstts.training import distributed

KEPT_CHECKPOINTS = 2


class LoopConfig(Config):
    """How long to train and how often to look."""

    steps: int
    """Optimizer updates in all."""

    minutes: float = 0.0
    """Stop (resumably) after this many minutes of wall time; 0 = only by steps."""

    log_every: int = 50
    validate_every: int = 500
    checkpoint_minutes: float = 3.0
    """Minutes between checkpoints."""

    seed: int = 0


class Task(Protocol):
    """Something that can be trained. Holds its modules and optimizers; the loop holds the clock."""

    modules: dict[str, nn.Module]
    optimizers: dict[str, torch.optim.Optimizer]

    def train_step(self, step: int) -> dict[str, float | Tensor]:
        """One update (forward, backward, optimizer); returns what to log. Must depend on `step` alone for its data."""
        ...

    def validate(self, step: int, writer: Any) -> dict[str, float]:
        """Scores on held-out data; may add audio or figures to the TensorBoard writer."""
        ...


def run(task: Task, config: LoopConfig, folder: Path, say: Callable[[str], None] = print) -> int:
    """Train to `config.steps` or for `config.minutes`, from the newest checkpoint of `folder`; returns the step."""
    from torch.utils.tensorboard import SummaryWriter

    distributed.join()
    leads = distributed.rank() == 0
    folder.mkdir(parents=True, exist_ok=True)
    step = restore(task, folder)
    say(f"{folder}: {'resuming at' if step else 'starting from'} step {step}")
    started = last_saved = last_logged = time.monotonic()
    sums: dict[str, Tensor] = {}
    with SummaryWriter(str(folder / "tensorboard")) if leads else nullcontext() as writer:
        while step < config.steps:
            with torch.random.fork_rng(devices=[]):
                # what is drawn globally (dropout) is a function of the step too; restored afterwards
                torch.manual_seed(config.seed * 1_000_003 + step)
                scores = task.train_step(step)
            step += 1
            for name, value in scores.items():
                sums[name] = sums.get(name, torch.zeros(())) + torch.as_tensor(value).detach().float().cpu()
            if step % config.log_every == 0:
                means = {name: float(total) / config.log_every for name, total in sums.items()}
                means["steps_per_second"] = config.log_every / (time.monotonic() - last_logged)
                sums, last_logged = {}, time.monotonic()
                if leads:
                    report(folder, writer, step, "train", means, say)
            if leads and (step % config.validate_every == 0 or step == config.steps):
                report(folder, writer, step, "validation", task.validate(step, writer), say)
                last_logged = time.monotonic()
            now = time.monotonic()
            out_of_time = distributed.first_decides(bool(config.minutes) and now - started > config.minutes * 60)
            due = now - last_saved > config.checkpoint_minutes * 60
            if leads and (due or out_of_time or step == config.steps):
                save(task, folder, step)
                last_saved = now
            if out_of_time:
                break
    return step


def report(
    folder: Path, writer: Any, step: int, split: str, scores: Mapping[str, float], say: Callable[[str], None]
) -> None:
    """The same numbers to TensorBoard, to `log.jsonl`, and to whoever watches."""
    for name, value in scores.items():
        writer.add_scalar(f"{split}/{name}", value, step)
    with (folder / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps({"step": step, "split": split, "time": round(time.time()), **scores}) + "\n")
    say(f"step {step} {split}: " + " ".join(f"{name} {value:.4g}" for name, value in scores.items()))


def save(task: Task, folder: Path, step: int) -> None:
    """Write `folder/step-N/` atomically and forget all but the last two."""
    temporary, final = folder / f".step-{step:08d}.tmp", folder / f"step-{step:08d}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for name, module in task.modules.items():
        save_file(
            {key: value.contiguous() for key, value in module.state_dict().items()}, temporary / f"{name}.safetensors"
        )
    for name, optimizer in task.optimizers.items():
        save_file(flatten_optimizer(optimizer), temporary / f"optimizer-{name}.safetensors")
    (temporary / "state.json").write_text(json.dumps({"step": step}) + "\n")
    shutil.rmtree(final, ignore_errors=True)
    os.replace(temporary, final)
    for old in sorted(folder.glob("step-*"))[:-KEPT_CHECKPOINTS]:
        shutil.rmtree(old)


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint of a run, if any."""
    found = sorted(folder.glob("step-*/state.json"))
    return found[-1].parent if found else None


def restore(task: Task, folder: Path) -> int:
    """Load the newest checkpoint of `folder` into the task; returns its step, 0 if there is none."""
    checkpoint = latest(folder)
    if checkpoint is None:
        return 0
    try:
        for name, module in task.modules.items():
            module.load_state_dict(load_file(checkpoint / f"{name}.safetensors"))
        for name, optimizer in task.optimizers.items():
            path = checkpoint / f"optimizer-{name}.safetensors"
            if path.exists():  # an optimizer added later (adversarial stage) starts fresh
                unflatten_optimizer(optimizer, load_file(path))
        return int(json.loads((checkpoint / "state.json").read_text())["step"])
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{checkpoint}: this checkpoint does not fit the configuration ({error}); use another folder to start anew"
        ) from error


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The per-parameter tensors of an optimizer under names like `12.exp_avg`."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{key}": torch.as_tensor(value).contiguous().clone()
        for index, values in state.items()
        for key, value in values.items()
    }


def unflatten_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Inverse of `flatten_optimizer`; hyper-parameters stay as the optimizer was built."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
