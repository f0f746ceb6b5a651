"""Checkpoints of a run folder: written atomically, read within bounds, with a fallback to the one before.

Upstream: `loop`, which saves and restores.  Downstream: run folders; everything that loads trained weights.
A checkpoint is a folder `step-N/` (or `best/`) with one safetensors file per module and per optimizer, and
`state.json`, which holds the step and the state of the data. Nothing of a checkpoint is applied before all of it was
read and compared with the configuration.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from pydantic import ConfigDict, Field
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from marstts.errors import CheckpointError, ConfigError
from marstts.io.config import Config, parse_config, read_values
from marstts.io.files import atomic_folder, write_file
from marstts.io.reading import open_regular, os_errors, parse_object, printable_name, printable_text, read_text
from marstts.onnx.export import dequantized

STATE_FILE = "state.json"

BEST = "best"
"""Folder of the checkpoint with the lowest validation loss, where a run may stop early."""

MAX_STATE_BYTES = 2**16

MAX_WEIGHT_BYTES = 2**38
"""Largest file of weights that is opened (256 GiB). It is mapped, not read, before its shapes are compared."""

MAX_COMPLAINTS = 4
"""Tensors that a message names; the others are counted."""

Found = TypeVar("Found")

logger = logging.getLogger(__name__)


class CheckpointState(Config):
    """`state.json`: the step, and what `StatefulTask.data_state` returned."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    step: int = Field(ge=0, le=10**12)
    batches: int | None = Field(None, ge=0, le=10**15)
    """Batches trained on so far, by all processes."""


class HasModules(Protocol):
    """The part of a `loop.Task` that a checkpoint holds."""

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Modules by the names of their files."""
        ...

    @property
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Optimizers by the names of their files."""
        ...


@dataclass
class Weights:
    """The modules of a checkpoint without optimizers."""

    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, torch.optim.Optimizer] = field(default_factory=dict)


@runtime_checkable
class StatefulTask(Protocol):
    """A task whose position in the data is more than the step, as after a change of the number of processes."""

    def data_state(self, step: int) -> dict[str, int]:
        """The position in the data before `step`, for the checkpoint: `{"batches": N}`."""
        ...

    def load_data_state(self, step: int, state: Mapping[str, int]) -> None:
        """Continue from that position; `state` is empty in checkpoints without one."""
        ...


def save(task: HasModules, folder: Path, step: int, *, keep: int = 2, name: str = "") -> None:
    """Write `folder/step-N/` atomically and keep the last `keep`; or write `folder/name/` and keep all.

    CheckpointError where the disk is full or read-only; what was there before then stays.
    """
    final = folder / (name or f"step-{step:08d}")
    with atomic_folder(final, replace=lambda _: True, kind=CheckpointError) as temporary:
        for part, module in task.modules.items():
            tensors = {key: value.contiguous() for key, value in module.state_dict().items()}
            save_file(tensors, temporary / f"{part}.safetensors")
        for part, optimizer in task.optimizers.items():
            save_file(flatten_optimizer(optimizer), temporary / f"optimizer-{part}.safetensors")
        data_state = task.data_state(step) if isinstance(task, StatefulTask) else {}
        state = CheckpointState(step=step, **data_state)
        write_file(temporary / STATE_FILE, state.model_dump_json(exclude_none=True) + "\n", CheckpointError)
    if not name:
        older = sorted(path for path in folder.glob("step-*") if path.name <= final.name)
        newer = [path for path in folder.glob("step-*") if path.name > final.name]  # unreadable, or it would be resumed
        with os_errors(folder, "be cleaned of old checkpoints", CheckpointError):
            for old in [*older[:-keep], *newer]:
                shutil.rmtree(old)


def checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints of a run, newest first."""
    return [path.parent for path in sorted(folder.glob(f"step-*/{STATE_FILE}"), reverse=True)]


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint of a run, if any."""
    return next(iter(checkpoints(folder)), None)


def best(folder: Path) -> Path | None:
    """The checkpoint to use: the one with the lowest validation loss where a run looked for it, else the newest."""
    return next(iter(preferred(folder)), None)


def preferred(folder: Path) -> list[Path]:
    """Checkpoints in the order in which to try them: `best/` if there is one, then newest first."""
    first = [folder / BEST] if (folder / BEST / STATE_FILE).exists() else []
    return [*first, *checkpoints(folder)]


def first_readable(candidates: Sequence[Path], read: Callable[[Path], Found]) -> Found:
    """The result of `read` for the first checkpoint that it can read; the logger is warned of those before it.

    Raises the CheckpointError of the first one where none can be read.
    """
    errors: list[CheckpointError] = []
    for candidate in candidates:
        try:
            found = read(candidate)
        except CheckpointError as error:
            errors.append(error)
            continue
        for earlier in errors:
            logger.warning("%s; %s is used instead", earlier, candidate.name)
        return found
    raise errors[0]


def restore(task: HasModules, folder: Path) -> int:
    """Load the newest readable checkpoint of `folder` into the task; returns its step, 0 if there is none.

    CheckpointError where none can be read, or none fits the configuration; the task is then as it was.
    """
    found = checkpoints(folder)
    if not found:
        return 0
    state, weights, optimizers = first_readable(found, lambda checkpoint: read_checkpoint(task, checkpoint))
    for name, module in task.modules.items():
        module.load_state_dict(weights[name])
    for name, optimizer_state in optimizers.items():
        optimizer = task.optimizers[name]
        optimizer.load_state_dict({"state": optimizer_state, "param_groups": optimizer.state_dict()["param_groups"]})
    if isinstance(task, StatefulTask):
        task.load_data_state(state.step, state.model_dump(exclude={"step"}, exclude_none=True))
    return state.step


