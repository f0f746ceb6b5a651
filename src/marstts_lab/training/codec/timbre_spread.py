"""Timbre embeddings with larger differences between people, for a decoder that goes on nearly as before.

Upstream: a codec with timbre embeddings, references.  Downstream: `task`, at the beginning of a stage.
Embeddings that were learned with the decoder have most in common (nine tenths of their power, in the packaged codec),
so that a step of the optimizer moves what the decoder does for all people far more than what it does for one of them.
Not in the papers. Shapes: K references · N samples · S size of speaker embeddings · V size of timbre embeddings.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from marstts.codec.mini_model import MiniCodecModel, Modulation


@torch.no_grad()
def spread_timbre(model: MiniCodecModel, references: Tensor, speakers: Tensor | None, factor: float) -> None:
    """Make the differences of timbre embeddings `factor` times as large, beside the direction that all have in common.

    References (K, N) and their speaker embeddings (K, S), if the codec has any, show what they have in common.
    Projections of the embeddings undo the map B: W becomes W B⁻¹. The output changes a little, because all embeddings
    are brought to one length after it.
    """
    assert model.timbre_encoder is not None, "a codec without timbre embeddings has none to spread"
    encoded = model.timbre_encoder(model.log_mel(references))
    timbre = model.timbre_of(references, speakers)
    assert timbre is not None
    common = nn.functional.normalize(timbre.mean(dim=0), dim=0)
    along = torch.outer(common, common)
    across = torch.eye(len(common), device=common.device) - along
    spread, inverse = along + factor * across, along + across / factor
    apply(spread, model.timbre_encoder.project)
    if model.timbre_speaker is not None:
        scale = 1 / mean_rms(encoded @ spread.T)  # by which the encoder's output is brought to length again
        apply(scale * spread, model.timbre_speaker.linear)
        apply(scale * spread, model.timbre_speaker.narrow)
    length = mean_rms(timbre @ spread.T)
    for module in model.modules():
        if isinstance(module, Modulation):
            module.project.weight.copy_(length * module.project.weight @ inverse)


def apply(matrix: Tensor, layer: nn.Linear) -> None:
    """Multiply the output of a layer by a matrix (V, V)."""
    layer.weight.copy_(matrix @ layer.weight)
    layer.bias.copy_(matrix @ layer.bias)


def mean_rms(rows: Tensor) -> float:
    """Rows (K, V) -> the mean of their root mean squares."""
    return float(rows.square().mean(dim=1).sqrt().mean())
