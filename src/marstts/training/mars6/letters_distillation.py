"""Letters distillation: a model that reads phones is trained on the distribution of one that reads letters.

Upstream: `batches.PretrainBatch.letters`, a trained model of letters.  Downstream: `task.PretrainTask`.
A model of letters knows common words well and garbles rare ones; what it knows of speech was costly (guidance
distillation, preference tuning). Its distribution over codes teaches the new tokens that it can read, at no loss of the
rest; recordings teach the words that it cannot read.
Shapes: B batch · S text tokens · T patches · N scored patches · C codes per level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from marstts.mars6.config import Mars6Config
from marstts.mars6.model import Mars6
from marstts.mars6.objective import level_targets


@torch.no_grad()
def probs_in_letters(
    teacher: Mars6,
    letters: Mapping[str, Tensor],
    arguments: Sequence[Tensor],
    recorded: Tensor,
    scored: Tensor,
    config: Mars6Config,
) -> tuple[Tensor, ...]:
    """The targets of every scored token: per level (N, layout[l], C + 1) float32, summing to one.

    letters: `ids` (B, S'), `lengths` (B,), `is_distilled` (B,). arguments: those of `Mars6.forward`, whose texts are
    replaced; recorded (B, T, P) tokens, scored (B, T). Rows that are not distilled have the recorded codes as targets,
    with probability one.
    """
    output = teacher(letters["ids"], letters["lengths"], *arguments[2:])
    is_distilled = letters["is_distilled"][:, None].expand_as(scored)[scored][:, None, None]
    targets = level_targets(recorded[scored], config)
    return tuple(
        torch.where(is_distilled, logits.float().softmax(dim=-1), F.one_hot(target, logits.shape[-1]).float())
        for logits, target in zip(output.logits, targets, strict=True)
    )
