"""Multinomial diffusion: noise makes codes uniform step by step, and a prediction of the clean codes reverses it.

Upstream: clean codes, or `nar`'s prediction of them.  Downstream: `repaint` (speaking), `objective` (training).
Hoogeboom et al. (arXiv:2102.05379), Sec. 4; equation numbers are theirs.  Everything is a pure function on log
probabilities; K classes on the last axis, batch on the first, anything between.
As published for MARS5: a one-hot vector has logarithms of 1e-7 instead of minus infinity; schedules are computed in
float32 up to their square root, then in float64, then kept as float32.
Index 0 of a schedule is the first, least noisy step: the paper counts it as t = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from marstts.mars5.steps import COSINE_OFFSET, SMALLEST, SMALLEST_ALPHA


@dataclass(frozen=True)
class Schedule:
    """Noise schedule of N steps: how much of the codes each keeps; all tensors (N,) float32 but the first, int64."""

    timesteps: Tensor
    """The timestep that the model is conditioned on at each step: 0..T-1, or fewer."""

    log_alpha: Tensor
    """Logarithm of what one step keeps."""

    log_1_min_alpha: Tensor

    log_cumprod_alpha: Tensor
    """Logarithm of what all steps up to t keep together."""

    log_1_min_cumprod_alpha: Tensor

    def __len__(self) -> int:
        return len(self.timesteps)

    def to(self, device: torch.device | str) -> Schedule:
        """The same on another device."""
        return Schedule(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


def cosine_schedule(num_timesteps: int) -> Schedule:
    """The published schedule of T steps: ratios of squared cosines (arXiv:2102.09672, Eq. 17), at least 0.001, rooted.

    After the square root ᾱ_t is the cosine itself.
    """
    timesteps = torch.arange(num_timesteps + 1, dtype=torch.float32)
    curve = torch.cos((timesteps / num_timesteps + COSINE_OFFSET) / (1 + COSINE_OFFSET) * math.pi * 0.5) ** 2
    curve = curve / curve[0]
    alphas = (curve[1:] / curve[:-1]).clamp(SMALLEST_ALPHA, 1.0).sqrt()
    log_alpha = alphas.double().log()
    return make_schedule(torch.arange(num_timesteps), log_alpha.cumsum(dim=0), log_alpha)


def subsample(schedule: Schedule, num_steps: int) -> Schedule:
    """The schedule in `num_steps` larger steps: evenly spread, with the first and the last of its timesteps.

    Each new step does what the ones it stands for did together, so the marginals q(x_t | x_0) stay.
    """
    if num_steps >= len(schedule):
        return schedule
    kept = torch.linspace(len(schedule) - 1, 0, num_steps).round().long().flip(0)
    log_cumprod = schedule.log_cumprod_alpha.double()[kept]
    return make_schedule(schedule.timesteps[kept], log_cumprod, torch.cat((log_cumprod[:1], log_cumprod.diff())))


def make_schedule(timesteps: Tensor, log_cumprod: Tensor, log_alpha: Tensor) -> Schedule:
    """A schedule from log ᾱ_t and log α_t, both (N,) float64."""
    return Schedule(
        timesteps=timesteps,
        log_alpha=log_alpha.float(),
        log_1_min_alpha=log_1_min(log_alpha).float(),
        log_cumprod_alpha=log_cumprod.float(),
        log_1_min_cumprod_alpha=log_1_min(log_cumprod).float(),
    )


def log_1_min(log_values: Tensor) -> Tensor:
    """log(1 - exp(v)), at least log 1e-30."""
    return (1 - log_values.exp()).clamp_min(1e-30).log()


def log_onehot(classes: Tensor, num_classes: int) -> Tensor:
    """classes (...) -> (..., K): 0 at the class, log 1e-7 elsewhere."""
    return F.one_hot(classes, num_classes).float().clamp_min(SMALLEST).log()


def mix_with_uniform(log_x: Tensor, log_keep: Tensor, log_lose: Tensor) -> Tensor:
    """log(keep · x + lose / K), the categorical distribution of Eqs. 11 and 12; log_x (..., K)."""
    return torch.logaddexp(log_x + log_keep, log_lose - math.log(log_x.shape[-1]))


def q_one_step(log_previous: Tensor, t: Tensor, schedule: Schedule) -> Tensor:
    """log q(x_t | x_{t-1}) (Eq. 11): log_previous (B, ..., K), t (B,) -> (B, ..., K)."""
    shape = log_previous.dim()
    return mix_with_uniform(
        log_previous, spread(schedule.log_alpha[t], shape), spread(schedule.log_1_min_alpha[t], shape)
    )


def q(log_x0: Tensor, t: Tensor, schedule: Schedule) -> Tensor:
    """log q(x_t | x_0) (Eq. 12): log_x0 (B, ..., K), t (B,) -> (B, ..., K); at t = -1 nothing has been lost."""
    shape, clean = log_x0.dim(), spread(t, log_x0.dim()) < 0
    index = t.clamp_min(0)
    noisy = mix_with_uniform(
        log_x0, spread(schedule.log_cumprod_alpha[index], shape), spread(schedule.log_1_min_cumprod_alpha[index], shape)
    )
    return torch.where(clean, log_x0, noisy)


def q_posterior(log_x0: Tensor, log_xt: Tensor, t: Tensor, schedule: Schedule) -> Tensor:
    """log q(x_{t-1} | x_t, x_0) (Eq. 13): log_x0, log_xt (B, ..., K), t (B,) -> (B, ..., K), normalized.

    q(x_t | x_{t-1}) is symmetric in its two arguments, so `q_one_step` of x_t gives it for every x_{t-1}. With a
    prediction instead of x_0 it is the model's p(x_{t-1} | x_t) (Eq. 14).
    """
    return torch.log_softmax(q(log_x0, t - 1, schedule) + q_one_step(log_xt, t, schedule), dim=-1)


def p_posterior(logits: Tensor, log_xt: Tensor, t: Tensor, schedule: Schedule) -> Tensor:
    """log p(x_{t-1} | x_t) (Eq. 14) from logits of x_0 (B, ..., K)."""
    return q_posterior(torch.log_softmax(logits, dim=-1), log_xt, t, schedule)


def gumbel_draw(log_probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """One class from each distribution: log_probabilities and uniforms (..., K) -> (...).  The Gumbel-max trick."""
    gumbel = -(-uniforms.clamp_min(SMALLEST).log()).clamp_min(SMALLEST).log()
    return (log_probabilities + gumbel).argmax(dim=-1)


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) of log probabilities (..., K) -> (...)."""
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


