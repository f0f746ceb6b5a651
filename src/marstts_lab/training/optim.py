"""The optimizer step: AdamW, one learning-rate schedule, gradient clipping, and EMA of the weights.

Upstream: `ScheduleConfig` and `OptimizerConfig` in a training's TOML.  Downstream: every training task.
The learning rate is a function of the step, so that no scheduler has a state to save.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from marstts.io.config import Config
from marstts_lab.training.bounds import LearningRate, Weight

ModuleType = TypeVar("ModuleType", bound=nn.Module)

Beta = Annotated[float, Field(ge=0.0, lt=1.0)]


class Schedule(str, Enum):
    """The course of the learning rate after the warm-up."""

    COSINE = "cosine"
    LINEAR = "linear"
    CONSTANT = "constant"


class ScheduleConfig(Config):
    """Learning-rate schedule: linear warm-up from zero, then a fall to a ratio of the peak."""

    learning_rate: LearningRate = 1e-3
    """Peak, reached at the end of the warm-up."""

    schedule: Schedule = Schedule.COSINE
    """Decay of the learning rate until the last step."""

    final_lr_ratio: float = Field(0.05, ge=0.0, le=1.0)
    """Learning rate at the last step, as a ratio of the peak."""

    warmup_steps: int = Field(500, ge=0)
    """Steps of linear rise from zero."""


class OptimizerConfig(ScheduleConfig):
    """AdamW (arXiv:1711.05101), its schedule, gradient clipping and EMA."""

    betas: tuple[Beta, Beta] = (0.9, 0.98)
    weight_decay: Weight = 0.01
    """Weight decay of matrices; biases, norms and embeddings do not decay."""

    grad_clip_norm: float = Field(1.0, gt=0.0)
    """Gradients with a larger L2 norm are scaled down to it."""

    ema_decay: float = Field(0.999, ge=0.0, lt=1.0)
    """Ratio of the averaged weights that stays at each step; smaller in the first steps. 0 = no averaging."""


def learning_rate(step: int, total_steps: int, config: ScheduleConfig) -> float:
    """The learning rate of step `step`, the first being 0, of `total_steps`."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    progress = min(1.0, (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps))
    remaining = {
        Schedule.COSINE: 0.5 * (1 + math.cos(math.pi * progress)),
        Schedule.LINEAR: 1 - progress,
        Schedule.CONSTANT: 1.0,
    }[config.schedule]
    return config.learning_rate * (config.final_lr_ratio + (1 - config.final_lr_ratio) * remaining)


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW in two parameter groups: matrices, which decay, and everything else."""
    exempt = {id(parameter) for parameter in undecayed_parameters(model)}
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if id(p) not in exempt], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if id(p) in exempt], "weight_decay": 0.0},
    ]
    # fused: one pass over the weights instead of a dozen
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=True)


def undecayed_parameters(model: nn.Module) -> Iterator[Tensor]:
    """Embeddings, and all vectors and scalars: biases, norms, learned scales."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            yield module.weight
    for parameter in model.parameters():
        if parameter.ndim < 2:
            yield parameter


def minimize(optimizer: torch.optim.Optimizer, loss: Tensor, lr: float, grad_clip_norm: float) -> Tensor:
    """Compute the gradients of `loss` and take one optimizer step; returns the gradient's L2 norm before clipping."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    return optimizer_step(optimizer, lr, grad_clip_norm)


def optimizer_step(optimizer: torch.optim.Optimizer, lr: float, grad_clip_norm: float) -> Tensor:
    """Take one step along gradients that are computed and averaged; returns their L2 norm before clipping.

    A parameter group with an `lr_scale` has that multiple of the learning rate.
    """
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)
    norm = torch.nn.utils.clip_grad_norm_(parameters_of(optimizer), grad_clip_norm)
    optimizer.step()
    return norm


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """All parameters of an optimizer, in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def make_ema(model: ModuleType) -> ModuleType:
    """The module that will hold the EMA of the weights: same weights and names, no gradients, evaluation mode."""
    return copy.deepcopy(model).requires_grad_(False).eval()


@torch.no_grad()
def update_ema(ema: nn.Module, model: nn.Module, step: int, decay: float) -> None:
    """Move `ema` toward `model`: ema ← d · ema + (1 - d) · model, where d rises with the step up to `decay`."""
    weight = 1 - min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), weight)
