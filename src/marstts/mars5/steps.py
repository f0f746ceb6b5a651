"""The walk of the reverse diffusion: its settings, its steps, and where the release deviates from RePaint.

Upstream: nothing; no array library is needed here.  Downstream: `repaint`, `profiles`, the runtimes.
Lugmayr et al. (arXiv:2201.09865), Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from marstts.io.config import Config

NUM_TIMESTEPS = 200
"""T of the schedule the published NAR was trained with."""

SMALLEST = 1e-7
"""Replaces zero before a logarithm."""

COSINE_OFFSET = 0.008
"""s of the cosine schedule (arXiv:2102.09672)."""

SMALLEST_ALPHA = 0.001


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
    """Timestep below which the profile `released` noises level 0, too; without that profile level 0 is fixed."""

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


def hold_always(step: int, override: int, schedule: Any) -> bool:
    """Level 0 is fixed, as the papers say."""
    return True


def hold_as_published(step: int, override: int, schedule: Any) -> bool:
    """Level 0 is fixed until a timestep of at most `override` was left."""
    return int(schedule.timesteps[step]) > override


@dataclass(frozen=True, kw_only=True)
class ReverseRules:
    """Deviations of the published reverse process from RePaint; the defaults have none."""

    known_lag: int = 1
    """A step from t to t - 1 noises what is known as at t - known_lag. Published: 0, one level too high."""

    jump_lead: int = 1
    """A jump from t to t + 1 adds the noise of step t + jump_lead. Published: 0, one level too low."""

    hold: Callable[[int, int, Any], bool] = hold_always
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


def walk_pairs(steps: Sequence[int], config: DiffusionConfig) -> Iterator[tuple[int, int, float]]:
    """Each step, the one after it, and how far the progressive jump has come (its counter c)."""
    counter = 0.0
    for step, following in pairwise(steps):
        if following < step:
            counter = (0.0 if counter > config.jump_n_sample else counter) + 1 / config.jump_len
        yield step, following, counter


# The noise schedule of the diffusion, on arrays.
# Hoogeboom et al. (arXiv:2102.05379), Sec. 4. As published for MARS5, schedules are computed in float32 up to their
# square root, then in float64, then kept as float32. Processors differ in float32 cosines, by up to 3e-4 in log(1 -
# α). Index 0 is the first, least noisy step: the paper counts it as t = 1. Shapes: N steps.

Floats = NDArray[np.float32]

NO_NOISE = np.float32(-1e30)
"""Logarithm of what a step without noise loses; finite, so that sums with it stay numbers."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """Noise schedule of N steps: how much of the codes each keeps; all arrays (N,)."""

    timesteps: NDArray[np.int64]
    """The timestep that the model is conditioned on at each step: 0..T-1, or fewer."""

    log_alpha: Floats
    """Logarithm of what one step keeps."""

    log_1_min_alpha: Floats

    log_cumprod_alpha: Floats
    """Logarithm of what all steps up to t keep together."""

    log_1_min_cumprod_alpha: Floats

    def __len__(self) -> int:
        return len(self.timesteps)

    def all_steps_to(self, step: int) -> tuple[np.float32, np.float32]:
        """Logarithms of what all steps up to `step` keep and lose together; at -1 nothing has been lost."""
        if step < 0:
            return np.float32(0), NO_NOISE
        return self.log_cumprod_alpha[step], self.log_1_min_cumprod_alpha[step]

    def one_step(self, step: int) -> tuple[np.float32, np.float32]:
        """Logarithms of what one step keeps and loses."""
        return self.log_alpha[step], self.log_1_min_alpha[step]


def cosine_schedule(num_timesteps: int) -> Schedule:
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


def subsample(schedule: Schedule, num_steps: int) -> Schedule:
    """The schedule in `num_steps` larger steps: evenly spread, with the first and the last of its timesteps.

    Each new step does what the ones it stands for did together, so the marginals q(x_t | x_0) stay.
    """
    if num_steps >= len(schedule):
        return schedule
    kept = np.rint(np.linspace(len(schedule) - 1, 0, num_steps)).astype(np.int64)[::-1]
    log_cumprod = schedule.log_cumprod_alpha.astype(np.float64)[kept]
    return make_schedule(schedule.timesteps[kept], log_cumprod, np.diff(log_cumprod, prepend=0.0))


def make_schedule(
    timesteps: NDArray[np.int64], log_cumprod: NDArray[np.float64], log_alpha: NDArray[np.float64]
) -> Schedule:
    """A schedule from log ᾱ_t and log α_t, both (N,) float64."""
    return Schedule(
        timesteps,
        log_alpha.astype(np.float32),
        log_1_min(log_alpha),
        log_cumprod.astype(np.float32),
        log_1_min(log_cumprod),
    )


def log_1_min(log_values: NDArray[np.float64]) -> Floats:
    """log(1 - exp(v)), at least log 1e-30."""
    return np.log(np.maximum(1 - np.exp(log_values), 1e-30)).astype(np.float32)
