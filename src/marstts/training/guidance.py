"""Guidance learnt by heart: the model says by itself what it says when pushed away from wordless speech.

Upstream: `pretrain.Batch`, a model that heard rows without words.  Downstream: `pretrain.PretrainTask`.
Guidance distillation (arXiv:2210.03142) for next-token models. A guided patch takes two rows of the engine
(`engine.guided`), a learnt one takes one.
Shapes: B batch · S text tokens · T patches · P positions · N scored patches · C codes per level.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from marstts.mars6.encoder import length_mask
from marstts.mars6.model import Mars6


def wordless(text_ids: Tensor, text_lengths: Tensor, special: Sequence[int]) -> tuple[Tensor, Tensor]:
    """text_ids (B, S) padded, text_lengths (B,) -> the same texts with their special tokens only, as
    `engine.guided.without_words` leaves them: (B, S), padded with 0, and (B,).

    As wide as before, because attention to a handful of places takes PyTorch ten times as long on a CPU.
    """
    kept = torch.isin(text_ids, torch.tensor(special, device=text_ids.device))
    kept &= length_mask(text_lengths, text_ids.shape[1])
    kept_first = torch.argsort(kept.int(), dim=1, descending=True, stable=True)
    lengths = kept.sum(dim=1)
    ids = text_ids.gather(1, kept_first).masked_fill(~length_mask(lengths, text_ids.shape[1]), 0)
    return ids, lengths


@torch.no_grad()
def guided_chances(
    teacher: Mars6, weight: float, special: Sequence[int], text_ids: Tensor, text_lengths: Tensor, *speech: Tensor
) -> tuple[Tensor, ...]:
    """What the guided teacher thinks of every token: per level (N, layout[l], C + 1) float32, summing to one.

    `text_ids`, `text_lengths` and `speech` (identity, style, patches, patch_lengths) are what `Mars6.forward` is given;
    `weight` is that of `engine.guided`, `special` the ids that are no words.
    """
    told = teacher(text_ids, text_lengths, *speech).logits
    untold = teacher(*wordless(text_ids, text_lengths, special), *speech).logits
    return tuple(
        (weight * rich.float() + (1 - weight) * poor.float()).softmax(dim=-1)
        for rich, poor in zip(told, untold, strict=True)
    )


def distillation_loss(logits: Sequence[Tensor], chances: Sequence[Tensor], level_weights: Sequence[float]) -> Tensor:
    """Cross-entropy of the logits with the teacher's chances, both (N, layout[l], C + 1) per level: a scalar, in nats,
    the mean over levels weighted as in `objective.next_token_loss`.
    """
    losses = torch.stack(
        [
            -(wanted * scores.float().log_softmax(dim=-1)).sum(dim=-1).mean()
            for scores, wanted in zip(logits, chances, strict=True)
        ]
    )
    weights = torch.as_tensor(level_weights, dtype=losses.dtype, device=losses.device)
    return (losses * weights).sum() / weights.sum()
