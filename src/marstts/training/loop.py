"""The training loop that codec, speaker encoders and MARS6 share: steps, logs, checkpoints, resumption.

What is trained is a `Task`; what happens at step n depends only on the weights and on n (data order and randomness are
functions of the step number), so a resumed run equals an uninterrupted one, in every process, and a checkpoint needs
no state of samplers or generators. Checkpoints are safetensors, written under a temporary name and renamed, the last
few kept. Under `torchrun` all processes train and the first one writes.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from pydantic import Field
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from marstts.config import Config
from marstts.errors import CheckpointError
from marstts.training import distributed

LOG_FILE, STATE_FILE = "log.jsonl", "state.json"

BEST = "best"
"""Folder of the checkpoint that validated best, where a run may stop early."""


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

    checkpoint_every: int = Field(0, ge=0)
    """Steps between checkpoints, besides; 0 = only by minutes."""

    keep_checkpoints: int = Field(2, ge=1)
    """How many of the last checkpoints stay on disk."""

    patience: int = Field(0, ge=0)
    """Stop after so many validations in a row without a lower loss, and keep the best checkpoint; 0 = never."""

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


@runtime_checkable
class Positioned(Protocol):
    """A task whose place in the data is more than the step, as after a change of the number of processes."""

    def position(self, step: int) -> dict[str, int]:
        """Where the data stand before `step`, for the checkpoint."""
        ...

    def resume(self, step: int, position: Mapping[str, int]) -> None:
        """Go on from there; `position` is empty in checkpoints that say nothing."""
        ...


def run(task: Task, config: LoopConfig, folder: Path, say: Callable[[str], None] = print) -> int:
    """Train to `config.steps` or for `config.minutes`, from the newest checkpoint of `folder`; returns the step."""
    from torch.utils.tensorboard import SummaryWriter

    distributed.join()
    leads = distributed.rank() == 0
    folder.mkdir(parents=True, exist_ok=True)
    step = restore(task, folder)
    if leads:
        forget_log_after(folder, step)
        say(f"{folder}: {'resuming at' if step else 'starting from'} step {step}")
    started = last_saved = last_logged = time.monotonic()
    sums: dict[str, Tensor] = {}
    logged = step  # the last step of the report before; after a resume, where this run began
    open_writer = partial(SummaryWriter, str(folder / "tensorboard"), purge_step=step + 1)
    over = distributed.first_decides(is_stalled(folder, config.patience))
    with open_writer() if leads else nullcontext() as writer:
        if leads and config.patience and step == 0:  # what any later step has to be better than
            report(folder, writer, step, "validation", task.validate(step, writer), say)
            save(task, folder, step, name=BEST)
        while step < config.steps and not over:
            with torch.random.fork_rng(devices=[]):
                # what is drawn globally (dropout) is a function of the step too; restored afterwards
                torch.manual_seed(config.seed * 1_000_003 + step)
                scores = task.train_step(step)
            step += 1
            for name, value in scores.items():  # summed where they are: looking at them would stop a GPU
                sums[name] = torch.as_tensor(value).detach().float() + sums.get(name, 0.0)
            if step % config.log_every == 0:
                means = {name: value / (step - logged) for name, value in distributed.means(sums).items()}
                means["steps_per_second"] = (step - logged) / (time.monotonic() - last_logged)
                sums, logged, last_logged = {}, step, time.monotonic()
                if leads:
                    report(folder, writer, step, "train", means, say)
            if leads and (step % config.validate_every == 0 or step == config.steps):
                report(folder, writer, step, "validation", task.validate(step, writer), say)
                if config.patience and count_since_best(folder) == 0:
                    save(task, folder, step, name=BEST)
                over = is_stalled(folder, config.patience)
                last_logged = time.monotonic()
            now = time.monotonic()
            over = distributed.first_decides(over or (bool(config.minutes) and now - started > config.minutes * 60))
            due = now - last_saved > config.checkpoint_minutes * 60
            due = due or bool(config.checkpoint_every and step % config.checkpoint_every == 0)
            if leads and (due or over or step == config.steps):
                save(task, folder, step, keep=config.keep_checkpoints)
                last_saved = now
    return step


def report(
    folder: Path, writer: Any, step: int, split: str, scores: Mapping[str, float], say: Callable[[str], None]
) -> None:
    """The same numbers to TensorBoard, to `log.jsonl`, and to whoever watches."""
    for name, value in scores.items():
        writer.add_scalar(f"{split}/{name}", value, step)
    with (folder / LOG_FILE).open("a", encoding="utf-8") as log:
        log.write(json.dumps({"step": step, "split": split, "time": round(time.time()), **scores}) + "\n")
    say(f"step {step} {split}: " + " ".join(f"{name} {value:.4g}" for name, value in scores.items()))


def read_log(folder: Path) -> list[dict[str, Any]]:
    """All reports of a run, in order; a line that was cut off is left out."""
    path = folder / LOG_FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def forget_log_after(folder: Path, step: int) -> None:
    """Take back what was reported of steps that are about to be taken again."""
    if not (folder / LOG_FILE).exists():
        return
    kept = "".join(json.dumps(line) + "\n" for line in read_log(folder) if line["step"] <= step)
    temporary = folder / f".{LOG_FILE}.tmp"
    temporary.write_text(kept, encoding="utf-8")
    os.replace(temporary, folder / LOG_FILE)


def count_since_best(folder: Path) -> int:
    """How many validations came after the one with the lowest loss; 0 if there was none."""
    losses = [line["loss"] for line in read_log(folder) if line["split"] == "validation" and "loss" in line]
    return len(losses) - 1 - losses.index(min(losses)) if losses else 0


def is_stalled(folder: Path, patience: int) -> bool:
    """Whether `patience` validations in a row (0 = any number) brought no lower loss."""
    return bool(patience) and count_since_best(folder) >= patience


def save(task: Task, folder: Path, step: int, *, keep: int = 2, name: str = "") -> None:
    """Write `folder/step-N/` atomically and forget all but the last `keep`; or `folder/name/`, forgetting nothing."""
    final = folder / (name or f"step-{step:08d}")
    temporary = folder / f".{final.name}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for part, module in task.modules.items():
        save_file(
            {key: value.contiguous() for key, value in module.state_dict().items()}, temporary / f"{part}.safetensors"
        )
    for part, optimizer in task.optimizers.items():
        save_file(flatten_optimizer(optimizer), temporary / f"optimizer-{part}.safetensors")
    position = task.position(step) if isinstance(task, Positioned) else {}
    (temporary / STATE_FILE).write_text(json.dumps({"step": step, **position}) + "\n")
    shutil.rmtree(final, ignore_errors=True)
    os.replace(temporary, final)
    if not name:
        for old in sorted(folder.glob("step-*"))[:-keep]:
            shutil.rmtree(old)


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint of a run, if any."""
    found = sorted(folder.glob(f"step-*/{STATE_FILE}"))
    return found[-1].parent if found else None


def best(folder: Path) -> Path | None:
    """The checkpoint to go on with: the one that validated best, where a run looked for it, else the newest."""
    return folder / BEST if (folder / BEST / STATE_FILE).exists() else latest(folder)


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
        position = json.loads((checkpoint / STATE_FILE).read_text())
        step = int(position.pop("step"))
        if isinstance(task, Positioned):
            task.resume(step, position)
        return step
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