def step_loss(log_x0: Tensor, logits: Tensor, log_xt: Tensor, t: Tensor, schedule: Schedule) -> Tensor:
    """L_t, what the variational bound (Eq. 5) charges for one step: (B, ..., K), t (B,) -> (B, ...) nats.

    KL of the true posterior from the model's; at t = 0 (the paper's L_0) the negative log-likelihood of x_0.
    """
    model = p_posterior(logits, log_xt, t, schedule)
    divergence = kl_divergence(q_posterior(log_x0, log_xt, t, schedule), model)
    likelihood = (log_x0.exp() * model).sum(dim=-1)
    return torch.where(spread(t, divergence.dim()) == 0, -likelihood, divergence)


def step_divergence(log_x0: Tensor, logits: Tensor, log_xt: Tensor, t: Tensor, schedule: Schedule) -> Tensor:
    """`step_loss` with the divergence at t = 0 too: the term that the published code adds to the prior's loss."""
    return kl_divergence(q_posterior(log_x0, log_xt, t, schedule), p_posterior(logits, log_xt, t, schedule))


def prior_loss(log_x0: Tensor, schedule: Schedule) -> Tensor:
    """KL of q(x_{T-1} | x_0) from the uniform distribution, (B, ..., K) -> (B, ...): no model can change it."""
    last = torch.full((len(log_x0),), len(schedule) - 1, device=log_x0.device)
    return kl_divergence(q(log_x0, last, schedule), torch.full_like(log_x0, -math.log(log_x0.shape[-1])))


def q_one_step_progressive(
    log_previous: Tensor, t: Tensor, schedule: Schedule, *, counter: float, jump_length: int
) -> Tensor:
    """`q_one_step` that spares early frames: TransFusion's sequentially progressive jump (arXiv:2210.07677, Sec. 4.2).

    log_previous (B, T, ..., K), t (B,) -> (B, T, ..., K), not normalized.  Frame i of T keeps the more the smaller
    s_i = sigmoid((i - T c / j + 20) / 8) is, for a counter c and a jump length j.
    """
    shape, num_frames = log_previous.dim(), log_previous.shape[1]
    frames = torch.arange(num_frames, device=log_previous.device)
    extra = F.logsigmoid((frames - num_frames * counter / jump_length + 20) / 8)
    extra = extra.view(1, -1, *([1] * (shape - 2)))
    log_keep = (spread(schedule.log_alpha[t], shape) - extra).clamp_max(0)
    return mix_with_uniform(log_previous, log_keep, spread(schedule.log_1_min_alpha[t], shape) + extra)


def spread(values: Tensor, dims: int) -> Tensor:
    """values (B,) -> (B, 1, ..., 1) of `dims` axes."""
    return values.view(-1, *([1] * (dims - 1)))