OptimizerState = dict[int, dict[str, Tensor]]


def read_checkpoint(
    task: HasModules, checkpoint: Path
) -> tuple[CheckpointState, dict[str, dict[str, Tensor]], dict[str, OptimizerState]]:
    """State, weights by module and state by optimizer, all compared with the task; CheckpointError if one differs.

    An optimizer that was added later (adversarial stage) has no file and starts fresh.
    """
    state = read_state(checkpoint)
    weights = {
        name: read_tensors(checkpoint / f"{name}.safetensors", module.state_dict())
        for name, module in task.modules.items()
    }
    optimizers = {}
    for name, optimizer in task.optimizers.items():
        path = checkpoint / f"optimizer-{name}.safetensors"
        if path.exists() or path.is_symlink():
            optimizers[name] = unflatten_optimizer(optimizer, open_tensors(path), path)
    return state, weights, optimizers


def read_state(checkpoint: Path) -> CheckpointState:
    """The `state.json` of a checkpoint; CheckpointError if it is malformed."""
    path = checkpoint / STATE_FILE
    name = printable_name(path)
    values = parse_object(read_text(path, MAX_STATE_BYTES, CheckpointError), name, CheckpointError)
    try:
        return parse_config(CheckpointState, values, name)
    except ConfigError as error:
        raise CheckpointError(str(error)) from error


def open_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file; CheckpointError if it is none, a device, a pipe or a folder."""
    with open_regular(path, MAX_WEIGHT_BYTES, CheckpointError):
        pass
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError, MemoryError, OverflowError) as error:
        raise CheckpointError(f"{printable_name(path)}: expected weights as safetensors, but {error}") from error


def read_tensors(path: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file, with the names and shapes of `expected`; CheckpointError naming what differs."""
    tensors = dequantized(open_tensors(path))
    complaints = [f"{name} is missing" for name in sorted(expected.keys() - tensors.keys())]
    complaints += [f"{printable_name(name)} is not expected" for name in sorted(tensors.keys() - expected.keys())]
    complaints += [
        f"{name} is {tuple(tensors[name].shape)} instead of {tuple(value.shape)}"
        for name, value in expected.items()
        if name in tensors and tensors[name].shape != value.shape
    ]
    refuse(path, complaints)
    return tensors


def refuse(path: Path, complaints: Sequence[str]) -> None:
    """CheckpointError with the first complaints, if there are any."""
    if complaints:
        more = len(complaints) - MAX_COMPLAINTS
        rest = f" and {more} more" if more > 0 else ""
        raise CheckpointError(
            f"{printable_name(path)}: these weights do not fit the configuration: "
            f"{', '.join(complaints[:MAX_COMPLAINTS])}{rest}; use another folder for a new run"
        )


def load_weights(model: nn.Module, path: Path) -> None:
    """Load all weights of a module; CheckpointError if the file is missing, malformed or of other shapes."""
    model.load_state_dict(read_tensors(path, model.state_dict()))


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The per-parameter tensors of an optimizer under names like `12.exp_avg`."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{key}": torch.as_tensor(value).contiguous().clone()
        for index, values in state.items()
        for key, value in values.items()
    }


def unflatten_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], path: Path
) -> dict[int, dict[str, Tensor]]:
    """The inverse of `flatten_optimizer`: the state by parameter; CheckpointError if it does not fit the optimizer."""
    parameters: list[Any] = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: OptimizerState = {}
    complaints = []
    for name, value in tensors.items():
        index, _, key = name.partition(".")
        known = index.isascii() and index.isdigit() and len(index) < 9 and int(index) < len(parameters)
        expected = () if key == "step" or not known else parameters[int(index)].shape
        if not known or not key or value.shape != expected:
            complaints.append(f"{printable_name(name)} of shape {tuple(value.shape)} is not expected")
            continue
        state.setdefault(int(index), {})[key] = value
    needed = {"step", "exp_avg", "exp_avg_sq"} if isinstance(optimizer, torch.optim.AdamW) else set()
    complaints += [f"parameter {index} lacks a part of its state" for index in state if needed - state[index].keys()]
    refuse(path, complaints)
    return state


# The model of a run folder, which stays the same as long as the run has checkpoints.
# It describes the
# weights of the checkpoints, so a resumed run must not replace it by that of another model. Sizes are not all: other
# attention heads, for one, fit the same weights and make another model of them.

MAX_COMPLAINT = 600
"""Characters of the message that names what differs."""


def check_same_model(path: Path, model: Config, free: Collection[str] = ()) -> None:
    """CheckpointError where the run of `path`, its config.json, has checkpoints of another model than `model`.

    `free` fields may differ: those that change neither the weights nor what the model computes with them.
    """
    if latest(path.parent) is None or not path.is_file():
        return
    name = printable_name(path)
    stored = read_values(path, CheckpointError).get("model")
    known = stored if isinstance(stored, dict) else {}
    known = {key: value for key, value in known.items() if key in type(model).model_fields}  # those of this version
    try:
        before = parse_config(type(model), known, name, CheckpointError)
    except CheckpointError as error:
        raise CheckpointError(
            f"{name}: the checkpoints here are of another kind of model; use another folder for a new run"
        ) from error
    changes = [
        f"{key} is {getattr(model, key)} instead of {getattr(before, key)}"
        for key in type(model).model_fields
        if key not in free and getattr(model, key) != getattr(before, key)
    ]
    if changes:
        raise CheckpointError(
            f"{name}: the checkpoints here are of another model ({printable_text(', '.join(changes), MAX_COMPLAINT)}); "
            "give its [model] table, or use another folder for a new run"
        )
