"""Multinomial diffusion: noise makes codes uniform step by step, and a prediction of the clean codes reverses it.

Upstream: clean codes, or `nar`'s prediction of them.  Downstream: `objective` (training), `engines.torch` (speaking).
Hoogeboom et al. (arXiv:2102.05379), Sec. 4; equation numbers are theirs.  Everything is a pure function on log
probabilities; K classes on the last axis, batch on the first, anything between.
As published for MARS5, a one-hot vector has logarithms of 1e-7 instead of minus infinity.
Index 0 of a schedule is the first, least noisy step: the paper counts it as t = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marstts.mars5 import steps as arrays
from marstts.mars5.nar import Conditioning, ResidualTransformer
from marstts.mars5.steps import SMALLEST


@dataclass(frozen=True)
class TensorSchedule:
    """`schedule.Schedule` as tensors (N,) on a device."""

    timesteps: Tensor
    log_alpha: Tensor
    log_1_min_alpha: Tensor
    log_cumprod_alpha: Tensor
    log_1_min_cumprod_alpha: Tensor

    def __len__(self) -> int:
        return len(self.timesteps)

    def to(self, device: torch.device | str) -> TensorSchedule:
        """The same on another device."""
        return TensorSchedule(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


def cosine_schedule(num_timesteps: int) -> TensorSchedule:
    """`schedule.cosine_schedule` as tensors."""
    made = arrays.cosine_schedule(num_timesteps)
    return TensorSchedule(*(torch.from_numpy(getattr(made, name)) for name in TensorSchedule.__dataclass_fields__))


def log_onehot(classes: Tensor, num_classes: int) -> Tensor:
    """classes (...) -> (..., K): 0 at the class, log 1e-7 elsewhere."""
    return F.one_hot(classes, num_classes).float().clamp_min(SMALLEST).log()


def mix_with_uniform(log_x: Tensor, log_keep: Tensor, log_lose: Tensor) -> Tensor:
    """log(keep · x + lose / K), the categorical distribution of Eqs. 11 and 12; log_x (..., K)."""
    return torch.logaddexp(log_x + log_keep, log_lose - math.log(log_x.shape[-1]))


def q_one_step(log_previous: Tensor, t: Tensor, schedule: TensorSchedule) -> Tensor:
    """log q(x_t | x_{t-1}) (Eq. 11): log_previous (B, ..., K), t (B,) -> (B, ..., K)."""
    shape = log_previous.dim()
    return mix_with_uniform(
        log_previous, spread(schedule.log_alpha[t], shape), spread(schedule.log_1_min_alpha[t], shape)
    )


def q(log_x0: Tensor, t: Tensor, schedule: TensorSchedule) -> Tensor:
    """log q(x_t | x_0) (Eq. 12): log_x0 (B, ..., K), t (B,) -> (B, ..., K); at t = -1 nothing has been lost."""
    shape, clean = log_x0.dim(), spread(t, log_x0.dim()) < 0
    index = t.clamp_min(0)
    noisy = mix_with_uniform(
        log_x0, spread(schedule.log_cumprod_alpha[index], shape), spread(schedule.log_1_min_cumprod_alpha[index], shape)
    )
    return torch.where(clean, log_x0, noisy)


def q_posterior(log_x0: Tensor, log_xt: Tensor, t: Tensor, schedule: TensorSchedule) -> Tensor:
    """log q(x_{t-1} | x_t, x_0) (Eq. 13): log_x0, log_xt (B, ..., K), t (B,) -> (B, ..., K), normalized.

    q(x_t | x_{t-1}) is symmetric in its two arguments, so `q_one_step` of x_t gives it for every x_{t-1}. With a
    prediction instead of x_0 it is the model's p(x_{t-1} | x_t) (Eq. 14).
    """
    return torch.log_softmax(q(log_x0, t - 1, schedule) + q_one_step(log_xt, t, schedule), dim=-1)


def p_posterior(logits: Tensor, log_xt: Tensor, t: Tensor, schedule: TensorSchedule) -> Tensor:
    """log p(x_{t-1} | x_t) (Eq. 14) from logits of x_0 (B, ..., K)."""
    return q_posterior(torch.log_softmax(logits, dim=-1), log_xt, t, schedule)


def gumbel_draw(log_probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """One class from each distribution: log_probabilities and uniforms (..., K) -> (...).  The Gumbel-max trick."""
    return (log_probabilities + gumbel_noise(uniforms)).argmax(dim=-1)


def gumbel_noise(uniforms: Tensor) -> Tensor:
    """Uniform numbers in [0, 1) as numbers of the standard Gumbel distribution; the shape stays."""
    return -(-uniforms.clamp_min(SMALLEST).log()).clamp_min(SMALLEST).log()


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) of log probabilities (..., K) -> (...)."""
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


