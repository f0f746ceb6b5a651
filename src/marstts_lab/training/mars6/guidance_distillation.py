"""Guidance distillation: the model is trained to predict in one pass what classifier-free guidance predicts in two.

Upstream: `batches.TrainingBatch`, a model trained with text dropout.  Downstream: `task.PretrainTask`.
Guidance distillation (arXiv:2210.03142) for next-token models. A model trained with text dropout (`data.batching`)
makes clearer speech when guided away from its text-dropped logits, as in Koel-TTS (arXiv:2502.05236). A guided patch
would take two rows of the engine, a patch of the student takes one.
Shapes: B batch · S text tokens · T patches · P positions · N scored patches · C codes per level.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from marstts.mars6.model import Mars6
from marstts.nn.attention import length_mask


def drop_text(text_ids: Tensor, text_lengths: Tensor, special: Sequence[int]) -> tuple[Tensor, Tensor]:
    """text_ids (B, S) padded, text_lengths (B,) -> the unconditional texts, which keep their special tokens only.

    Ids (B, S), padded with 0, and lengths (B,). They are as wide as before, because attention to a few
    positions takes PyTorch ten times as long on a CPU.
    """
    kept = torch.isin(text_ids, torch.tensor(special, device=text_ids.device))
    kept &= length_mask(text_lengths, text_ids.shape[1])
    kept_first = torch.argsort(kept.int(), dim=1, descending=True, stable=True)
    lengths = kept.sum(dim=1)
    ids = text_ids.gather(1, kept_first).masked_fill(~length_mask(lengths, text_ids.shape[1]), 0)
    return ids, lengths


@torch.no_grad()
def guided_probs(
    teacher: Mars6,
    scale: float,
    special: Sequence[int],
    text_ids: Tensor,
    text_lengths: Tensor,
    *others: Tensor,
) -> tuple[Tensor, ...]:
    """The guided teacher's distribution of every token: per level (N, layout[l], C + 1) float32, summing to one.

    logits = with text + (scale - 1) · (with text - without). `text_ids` to `others` (embeddings, patches,
    patch_lengths) are the arguments of `Mars6.forward`; `special` are the ids of special tokens.
    """
    conditional = teacher(text_ids, text_lengths, *others).logits
    unconditional = teacher(*drop_text(text_ids, text_lengths, special), *others).logits
    return tuple(
        (logits.float() + (scale - 1) * (logits.float() - without.float())).softmax(dim=-1)
        for logits, without in zip(conditional, unconditional, strict=True)
    )


def distillation_loss(logits: Sequence[Tensor], probs: Sequence[Tensor], level_weights: Sequence[float]) -> Tensor:
    """Cross-entropy of the logits with the teacher's probabilities, both (N, layout[l], C + 1) per level.

    A scalar in nats, the mean over levels weighted as in `objective.next_token_loss`.
    """
    losses = torch.stack(
        [
            -(targets * scores.float().log_softmax(dim=-1)).sum(dim=-1).mean()
            for scores, targets in zip(logits, probs, strict=True)
        ]
    )
    weights = torch.as_tensor(level_weights, dtype=losses.dtype, device=losses.device)
    return (losses * weights).sum() / weights.sum()
