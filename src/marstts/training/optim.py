"""How weights move: AdamW, a learning rate that is a function of the step, and a running average of the weights.

Upstream: `OptimizerConfig` in a training's TOML.  Downstream: `training.pretrain` and its siblings.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from enum import Enum
from typing import TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from marstts.config import Config
from marstts.training.distributed import average_gradients

ModuleType = TypeVar("ModuleType", bound=nn.Module)


class Schedule(str, Enum):
    """What the learning rate does after the warm-up."""

    COSINE = "cosine"
    LINEAR = "linear"
    CONSTANT = "constant"


class OptimizerConfig(Config):
    """AdamW (arXiv:1711.05101), its learning rate, and what is averaged."""

    learning_rate: float = Field(1e-3, gt=0.0)
    """The highest, reached at the end of the warm-up."""

    schedule: Schedule = Schedule.COSINE
    """How it falls from there until the last step."""

    final_share: float = Field(0.05, ge=0.0, le=1.0)
    """What is left of it at the last step, as a share of the highest."""

    warmup_steps: int = Field(500, ge=0)
    """Steps of linear rise from zero."""

    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = Field(0.01, ge=0.0)
    """Of matrices; biases, norms and embeddings do not decay."""

    clip_norm: float = Field(1.0, gt=0.0)
    """Gradients longer than this are shortened to it."""

    average_decay: float = Field(0.999, ge=0.0, lt=1.0)
    """Share of the averaged weights that stays at each step; fewer at the beginning. 0 = no averaging."""


def learning_rate(step: int, total_steps: int, config: OptimizerConfig) -> float:
    """The learning rate of step `step`, the first being 0, of `total_steps`."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    progress = min(1.0, (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps))
    remaining = {
        Schedule.COSINE: 0.5 * (1 + math.cos(math.pi * progress)),
        Schedule.LINEAR: 1 - progress,
        Schedule.CONSTANT: 1.0,
    }[config.schedule]
    return config.learning_rate * (config.final_share + (1 - config.final_share) * remaining)


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW in two groups: matrices that decay, and everything else."""
    exempt = {id(parameter) for parameter in undecayed_parameters(model)}
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if id(p) not in exempt], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if id(p) in exempt], "weight_decay": 0.0},
    ]
    # fused: one pass over the weights instead of a dozen
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=True)


def undecayed_parameters(model: nn.Module) -> Iterator[Tensor]:
    """Embeddings, and all vectors and scalars: biases, norms, learnt strengths."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            yield module.weight
    for parameter in model.parameters():
        if parameter.ndim < 2:
            yield parameter


def update(optimizer: torch.optim.Optimizer, loss: Tensor, rate: float, clip_norm: float) -> Tensor:
    """One optimizer step down `loss` at the learning rate `rate`; returns the gradient's length before clipping."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    average_gradients(parameters_of(optimizer))
    return descend(optimizer, rate, clip_norm)


def descend(optimizer: torch.optim.Optimizer, rate: float, clip_norm: float) -> Tensor:
    """One step along gradients that are there and the same in every process; returns their length before clipping."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    norm = torch.nn.utils.clip_grad_norm_(parameters_of(optimizer), clip_norm)
    optimizer.step()
    return norm


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Everything it moves, in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def averaged_copy(model: ModuleType) -> ModuleType:
    """The module that will hold the running average: same weights and names, no gradients, evaluation mode."""
    return copy.deepcopy(model).requires_grad_(False).eval()


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, step: int, decay: float) -> None:
    """Move `average` towards `model`: average ← d · average + (1 - d) · model, d rising with the step up to `decay`."""
    weight = 1 - min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), weight)
