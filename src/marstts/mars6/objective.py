"""The training loss: next-token cross-entropy per level, and the flux loss.

Upstream: `model.Mars6Output`.  Downstream: `training`.
MARS6 (arXiv:2501.05787), Sec. III-D, equation 1.  Deviation: levels may be weighted.
Shapes: B batch · T patches · P positions · N scored patches · C codes per level.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from marstts.io.config import Config
from marstts.mars6.config import Mars6Config

NO_CODE = -1
"""The code before the first one."""


class FluxConfig(Config):
    """The flux loss, which penalizes repeated coarse codes (MARS6, equation 1)."""

    beta: float = Field(0.0, ge=0.0)
    """Weight of the flux loss relative to the cross-entropy; 0 = none."""

    epsilon: float = Field(1.0, gt=0.0)
    """Nats added to the cross-entropy below the line; a single code costs `beta / epsilon` at most."""


class ObjectiveConfig(Config):
    """Weights of the parts of the loss."""

    level_weights: tuple[float, ...] = (1.0, 1.0, 1.0)
    """Weight of each level's mean cross-entropy; normalized to sum to one."""

    flux: FluxConfig = FluxConfig()


@dataclass(frozen=True)
class NextTokenLoss:
    """Cross-entropy in nats; scalars unless noted."""

    total: Tensor
    """The weighted mean over levels, which is minimized."""

    levels: Tensor
    """(levels,) mean cross-entropy of each level."""

    accuracy: Tensor
    """(levels,) accuracy: fraction of tokens whose most probable code is correct."""


def level_targets(patches: Tensor, config: Mars6Config) -> tuple[Tensor, ...]:
    """patches (N, P) of tokens -> classes (N, layout[l]) per level: the code, or C for end of speech."""
    levels = torch.as_tensor(config.position_levels, device=patches.device)
    classes = (patches - levels * config.codebook_size).masked_fill(patches == config.eos, config.codebook_size)
    return classes.split(config.patch_layout, dim=1)


def next_token_loss(
    logits: tuple[Tensor, ...], patches: Tensor, config: Mars6Config, objective: ObjectiveConfig
) -> NextTokenLoss:
    """logits per level (N, layout[l], C + 1), patches (N, P) the tokens they should have predicted."""
    targets = level_targets(patches, config)
    levels, accuracy = [], []
    for scores, target in zip(logits, targets, strict=True):
        loss, right = cross_entropy(scores.flatten(end_dim=1), target.flatten())
        levels.append(loss)
        accuracy.append(right)
    losses = torch.stack(levels)
    weights = torch.as_tensor(objective.level_weights, dtype=losses.dtype, device=losses.device)
    return NextTokenLoss((losses * weights).sum() / weights.sum(), losses, torch.stack(accuracy))


def cross_entropy(logits: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """logits (N, C), classes (N,) -> scalars: mean cross-entropy in nats, and accuracy.

    A row is correct if no class has a larger logit than its own.
    """
    best, chosen = logits.detach().amax(dim=-1), logits.detach().gather(1, classes.unsqueeze(1)).squeeze(1)
    return F.cross_entropy(logits.float(), classes), (chosen >= best).float().mean()


def previous_codes(patches: Tensor, scored: Tensor, config: Mars6Config) -> Tensor:
    """patches (B, T, P) of tokens, padded with -100; scored (B, T), N of them True -> (N, layout[0]) L0 codes that went
    before each L0 code of a scored patch, or -1 where nothing did.
    """
    coarse = patches[..., : config.patch_layout[0]].flatten(start_dim=1)  # (B, T * layout[0]); L0 has offset 0
    before = F.pad(coarse[:, :-1], (1, 0), value=NO_CODE).view(*patches.shape[:2], -1)[scored]
    return before.masked_fill((before < 0) | (before >= config.codebook_size), NO_CODE)


def flux_loss(logits: Tensor, previous: Tensor, flux: FluxConfig) -> Tensor:
    """The mean of beta / (epsilon + cross-entropy of the previous code): a scalar, small where codes move on.

    logits (N, layout[0], C + 1) of L0, previous (N, layout[0]) from `previous_codes`; codes without a previous one do
    not count. MARS6, equation 1.
    """
    previous = previous.flatten()
    missed = F.cross_entropy(logits.flatten(end_dim=1).float(), previous, ignore_index=NO_CODE, reduction="none")
    counted = previous != NO_CODE
    return (flux.beta / (flux.epsilon + missed) * counted).sum() / counted.sum().clamp_min(1)
