"""Training objectives of both models: next-token loss (AR), and the variational bound of the diffusion (NAR).

Upstream: codes and text of a corpus, outputs of `ar.CodecLM` and `nar.ResidualTransformer`.  Downstream: training.
Of the release's training only the outline is known: text tokens weigh less; level 0 is given; conditioning is dropped
in a tenth of the rows; after its parent TransFusion (arXiv:2210.07677) the timestep is uniform.  Ours, because nothing
was published: the weight of text, one initial part of the utterance as reference of both models, and a bound without
level 0 (it is known) and with the likelihood of x_0 at the last step (Hoogeboom et al., arXiv:2102.05379, Eq. 5).
Shapes: B batch · T tokens or frames · R reference frames · L levels · K classes · V joint vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from marstts.io.config import Config
from marstts.mars5.diffusion import NoiseSchedule, gumbel_draw, log_onehot, q, step_loss
from marstts.mars5.text import JointVocabulary
from marstts.nn.attention import length_mask


class ObjectiveConfig(Config):
    """Weights of the terms of the objective."""

    text_weight: float = Field(0.1, ge=0)
    """Weight of a text token's cross-entropy; a speech token's is 1."""

    drop_probability: float = Field(0.1, ge=0, le=1)
    """Probability that a row has no reference (CFG dropout), which guidance needs."""

    min_reference_frames: int = Field(75, gt=0)
    max_reference_frames: int = Field(450, gt=0)
    """The reference is an initial part of the utterance, uniform between these; at most half of it."""


@dataclass(frozen=True)
class NextTokenLoss:
    """Cross-entropy in nats; scalars."""

    total: Tensor
    """The weighted mean, to be minimized."""

    text: Tensor
    """Mean over text tokens but the first, which nothing predicts."""

    speech: Tensor
    """Mean over speech tokens, the end of speech included."""

    accuracy: Tensor
    """Accuracy: fraction of speech tokens whose most probable id is correct."""


def training_tokens(
    text_ids: Sequence[int], codes: NDArray[np.int64], vocabulary: JointVocabulary
) -> NDArray[np.int64]:
    """Joint ids of one utterance: its text, the speech tokens of its level-0 codes (T,), the end of speech."""
    return np.concatenate((np.array(text_ids, dtype=np.int64), vocabulary.encode_speech(codes), [vocabulary.end]))


def next_token_loss(
    logits: Tensor, tokens: Tensor, text_lengths: Tensor, lengths: Tensor, config: ObjectiveConfig
) -> NextTokenLoss:
    """logits (B, T, V) of `CodecLM.forward` for tokens (B, T), padded after lengths (B,), text before text_lengths.

    `logits[:, i]` is compared with `tokens[:, i + 1]`.
    """
    targets = tokens[:, 1:]
    losses = F.cross_entropy(logits[:, :-1].float().transpose(1, 2), targets, reduction="none")  # (B, T - 1)
    counted = length_mask(lengths - 1, targets.shape[1])
    is_text = length_mask(text_lengths - 1, targets.shape[1]) & counted
    is_speech = counted & ~is_text
    weights = is_speech + config.text_weight * is_text
    right = logits[:, :-1].argmax(dim=-1) == targets
    return NextTokenLoss(
        total=(losses * weights).sum() / weights.sum().clamp_min(1e-6),
        text=masked_mean(losses, is_text),
        speech=masked_mean(losses, is_speech),
        accuracy=masked_mean(right.float(), is_speech),
    )


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of values where mask is True, 0 where it never is."""
    return (values * mask).sum() / mask.sum().clamp_min(1)


def reference_length(num_frames: int, rng: np.random.Generator, config: ObjectiveConfig) -> int:
    """Number of initial frames of an utterance that are its reference: random, at most half, at least one."""
    drawn = int(rng.integers(config.min_reference_frames, config.max_reference_frames, endpoint=True))
    return max(1, min(drawn, num_frames // 2))


@dataclass(frozen=True)
class NoisyBatch:
    """Clean codes with the noise of one random step per row."""

    codes: Tensor
    """(B, T, L) clean."""

    noisy: Tensor
    """(B, T, L), level 0 clean."""

    steps: Tensor
    """(B,) index into the schedule."""


def add_noise(codes: Tensor, schedule: NoiseSchedule, num_classes: int, generator: torch.Generator) -> NoisyBatch:
    """Draw a uniform step for each row of codes (B, T, L), and x_t of q(x_t | x_0) on all levels but the first.

    The steps of a batch are spread evenly over the schedule, for less noise in the loss (arXiv:2107.00630, App. I.1).
    """
    spread = torch.arange(len(codes), device=generator.device) / len(codes)
    first = torch.rand(1, generator=generator, device=generator.device)
    steps = ((spread + first) % 1.0 * len(schedule)).long()
    uniforms = torch.rand((*codes.shape, num_classes), generator=generator, device=generator.device)
    steps, uniforms = steps.to(codes.device), uniforms.to(codes.device)
    noisy = gumbel_draw(q(log_onehot(codes, num_classes), steps, schedule), uniforms)
    return NoisyBatch(codes, torch.cat((codes[..., :1], noisy[..., 1:]), dim=-1), steps)


def drop_references(lengths: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Reference lengths (B,), 0 in random rows: `encode_speaker` then returns the null speaker."""
    uniforms = torch.rand(lengths.shape, generator=generator, device=generator.device)
    return lengths.masked_fill((uniforms < probability).to(lengths.device), 0)


@dataclass(frozen=True)
class BoundLoss:
    """One term of the variational bound, in nats per code; T times its mean over steps is the bound."""

    total: Tensor
    """Scalar, to be minimized: the mean over levels 1 and up."""

    levels: Tensor
    """(L - 1,) of each of them."""


def bound_loss(logits: Tensor, batch: NoisyBatch, lengths: Tensor, schedule: NoiseSchedule) -> BoundLoss:
    """logits (B, T, L, K) of `ResidualTransformer.forward` for the noisy codes; lengths (B,) frames that count."""
    num_classes = logits.shape[-1]
    losses = step_loss(
        log_onehot(batch.codes[..., 1:], num_classes),
        logits[..., 1:, :].float(),
        log_onehot(batch.noisy[..., 1:], num_classes),
        batch.steps,
        schedule,
    )  # (B, T, L - 1)
    counted = length_mask(lengths, losses.shape[1]).unsqueeze(-1)
    levels = (losses * counted).sum(dim=(0, 1)) / counted.sum().clamp_min(1)
    return BoundLoss(levels.mean(), levels)
