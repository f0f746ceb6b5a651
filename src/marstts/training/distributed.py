"""Several processes training one model: each takes its own batches, and gradients are averaged before every update.

Processes are started by PyTorch's `torchrun`, which tells each its rank, and starts all of them again where one dies
(`--max-restarts`); without it there is one process, and all functions here do nothing. A step learns from consecutive
batches, shared out by `batches_of_step`: which ones depends on how many there are in all, not on who takes them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as torch_distributed
from torch.nn.parallel import DistributedDataParallel

from marstts.errors import ConfigError


def join() -> None:
    """Meet the other processes, if `torchrun` started any (gloo on CPUs, NCCL on GPUs)."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch_distributed.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        torch_distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo", **meeting_place())


def meeting_place() -> dict[str, Any]:
    """Where this attempt's processes find one another; empty where PyTorch shall say.

    `torchrun` keeps one store for all attempts, in which the addresses of a dead attempt remain, and who comes first
    after a restart calls those in vain. On one machine each attempt therefore gets a corner of its own. On several,
    which count attempts each for itself, `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` makes a new store every time.
    """
    told = os.environ
    if told.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or told.get("GROUP_WORLD_SIZE") != "1":
        return {}
    size = int(told["WORLD_SIZE"])
    store = torch_distributed.TCPStore(told["MASTER_ADDR"], int(told["MASTER_PORT"]), size, is_master=False)
    corner = torch_distributed.PrefixStore(f"attempt {told['TORCHELASTIC_RESTART_COUNT']}", store)
    return {"store": corner, "rank": int(told["RANK"]), "world_size": size}


def rank() -> int:
    """This process's number; 0 writes checkpoints and logs."""
    return torch_distributed.get_rank() if torch_distributed.is_initialized() else 0


def world_size() -> int:
    """How many processes learn together."""
    return torch_distributed.get_world_size() if torch_distributed.is_initialized() else 1


def batches_of_step(first: int, count: int) -> list[int]:
    """Which of the `count` batches of a step, from batch `first` on, this process takes; ConfigError if they cannot be
    shared out evenly.
    """
    if count % world_size():
        raise ConfigError(
            f"a step of {count} batches cannot be shared by {world_size()} processes; start as many as divide it"
        )
    return list(range(first + rank(), first + count, world_size()))


def parallel(module: nn.Module, all_used: bool = True) -> nn.Module:
    """The module whose gradients PyTorch averages over all processes while they are computed; itself, if there is one.

    `all_used`: every parameter takes part in every step.
    """
    if world_size() == 1:
        return module
    return DistributedDataParallel(module, find_unused_parameters=not all_used)


def without_averaging(module: nn.Module, wanted: bool) -> AbstractContextManager[None]:
    """Where `wanted`, gradients of a `parallel` module only add up: all batches of a step but its last one."""
    if wanted and isinstance(module, DistributedDataParallel):
        return module.no_sync()
    return nullcontext()


def average_gradients(parameters: Iterable[Tensor]) -> None:
    """Replace every gradient by its mean over all processes, in one exchange."""
    if world_size() == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    torch_distributed.all_reduce(flat)
    flat /= world_size()
    place = 0
    for gradient in gradients:
        gradient.copy_(flat[place : place + gradient.numel()].view_as(gradient))
        place += gradient.numel()


def means(scores: Mapping[str, Tensor]) -> dict[str, float]:
    """Scalars of the same names in every process -> their means over the processes."""
    values = torch.stack([value.cpu() for value in scores.values()]) if scores else torch.zeros(0)
    if world_size() > 1:
        values = values.to("cuda" if torch_distributed.get_backend() == "nccl" else "cpu")
        torch_distributed.all_reduce(values)
    return dict(zip(scores, (values / world_size()).tolist(), strict=True))


def first_decides(choice: bool) -> bool:
    """The choice of rank 0, in every process."""
    if world_size() == 1:
        return choice
    answer = torch.tensor(float(choice), device="cuda" if torch_distributed.get_backend() == "nccl" else "cpu")
    torch_distributed.broadcast(answer, 0)
    return bool(answer)
