"""RePaint: codes drawn by reverse diffusion, some of which are known beforehand.

Upstream: a `Denoiser` (`guidance`), the AR's level 0, a reference's codes.  Downstream: `pipeline`.
Lugmayr et al. (arXiv:2201.09865), Algorithm 1, with multinomial diffusion (`diffusion`) in place of Gaussian; the
sequentially progressive jump is TransFusion's (arXiv:2210.07677, Sec. 4.2).
Deviations of the published code from the paper are values of `steps.ReverseRules`; by default we follow the paper.
Rows are independent: each draws from its own generator as many numbers as its own frames need.
Shapes: B batch · T frames · L levels · K classes · N steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from marstts.mars5.diffusion import (
    Schedule,
    gumbel_draw,
    log_onehot,
    p_posterior,
    q,
    q_one_step,
    q_one_step_progressive,
)
from marstts.mars5.steps import PAPER, DiffusionConfig, JumpNoise, ReverseRules, walk, walk_pairs

Denoiser = Callable[[Tensor, Tensor], Tensor]
"""Noisy codes (B, T, L) at timesteps (B,) -> logits (B, T, L, K) of the clean ones."""


@dataclass(frozen=True)
class Given:
    """Codes that are known before sampling; B rows of up to T frames."""

    codes: Tensor
    """(B, T, L); what is not known may be any class."""

    known: Tensor
    """(B, T, L) True for codes that are known to the end, and noised meanwhile (inpainting)."""

    held: Tensor
    """(B, T, L) True for codes that the model sees clean, until `q0_override_steps` lets it override them."""

    lengths: tuple[int, ...]
    """B frames that count; at least 1 each."""


class Randomness:
    """Random numbers for B rows, each from its own generator; padding gets none."""

    def __init__(self, generators: Sequence[torch.Generator], given: Given) -> None:
        assert len(generators) == len(given.lengths), "one generator for each row"
        self._generators, self._given = generators, given

    def uniforms(self, num_classes: int) -> Tensor:
        """(B, T, L, K) in [0, 1); one half in the padding."""
        codes = self._given.codes
        numbers = torch.full((*codes.shape, num_classes), 0.5, device=codes.device)
        for row, (generator, length) in enumerate(zip(self._generators, self._given.lengths, strict=True)):
            shape = (length, codes.shape[2], num_classes)
            numbers[row, :length] = torch.rand(shape, generator=generator, device=generator.device).to(codes.device)
        return numbers

    def classes(self, num_classes: int, starts: Sequence[int]) -> Tensor:
        """(B, T, L) of any class, each row's from its frame in `starts` on; zeros elsewhere."""
        codes = self._given.codes
        numbers = torch.zeros_like(codes)
        for row, (generator, length) in enumerate(zip(self._generators, self._given.lengths, strict=True)):
            shape = (length - starts[row], codes.shape[2])
            drawn = torch.randint(0, num_classes, shape, generator=generator, device=generator.device)
            numbers[row, starts[row] : length] = drawn.to(codes.device)
        return numbers


@torch.inference_mode()
def repaint(
    denoise: Denoiser,
    given: Given,
    schedule: Schedule,
    config: DiffusionConfig,
    randomness: Randomness,
    *,
    num_classes: int,
    starts: Sequence[int],
    rules: ReverseRules = PAPER,
) -> Tensor:
    """Codes (B, T, L) drawn by the reverse process; `schedule` has the steps to be made.

    `starts` are the rows' first frames that begin as noise; what is before them is known entirely.
    """
    fixed = given.known | given.held
    x = torch.where(fixed, given.codes, randomness.classes(num_classes, starts))
    for step, following, counter in walk_pairs(walk(len(schedule), config.jump_len, config.jump_n_sample), config):
        index = torch.full((len(x),), step, device=x.device)
        if following < step:
            greedy = config.last_greedy and following < 0
            log_known = q(log_onehot(given.codes, num_classes), index - rules.known_lag, schedule)
            logits = denoise(x, schedule.timesteps[index])
            unknown = step_down(logits, x, index, schedule, None if greedy else randomness.uniforms(num_classes))
            known = given.codes if following < 0 else gumbel_draw(log_known, randomness.uniforms(num_classes))
            x = torch.where(given.known, known, unknown)
        else:
            x = step_up(x, index + rules.jump_lead, schedule, config, counter, randomness.uniforms(num_classes))
        if rules.hold(step, following, config.q0_override_steps, schedule):
            x = torch.where(given.held, given.codes, x)
    return x


def step_down(logits: Tensor, x: Tensor, index: Tensor, schedule: Schedule, uniforms: Tensor | None) -> Tensor:
    """x_{t-1} (B, T, L) from x_t (B, T, L) and logits (B, T, L, K) of x_0; without uniforms the most probable one."""
    log_probabilities = p_posterior(logits, log_onehot(x, logits.shape[-1]), index, schedule)
    return log_probabilities.argmax(dim=-1) if uniforms is None else gumbel_draw(log_probabilities, uniforms)


def step_up(
    x: Tensor, index: Tensor, schedule: Schedule, config: DiffusionConfig, counter: float, uniforms: Tensor
) -> Tensor:
    """x (B, T, L) with the noise of step `index` added."""
    log_x = log_onehot(x, uniforms.shape[-1])
    if config.jump_noise is JumpNoise.PROGRESSIVE:
        noisier = q_one_step_progressive(log_x, index, schedule, counter=counter, jump_length=config.jump_len)
    else:
        noisier = q_one_step(log_x, index, schedule)
    return gumbel_draw(noisier, uniforms)