def step_loss(log_x0: Tensor, logits: Tensor, log_xt: Tensor, t: Tensor, schedule: TensorSchedule) -> Tensor:
    """L_t, what the variational bound (Eq. 5) charges for one step: (B, ..., K), t (B,) -> (B, ...) nats.

    KL of the true posterior from the model's; at t = 0 (the paper's L_0) the negative log-likelihood of x_0.
    """
    model = p_posterior(logits, log_xt, t, schedule)
    divergence = kl_divergence(q_posterior(log_x0, log_xt, t, schedule), model)
    likelihood = (log_x0.exp() * model).sum(dim=-1)
    return torch.where(spread(t, divergence.dim()) == 0, -likelihood, divergence)


def step_divergence(log_x0: Tensor, logits: Tensor, log_xt: Tensor, t: Tensor, schedule: TensorSchedule) -> Tensor:
    """`step_loss` with the divergence at t = 0 too: the term that the published code adds to the prior's loss."""
    return kl_divergence(q_posterior(log_x0, log_xt, t, schedule), p_posterior(logits, log_xt, t, schedule))


def prior_loss(log_x0: Tensor, schedule: TensorSchedule) -> Tensor:
    """KL of q(x_{T-1} | x_0) from the uniform distribution, (B, ..., K) -> (B, ...): no model can change it."""
    last = torch.full((len(log_x0),), len(schedule) - 1, device=log_x0.device)
    return kl_divergence(q(log_x0, last, schedule), torch.full_like(log_x0, -math.log(log_x0.shape[-1])))


def spread(values: Tensor, dims: int) -> Tensor:
    """values (B,) -> (B, 1, ..., 1) of `dims` axes."""
    return values.view(-1, *([1] * (dims - 1)))


# One reverse step of the diffusion in PyTorch: what `engines.torch` runs and `export.graphs` exports.
# Guidance by the speaker (classifier-free, arXiv:2207.12598) on logits, both passes as rows of one batch;
# temperature; the posterior (`diffusion.p_posterior`); the draw. Shapes: B batch · T frames · L levels · K classes ·
# S text ids · D width.


class ReverseStep(nn.Module):
    """Noisy codes to those of the step before."""

    classes: Tensor

    def __init__(self, model: ResidualTransformer) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("classes", torch.arange(model.config.num_classes), persistent=False)

    def logits(
        self,
        codes: Tensor,
        lengths: Tensor,
        timesteps: Tensor,
        given: Conditioning,
        null_speaker: Tensor | None = None,
        guidance: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, T, L, K) of the clean codes; with a null speaker (1, D) and a weight (1,), guided ones."""
        if null_speaker is None or guidance is None:
            return self.model(codes, lengths, timesteps, given)
        unknown = null_speaker.expand(given.speaker.shape[0], -1)
        both = Conditioning(
            given.text_ids.repeat(2, 1), given.text_lengths.repeat(2), torch.cat((given.speaker, unknown))
        )
        doubled = self.model(codes.repeat(2, 1, 1), lengths.repeat(2), timesteps.repeat(2), both)
        known, without = doubled.unflatten(0, (2, -1)).unbind(0)
        return guidance * known + (1 - guidance) * without

    def forward(
        self,
        codes: Tensor,
        lengths: Tensor,
        timesteps: Tensor,
        text_ids: Tensor,
        text_lengths: Tensor,
        speaker: Tensor,
        temperature: Tensor,
        rates: Tensor,
        legal: Tensor,
        noise: Tensor,
        uniforms: Tensor,
        null_speaker: Tensor | None = None,
        guidance: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """codes (B, T, L), lengths and timesteps (B,), texts (B, S), speaker (B, D), uniforms (B, T, L, K).

        rates (4,): logarithms of what all steps up to the one before keep and lose, and of what this one does.
        legal (K,) is 0 for classes that may be drawn, else minus infinity. noise (1,) is 0 for the most probable codes,
        1 for a draw. -> codes (B, T, L), and the sum of the logits (B,), which shows whether they are numbers.
        """
        given = Conditioning(text_ids, text_lengths, speaker)
        logits = self.logits(codes, lengths, timesteps, given, null_speaker, guidance)
        log_x0 = torch.log_softmax(logits / temperature + legal, dim=-1)
        log_xt = (codes.unsqueeze(-1) == self.classes).float().clamp_min(SMALLEST).log()
        before = mix_with_uniform(log_x0, rates[0], rates[1])
        log_probabilities = torch.log_softmax(before + mix_with_uniform(log_xt, rates[2], rates[3]), dim=-1)
        drawn = (log_probabilities + noise * gumbel_noise(uniforms)).argmax(dim=-1)
        return drawn, logits.sum(dim=(1, 2, 3))
