"""RePaint: codes drawn by reverse diffusion, some of which are known beforehand.

Upstream: a `Denoiser` (`guidance`), the AR's level 0, a reference's codes.  Downstream: `pipeline`.
Lugmayr et al. (arXiv:2201.09865), Algorithm 1, with multinomial diffusion (`diffusion`) in place of Gaussian; the
sequentially progressive jump is TransFusion's (arXiv:2210.07677, Sec. 4.2).
Deviations of the published code from the paper are values of `ReverseRules`; by default we follow the paper.
Rows are independent: each draws from its own generator as many numbers as its own frames need.
Shapes: B batch · T frames · L levels · K classes · N steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import torch
from pydantic import Field, model_validator
from torch import Tensor

from marstts.config import Config
from marstts.mars5.diffusion import (
    Schedule,
    gumbel_draw,
    log_onehot,
    p_posterior,
    q,
    q_one_step,
    q_one_step_progressive,
)

Denoiser = Callable[[Tensor, Tensor], Tensor]
"""Noisy codes (B, T, L) at timesteps (B,) -> logits (B, T, L, K) of the clean ones."""


class JumpNoise(str, Enum):
    """Noise that is added to the codes when RePaint jumps up."""

    UNIFORM = "uniform"
    """All frames alike."""

    PROGRESSIVE = "progressive"
    """Early frames keep more, the later the jump."""


class DiffusionConfig(Config):
    """Sampling of the codes of levels 1 and up. Names and defaults are the release's."""

    timesteps: int = Field(200, gt=0, le=10_000)
    """N, reverse steps; fewer than the schedule has are spread evenly over it."""

    nar_guidance_w: float = 3.0
    """Classifier-free guidance: w · logits given the speaker + (1 - w) · logits without; 1 = none."""

    x_0_temp: float = Field(0.7, gt=0)
    """Temperature of the predicted clean codes."""

    q0_override_steps: int = Field(20, ge=0, le=10_000)
    """Timestep below which the NAR's level 0 overrides the AR's; 0 = never."""

    jump_len: int = Field(1, gt=0, le=10_000)
    """Steps of a jump back up (RePaint's j)."""

    jump_n_sample: int = Field(1, gt=0, le=1000)
    """Number of passes over each jump's steps (RePaint's r); 1 = no jumps."""

    jump_noise: JumpNoise = JumpNoise.UNIFORM

    last_greedy: bool = True
    """Whether the last step takes the most probable codes instead of drawing."""

    @model_validator(mode="after")
    def _guidance_is_finite(self) -> DiffusionConfig:
        if not abs(self.nar_guidance_w) < float("inf"):
            raise ValueError(f"nar_guidance_w ({self.nar_guidance_w}) must be a finite number")
        return self


def hold_until_override(step: int, following: int, override: int, schedule: Schedule) -> bool:
    """Whether what is held is still held after a move from `step` to `following`: the step that led, or would have led,
    down to `following` started from a timestep of at least `override`.
    """
    return following + 1 >= len(schedule) or int(schedule.timesteps[following + 1]) >= override


def hold_as_published(step: int, following: int, override: int, schedule: Schedule) -> bool:
    """The release's rule: it looks at the timestep that was left, so it is one late, after jumps too."""
    return int(schedule.timesteps[step]) > override


@dataclass(frozen=True, kw_only=True)
class ReverseRules:
    """Deviations of the published reverse process from RePaint; the defaults have none."""

    known_lag: int = 1
    """A step from t to t - 1 noises what is known as at t - known_lag. Published: 0, one level too high."""

    jump_lead: int = 1
    """A jump from t to t + 1 adds the noise of step t + jump_lead. Published: 0, one level too low."""

    hold: Callable[[int, int, int, Schedule], bool] = hold_until_override
    """Whether what is held stays clean after a move."""


PAPER = ReverseRules()
PUBLISHED = ReverseRules(known_lag=0, jump_lead=0, hold=hold_as_published)


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


def walk(num_steps: int, jump_len: int, jump_n_sample: int) -> list[int]:
    """The steps to visit, from N - 1 to -1 (clean), with jumps back up (RePaint's Algorithm 1 and its Fig. 9).

    At every multiple of `jump_len` below N - jump_len the walk jumps up by `jump_len`, `jump_n_sample` - 1 times.
    """
    jumps = dict.fromkeys(range(0, num_steps - jump_len, jump_len), jump_n_sample - 1)
    steps, step = [], num_steps
    while step > 0:
        step -= 1
        steps.append(step)
        if jumps.get(step, 0) > 0:
            jumps[step] -= 1
            steps += range(step + 1, step + jump_len + 1)
            step += jump_len
    return [*steps, -1]


def walk_pairs(steps: Sequence[int], config: DiffusionConfig) -> Iterator[tuple[int, int, float]]:
    """Each step, the one after it, and how far the progressive jump has come (its counter c)."""
    counter = 0.0
    for step, following in pairwise(steps):
        if following < step:
            counter = (0.0 if counter > config.jump_n_sample else counter) + 1 / config.jump_len
        yield step, following, counter


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
