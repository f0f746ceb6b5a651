"""RePaint: codes drawn by reverse diffusion, some of which are known beforehand; its settings, and its walk.

Upstream: `diffusion.ReverseStep`, the AR's level 0, a reference's codes.  Downstream: `pipeline`, `profiles`.
Lugmayr et al. (arXiv:2201.09865), Algorithm 1, with multinomial diffusion (arXiv:2102.05379, the equations of
`diffusion`) in place of Gaussian.
Deviations of the published code from the paper are values of `ReverseRules`; by default we follow the paper.
Rows are independent: each draws from its own generator as many numbers as its own frames need.
Shapes: B batch · T frames · L levels · K classes · N steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from pydantic import Field, model_validator
from torch import Tensor

from marstts.io.config import Config
from marstts.mars5.diffusion import NoiseSchedule, gumbel_draw, log_onehot, q, q_one_step

StepDown = Callable[[Tensor, int, Tensor | None], Tensor]
"""Codes (B, T, L) at a step of the schedule, and uniforms (B, T, L, K) -> codes of the step before.

Without uniforms the most probable ones."""


class DiffusionConfig(Config):
    """Sampling of the codes of levels 1 and up. Names and defaults are the release's."""

    timesteps: int = Field(200, gt=0, le=10_000)
    """N, reverse steps; fewer than the schedule has are spread evenly over it."""

    nar_guidance_w: float = 3.0
    """Classifier-free guidance: w · logits given the speaker + (1 - w) · logits without; 1 = none."""

    x_0_temp: float = Field(0.7, gt=0)
    """Temperature of the predicted clean codes."""

    q0_override_steps: int = Field(20, ge=0, le=10_000)
    """Timestep below which the profile `released` noises level 0, too; without that profile level 0 is fixed."""

    jump_len: int = Field(1, gt=0, le=10_000)
    """Steps of a jump back up (RePaint's j)."""

    jump_n_sample: int = Field(1, gt=0, le=1000)
    """Number of passes over each jump's steps (RePaint's r); 1 = no jumps."""

    last_greedy: bool = True
    """Whether the last step takes the most probable codes instead of drawing."""

    @model_validator(mode="after")
    def _guidance_is_finite(self) -> DiffusionConfig:
        if not abs(self.nar_guidance_w) < float("inf"):
            raise ValueError(f"nar_guidance_w ({self.nar_guidance_w}) must be a finite number")
        return self


def hold_always(step: int, override: int, schedule: NoiseSchedule) -> bool:
    """Level 0 is fixed, as the papers say."""
    return True


def hold_as_published(step: int, override: int, schedule: NoiseSchedule) -> bool:
    """Level 0 is fixed until a timestep of at most `override` was left."""
    return int(schedule.timesteps[step]) > override


@dataclass(frozen=True, kw_only=True)
class ReverseRules:
    """Deviations of the published reverse process from RePaint; the defaults have none."""

    known_lag: int = 1
    """A step from t to t - 1 noises what is known as at t - known_lag. Published: 0, one level too high."""

    jump_lead: int = 1
    """A jump from t to t + 1 adds the noise of step t + jump_lead. Published: 0, one level too low."""

    hold: Callable[[int, int, NoiseSchedule], bool] = hold_always
    """Whether level 0 stays clean after the move from a step, given `q0_override_steps` and the schedule."""


PAPER = ReverseRules()
PUBLISHED = ReverseRules(known_lag=0, jump_lead=0, hold=hold_as_published)


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


@dataclass(frozen=True, eq=False)
class Given:
    """Codes that are known before the diffusion; B rows of up to T frames."""

    codes: Tensor
    """(B, T, L); what is not known may be any class."""

    known: Tensor
    """(B, T, L) True for codes that are known to the end, and noised meanwhile (inpainting)."""

    held: Tensor
    """(B, T, L) True for codes that the model sees clean: level 0."""

    lengths: tuple[int, ...]
    """B frames that count; at least 1 each."""


class Draws:
    """Random numbers for B rows, each from its own generator, drawn on the CPU; padding gets none."""

    def __init__(self, seeds: Sequence[int], given: Given) -> None:
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._lengths, self._shape, self._device = given.lengths, given.codes.shape, given.codes.device

    def uniforms(self, num_classes: int) -> Tensor:
        """(B, T, L, K) in [0, 1); one half in the padding."""
        numbers = torch.full((*self._shape, num_classes), 0.5)
        for row, (generator, length) in enumerate(zip(self._generators, self._lengths, strict=True)):
            numbers[row, :length] = torch.rand((length, self._shape[2], num_classes), generator=generator)
        return numbers.to(self._device)

    def classes(self, num_classes: int, starts: Sequence[int]) -> Tensor:
        """(B, T, L) of any class, each row's from its frame in `starts` on; zeros elsewhere."""
        numbers = torch.zeros(self._shape, dtype=torch.long)
        for row, (generator, length) in enumerate(zip(self._generators, self._lengths, strict=True)):
            shape = length - starts[row], self._shape[2]
            numbers[row, starts[row] : length] = torch.randint(num_classes, shape, generator=generator)
        return numbers.to(self._device)


def repaint(
    step_down: StepDown,
    given: Given,
    schedule: NoiseSchedule,
    config: DiffusionConfig,
    draws: Draws,
    *,
    num_classes: int,
    starts: Sequence[int],
    rules: ReverseRules = PAPER,
) -> Tensor:
    """Codes (B, T, L) drawn by the reverse process; `schedule` has the steps to be made.

    `starts` are the rows' first frames that begin as noise; what is before them is known entirely.
    """
    log_known = log_onehot(given.codes, num_classes) if given.known.any() else None
    x = torch.where(given.known | given.held, given.codes, draws.classes(num_classes, starts))
    for step, following in pairwise(walk(len(schedule), config.jump_len, config.jump_n_sample)):
        if following < step:
            greedy = config.last_greedy and following < 0
            drawn = step_down(x, step, None if greedy else draws.uniforms(num_classes))
            known = given.codes
            if following >= 0:
                uniforms = draws.uniforms(num_classes)
                if log_known is not None:
                    known = gumbel_draw(q(log_known, every_row(x, step - rules.known_lag), schedule), uniforms)
            x = torch.where(given.known, known, drawn)
        else:
            noisier = q_one_step(log_onehot(x, num_classes), every_row(x, step + rules.jump_lead), schedule)
            x = gumbel_draw(noisier, draws.uniforms(num_classes))
        if rules.hold(step, config.q0_override_steps, schedule):
            x = torch.where(given.held, given.codes, x)
    return x


def every_row(x: Tensor, step: int) -> Tensor:
    """(B,) the same step for each row of x."""
    return torch.full((len(x),), step, device=x.device)
