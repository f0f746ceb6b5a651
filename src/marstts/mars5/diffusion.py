"""Multinomial diffusion: noise makes codes uniform step by step, and a prediction of the clean codes reverses it.

Upstream: clean codes, or `nar`'s prediction of them.  Downstream: `objective` (training), `repaint` (speaking).
Hoogeboom et al. (arXiv:2102.05379), Sec. 4; equation numbers are theirs.  The schedule and the distributions are pure
functions on log probabilities; K classes on the last axis, batch on the first, anything between.
As published for MARS5, a one-hot vector has logarithms of 1e-7 instead of minus infinity. Schedules are computed in
float32 up to their square root, then in float64, then kept as float32. Processors differ in float32 cosines, by up to
3e-4 in log(1 - α).  Index 0 of a schedule is the first, least noisy step: the paper counts it as t = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from marstts.generation.engine import refuse_nan
from marstts.mars5.nar import Conditioning, ResidualTransformer

NUM_TIMESTEPS = 200
"""T of the schedule the published NAR was trained with."""

SMALLEST = 1e-7
"""Replaces zero before a logarithm."""

COSINE_OFFSET = 0.008
"""s of the cosine schedule (arXiv:2102.09672)."""

SMALLEST_ALPHA = 0.001


@dataclass(frozen=True)
class NoiseSchedule:
    """Noise schedule of N steps: how much of the codes each keeps; all tensors (N,)."""

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

    def to(self, device: torch.device | str) -> NoiseSchedule:
        """The same on another device."""
        return NoiseSchedule(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


def cosine_schedule(num_timesteps: int) -> NoiseSchedule:
    """The published schedule of T steps: ratios of squared cosines (arXiv:2102.09672, Eq. 17), at least 0.001, rooted.

    After the square root ᾱ_t is the cosine itself.
    """
    timesteps = np.arange(num_timesteps + 1, dtype=np.float32)
    angles = (timesteps / np.float32(num_timesteps) + np.float32(COSINE_OFFSET)) / np.float32(1 + COSINE_OFFSET)
    curve = np.cos(angles * np.float32(math.pi) * np.float32(0.5)) ** 2
    curve = curve / curve[0]
    alphas = np.sqrt(np.clip(curve[1:] / curve[:-1], np.float32(SMALLEST_ALPHA), np.float32(1.0)))
    log_alpha = np.log(alphas.astype(np.float64))
    return make_schedule(np.arange(num_timesteps), np.cumsum(log_alpha), log_alpha)


def subsample(schedule: NoiseSchedule, num_steps: int) -> NoiseSchedule:
    """The schedule in `num_steps` larger steps: evenly spread, with the first and the last of its timesteps.

    Each new step does what the ones it stands for did together, so the marginals q(x_t | x_0) stay.
    """
    if num_steps >= len(schedule):
        return schedule
    kept = np.rint(np.linspace(len(schedule) - 1, 0, num_steps)).astype(np.int64)[::-1]
    log_cumprod = schedule.log_cumprod_alpha.double().numpy()[kept]
    return make_schedule(schedule.timesteps.numpy()[kept], log_cumprod, np.diff(log_cumprod, prepend=0.0))


def make_schedule(
    timesteps: NDArray[np.int64], log_cumprod: NDArray[np.float64], log_alpha: NDArray[np.float64]
) -> NoiseSchedule:
    """A schedule from log ᾱ_t and log α_t, both (N,) float64."""
    values = (timesteps, log_alpha, log_1_min(log_alpha), log_cumprod, log_1_min(log_cumprod))
    first, *others = (torch.from_numpy(np.ascontiguousarray(value)) for value in values)
    return NoiseSchedule(first, *(other.float() for other in others))


def log_1_min(log_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(1 - exp(v)), at least log 1e-30."""
    return np.log(np.maximum(1 - np.exp(log_values), 1e-30))


def log_onehot(classes: Tensor, num_classes: int) -> Tensor:
    """classes (...) -> (..., K): 0 at the class, log 1e-7 elsewhere."""
    return F.one_hot(classes, num_classes).float().clamp_min(SMALLEST).log()


def mix_with_uniform(log_x: Tensor, log_keep: Tensor, log_lose: Tensor) -> Tensor:
    """log(keep · x + lose / K), the categorical distribution of Eqs. 11 and 12; log_x (..., K)."""
    return torch.logaddexp(log_x + log_keep, log_lose - math.log(log_x.shape[-1]))


