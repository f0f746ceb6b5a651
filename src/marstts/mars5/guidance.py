"""The NAR as a `repaint.Denoiser`: with guidance by the speaker, a temperature, and no probability of padding.

Upstream: `nar.ResidualTransformer`.  Downstream: `repaint`.
Classifier-free guidance (arXiv:2207.12598) on logits; both of its passes are rows of one batch.
Shapes: B batch · T frames · L levels · K classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from marstts.generation.engine import refuse_nan
from marstts.mars5.nar import Conditioning, ResidualTransformer
from marstts.mars5.repaint import Denoiser


def make_denoiser(
    model: ResidualTransformer,
    conditioning: Conditioning,
    lengths: Tensor,
    *,
    guidance: float,
    temperature: float,
    num_legal: int,
) -> Denoiser:
    """The model given a speaker and a text, for codes of `lengths` (B,); classes from `num_legal` on are never drawn.

    What does not depend on the codes is computed here, once.
    """
    if guidance != 1:
        unknown = model.null_speaker(len(conditioning.speaker))
        conditioning = Conditioning(
            text_ids=conditioning.text_ids.repeat(2, 1),
            text_lengths=conditioning.text_lengths.repeat(2),
            speaker=torch.cat((conditioning.speaker, unknown)),
        )
        lengths = lengths.repeat(2)

    def denoise(codes: Tensor, timesteps: Tensor) -> Tensor:
        if guidance == 1:
            logits = model(codes, lengths, timesteps, conditioning)
        else:
            both = model(codes.repeat(2, 1, 1), lengths, timesteps.repeat(2), conditioning)
            given, without = both.chunk(2)
            logits = guidance * given + (1 - guidance) * without
        logits = logits.float() / temperature
        refuse_nan(logits.sum(dim=(1, 2, 3)).cpu().numpy())
        logits[..., num_legal:] = -torch.inf
        return logits

    return denoise
