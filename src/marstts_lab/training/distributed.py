"""Data-parallel training: every process takes its own batches; gradients are averaged before every update.

Upstream: PyTorch's `torchrun`, which starts the processes, gives each its rank, and starts all of them again where
one dies (`--max-restarts`).  Downstream: `loop` and the tasks. Without `torchrun` there is one process, and all
functions in here do nothing. Gradients are averaged by DistributedDataParallel (DDP). A step is trained on consecutive
batches, whatever the number of processes; `shares_of_step` shares out their rows.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as torch_distributed
from torch.nn.parallel import DistributedDataParallel

from marstts.errors import CheckpointError, ConfigError
from marstts.io.files import lock_folder
from marstts_lab.training import distributed


def init_distributed() -> None:
    """Connect to the other processes, if `torchrun` started any (gloo on CPUs, NCCL on GPUs); once is enough."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch_distributed.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        torch_distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo", **rendezvous_store())


def rendezvous_store() -> dict[str, Any]:
    """The store by which the processes of this attempt find one another; empty where PyTorch chooses.

    `torchrun` keeps one store for all attempts, in which the addresses of a dead attempt remain, and the first process
    after a restart calls those in vain. On one machine each attempt therefore gets its own prefix. On several,
    which count attempts each for itself, `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` makes a new store every time.
    """
    environment = os.environ
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or environment.get("GROUP_WORLD_SIZE") != "1":
        return {}
    size = int(environment["WORLD_SIZE"])
    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    store = torch_distributed.TCPStore(address, port, size, is_master=False)
    prefixed = torch_distributed.PrefixStore(f"attempt {environment['TORCHELASTIC_RESTART_COUNT']}", store)
    return {"store": prefixed, "rank": int(environment["RANK"]), "world_size": size}


def rank() -> int:
    """The number of this process, from 0."""
    return torch_distributed.get_rank() if torch_distributed.is_initialized() else 0


def is_main() -> bool:
    """True in the process of rank 0, which writes checkpoints and logs."""
    return rank() == 0


def world_size() -> int:
    """The number of processes that train together."""
    return torch_distributed.get_world_size() if torch_distributed.is_initialized() else 1


def require_one_process(task: str) -> None:
    """ConfigError under `torchrun` with several processes, for trainings that support one only."""
    init_distributed()
    if world_size() > 1:
        raise ConfigError(f"{task} trains in one process; start it without torchrun, or with one process")


@dataclass(frozen=True)
class Share:
    """The rows of one batch that this process trains on, and their weight in the step."""

    number: int
    """The batch."""

    first: Fraction
    last: Fraction
    """Where its rows begin and end, as fractions of the batch."""

    def rows(self, num_rows: int) -> slice:
        """The rows of a batch of `num_rows`: at least one, for each process must take part in the averaging."""
        begin = min(int(self.first * num_rows), num_rows - 1)
        return slice(begin, max(begin + 1, int(self.last * num_rows)))

    def is_empty(self, num_rows: int) -> bool:
        """Return True where other processes have all rows of the batch; the one of `rows` then must not count."""
        return int(self.first * num_rows) == int(self.last * num_rows)


def shares_of_step(first: int, count: int) -> list[Share]:
    """What this process takes of the `count` batches of a step, from batch `first` on: about as much as any other.

    Where the number of processes does not divide `count`, batches are cut between rows.
    """
    begin, end = (Fraction((rank() + offset) * count, world_size()) for offset in (0, 1))
    return [
        Share(first + index, max(begin - index, Fraction(0)), min(end - index, Fraction(1)))
        for index in range(math.floor(begin), math.ceil(end))
    ]


def wrap_ddp(module: nn.Module, all_used: bool = True) -> nn.Module:
    """The module in DistributedDataParallel; itself, if there is one process.

    `all_used`: every parameter takes part in every step.
    """
    if world_size() == 1:
        return module
    return DistributedDataParallel(module, find_unused_parameters=not all_used)


def no_sync(module: nn.Module, active: bool) -> AbstractContextManager[None]:
    """A context in which gradients of a `wrap_ddp` module are added up, not averaged, where `active`.

    It holds for all batches of a step but its last one (gradient accumulation).
    """
    if active and isinstance(module, DistributedDataParallel):
        return module.no_sync()
    return nullcontext()


def means(scores: Mapping[str, Tensor]) -> dict[str, float]:
    """Scalars of the same names in every process -> their means over the processes."""
    values = torch.stack([value.cpu() for value in scores.values()]) if scores else torch.zeros(0)
    if world_size() > 1:
        values = values.to("cuda" if torch_distributed.get_backend() == "nccl" else "cpu")
        torch_distributed.all_reduce(values)
    return dict(zip(scores, (values / world_size()).tolist(), strict=True))


def broadcast_bool(choice: bool) -> bool:
    """The choice of rank 0, in every process."""
    if world_size() == 1:
        return choice
    decision = torch.tensor(float(choice), device="cuda" if torch_distributed.get_backend() == "nccl" else "cpu")
    torch_distributed.broadcast(decision, 0)
    return bool(decision)


# One training per run folder: a second process that writes to the same folder is refused.
# Under `torchrun` the first process holds the lock for all. A process may enter the lock of a folder again: commands
# hold it while they prepare the folder, and so does the training loop.

_held: set[Path] = set()
"""Folders that this process has locked."""


@contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder, which is made if it is missing, while the body runs.

    CheckpointError where another living process holds it; the system frees the lock of a killed process.
    """
    distributed.init_distributed()
    resolved = folder.resolve()
    if not distributed.is_main() or resolved in _held:
        yield
        return
    with lock_folder(folder, CheckpointError):
        _held.add(resolved)
        try:
            yield
        finally:
            _held.discard(resolved)


# The device that a training runs on.


def pick_device(name: str) -> torch.device:
    """The device of this name; `auto` is the first GPU, or the CPU without one. ConfigError for other names."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device: expected `auto`, `cpu`, `cuda` or `cuda:N`, got {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device: {name} needs a GPU that PyTorch can use, and there is none; choose `cpu`")
    return device
