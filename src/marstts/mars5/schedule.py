"""The noise schedule of the diffusion, on arrays.

Upstream: `steps`.  Downstream: `repaint` and the runtimes (speaking), `diffusion` (training).
Hoogeboom et al. (arXiv:2102.05379), Sec. 4. As published for MARS5, schedules are computed in float32 up to their
square root, then in float64, then kept as float32. Processors differ in float32 cosines, by up to 3e-4 in log(1 - α).
Index 0 is the first, least noisy step: the paper counts it as t = 1.
Shapes: N steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marstts.mars5.steps import COSINE_OFFSET, SMALLEST_ALPHA

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
