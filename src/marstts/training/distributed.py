"""Several processes training one model: each takes its own batches, and gradients are averaged before every update.

Processes are started by PyTorch's `torchrun`, which tells each its rank; without it there is one process, and all
functions here do nothing. At step n, rank r of W learns from batch n·W + r, so that a run depends on the seed and on W.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
from torch import Tensor
from torch import distributed as torch_distributed


def join() -> None:
    """Meet the other processes, if `torchrun` started any (gloo on CPUs, NCCL on GPUs)."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch_distributed.is_initialized():
        torch_distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def rank() -> int:
    """This process's number; 0 writes checkpoints and logs."""
    return torch_distributed.get_rank() if torch_distributed.is_initialized() else 0


def world_size() -> int:
    """How many processes learn together."""
    return torch_distributed.get_world_size() if torch_distributed.is_initialized() else 1


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


def first_decides(choice: bool) -> bool:
    """The choice of rank 0, in every process."""
    if world_size() == 1:
        return choice
    answer = torch.tensor(float(choice), device="cuda" if torch_distributed.get_backend() == "nccl" else "cpu")
    torch_distributed.broadcast(answer, 0)
    return bool(answer)