def q_one_step(log_previous: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
    """log q(x_t | x_{t-1}) (Eq. 11): log_previous (B, ..., K), t (B,) -> (B, ..., K)."""
    shape = log_previous.dim()
    return mix_with_uniform(
        log_previous, spread(schedule.log_alpha[t], shape), spread(schedule.log_1_min_alpha[t], shape)
    )


def q(log_x0: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
    """log q(x_t | x_0) (Eq. 12): log_x0 (B, ..., K), t (B,) -> (B, ..., K); at t = -1 nothing has been lost."""
    shape, clean = log_x0.dim(), spread(t, log_x0.dim()) < 0
    index = t.clamp_min(0)
    noisy = mix_with_uniform(
        log_x0, spread(schedule.log_cumprod_alpha[index], shape), spread(schedule.log_1_min_cumprod_alpha[index], shape)
    )
    return torch.where(clean, log_x0, noisy)


def q_posterior(log_x0: Tensor, log_xt: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
    """log q(x_{t-1} | x_t, x_0) (Eq. 13): log_x0, log_xt (B, ..., K), t (B,) -> (B, ..., K), normalized.

    q(x_t | x_{t-1}) is symmetric in its two arguments, so `q_one_step` of x_t gives it for every x_{t-1}. With a
    prediction instead of x_0 it is the model's p(x_{t-1} | x_t) (Eq. 14).
    """
    return torch.log_softmax(q(log_x0, t - 1, schedule) + q_one_step(log_xt, t, schedule), dim=-1)


def p_posterior(logits: Tensor, log_xt: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
    """log p(x_{t-1} | x_t) (Eq. 14) from logits of x_0 (B, ..., K)."""
    return q_posterior(torch.log_softmax(logits, dim=-1), log_xt, t, schedule)


def gumbel_draw(log_probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """One class from each distribution: log_probabilities and uniforms (..., K) -> (...).  The Gumbel-max trick."""
    noise = -(-uniforms.clamp_min(SMALLEST).log()).clamp_min(SMALLEST).log()
    return (log_probabilities + noise).argmax(dim=-1)


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) of log probabilities (..., K) -> (...)."""
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


def step_loss(log_x0: Tensor, logits: Tensor, log_xt: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
    """L_t, what the variational bound (Eq. 5) charges for one step: (B, ..., K), t (B,) -> (B, ...) nats.

    KL of the true posterior from the model's; at t = 0 (the paper's L_0) the negative log-likelihood of x_0.
    """
    model = p_posterior(logits, log_xt, t, schedule)
    divergence = kl_divergence(q_posterior(log_x0, log_xt, t, schedule), model)
    likelihood = (log_x0.exp() * model).sum(dim=-1)
    return torch.where(spread(t, divergence.dim()) == 0, -likelihood, divergence)


def spread(values: Tensor, dims: int) -> Tensor:
    """values (B,) -> (B, 1, ..., 1) of `dims` axes."""
    return values.view(-1, *([1] * (dims - 1)))


@dataclass(frozen=True, eq=False)
class ReverseStep:
    """One reverse step of the diffusion for B rows: prediction, guidance, temperature, posterior and draw.

    T frames, L levels.
    """

    model: ResidualTransformer
    schedule: NoiseSchedule
    given: Conditioning

    lengths: Tensor
    """(B,) frames."""

    guidance: float
    """w of w · logits given the speaker + (1 - w) · logits without (classifier-free, arXiv:2207.12598); 1 = none."""

    temperature: float

    num_legal: int
    """Classes from this one on are never drawn."""

    def logits(self, codes: Tensor, step: int) -> Tensor:
        """Guided logits (B, T, L, K) of the clean codes, given those (B, T, L) at a step of the schedule."""
        timesteps, given = self.schedule.timesteps[step].expand(len(codes)), self.given
        if self.guidance == 1:
            return self.model(codes, self.lengths, timesteps, given)
        speakers = torch.cat((given.speaker, self.model.null_speaker(len(codes))))  # both passes are rows of one batch
        both = Conditioning(given.text_ids.repeat(2, 1), given.text_lengths.repeat(2), speakers)
        doubled = self.model(codes.repeat(2, 1, 1), self.lengths.repeat(2), timesteps.repeat(2), both)
        known, without = doubled.unflatten(0, (2, -1)).unbind(0)
        return self.guidance * known + (1 - self.guidance) * without

    @torch.inference_mode()
    def __call__(self, codes: Tensor, step: int, uniforms: Tensor | None) -> Tensor:
        """Codes (B, T, L) of the step before, drawn by uniforms (B, T, L, K); without them the most probable ones.

        CheckpointError where a logit is no number.
        """
        logits = self.logits(codes, step)
        refuse_nan(logits.sum(dim=(1, 2, 3)).cpu().numpy())
        classes = torch.arange(logits.shape[-1], device=logits.device)
        log_x0 = torch.log_softmax((logits / self.temperature).masked_fill(classes >= self.num_legal, -torch.inf), -1)
        t = torch.full((len(codes),), step, device=codes.device)
        log_probabilities = q_posterior(log_x0, log_onehot(codes, len(classes)), t, self.schedule)
        return log_probabilities.argmax(dim=-1) if uniforms is None else gumbel_draw(log_probabilities, uniforms)
