"""Letters distillation: a model that reads phones is trained on the distribution of one that reads letters.

Upstream: `batches.PretrainBatch.letters`, a trained model of letters.  Downstream: `task.PretrainTask`.
A model of letters knows common words well and garbles rare ones; what it knows of speech was costly (guidance
distillation, preference tuning). Its distribution over codes teaches the new tokens that it can read, at no loss of the
rest; recordings teach the words that it cannot read. Its hidden states teach more per patch than the few codes that
follow, and need no local decoder.
Shapes: B batch · S text tokens · T patches · N scored patches · C codes per level.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from marstts.mars6.config import Mars6Config
from marstts.mars6.model import Mars6Output
from marstts.mars6.objective import level_targets


def target_probs(
    taught: Mars6Output, is_distilled: Tensor, recorded: Tensor, config: Mars6Config
) -> tuple[Tensor, ...]:
    """The targets of every scored token: per level (N, layout[l], C + 1) float32, summing to one.

    taught: the teacher's output; is_distilled (B,), recorded (B, T, P) tokens. Rows that are not distilled have the
    recorded codes as targets, with probability one.
    """
    scored = taught.scored
    is_scored_distilled = is_distilled[:, None].expand_as(scored)[scored][:, None, None]
    targets = level_targets(recorded[scored], config)
    return tuple(
        torch.where(is_scored_distilled, logits.float().softmax(dim=-1), F.one_hot(target, logits.shape[-1]).float())
        for logits, target in zip(taught.logits, targets, strict=True)
    )


def hidden_state_loss(output: Mars6Output, taught: Mars6Output, mask: Tensor) -> Tensor:
    """The mean over the global decoder's layers of |hidden state - the teacher's|² / the variance of the teacher's: a
    scalar, of the patches of mask (B, T); zero where there is none. Hint learning (arXiv:1412.6550), as in TinyBERT
    (arXiv:1909.10351).
    """
    if not mask.any():
        return output.hidden_states[-1].sum() * 0.0
    losses = []
    for ours, theirs in zip(output.hidden_states, taught.hidden_states, strict=True):
        target = theirs[mask].float()
        variance = (target - target.mean(dim=0)).square().mean().clamp_min(1e-6)
        losses.append((ours[mask].float() - target).square().mean() / variance)
    return torch.stack(losses).mean()
