"""The parts of the multinomial diffusion that speaking without PyTorch needs, on arrays.

Upstream: `steps`.  Downstream: `array_pipeline`; one reverse step is a graph (`export.graphs`).
These are the functions of `diffusion` and the random numbers of `repaint.Randomness`, which they equal: from the same
seed `Draws` gives what a generator of PyTorch on the CPU gives. Tests compare them.
Shapes: B batch · T frames · L levels · K classes · N steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marstts.mars5.steps import COSINE_OFFSET, SMALLEST, SMALLEST_ALPHA

Floats = NDArray[np.float32]

NO_NOISE = np.float32(-1e30)
"""Logarithm of what a step without noise loses; finite, so that sums with it stay numbers."""


@dataclass(frozen=True, eq=False)
class ArraySchedule:
    """`diffusion.Schedule` as arrays (N,)."""

    timesteps: NDArray[np.int64]
    log_alpha: Floats
    log_1_min_alpha: Floats
    log_cumprod_alpha: Floats
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


def cosine_schedule(num_timesteps: int) -> ArraySchedule:
    """See `diffusion.cosine_schedule`."""
    timesteps = np.arange(num_timesteps + 1, dtype=np.float32)
    angles = (timesteps / np.float32(num_timesteps) + np.float32(COSINE_OFFSET)) / np.float32(1 + COSINE_OFFSET)
    curve = np.cos(angles * np.float32(math.pi) * np.float32(0.5)) ** 2
    curve = curve / curve[0]
    alphas = np.sqrt(np.clip(curve[1:] / curve[:-1], np.float32(SMALLEST_ALPHA), np.float32(1.0)))
    log_alpha = np.log(alphas.astype(np.float64))
    return make_schedule(np.arange(num_timesteps), np.cumsum(log_alpha), log_alpha)


def subsample(schedule: ArraySchedule, num_steps: int) -> ArraySchedule:
    """See `diffusion.subsample`."""
    if num_steps >= len(schedule):
        return schedule
    kept = np.rint(np.linspace(len(schedule) - 1, 0, num_steps)).astype(np.int64)[::-1]
    log_cumprod = schedule.log_cumprod_alpha.astype(np.float64)[kept]
    return make_schedule(schedule.timesteps[kept], log_cumprod, np.diff(log_cumprod, prepend=0.0))


def make_schedule(
    timesteps: NDArray[np.int64], log_cumprod: NDArray[np.float64], log_alpha: NDArray[np.float64]
) -> ArraySchedule:
    """A schedule from log ᾱ_t and log α_t, both (N,) float64."""
    return ArraySchedule(
        timesteps,
        log_alpha.astype(np.float32),
        log_1_min(log_alpha),
        log_cumprod.astype(np.float32),
        log_1_min(log_cumprod),
    )


def log_1_min(log_values: NDArray[np.float64]) -> Floats:
    """log(1 - exp(v)), at least log 1e-30."""
    return np.log(np.maximum(1 - np.exp(log_values), 1e-30)).astype(np.float32)


def noisy_logs(codes: NDArray[np.int64], num_classes: int, log_keep: Floats, log_lose: Floats) -> Floats:
    """log of the codes (B, T, L) mixed with uniform noise: -> (B, T, L, K).  See `diffusion.mix_with_uniform`.

    What is kept and lost is broadcast to (B, T, L, K).
    """
    onehot = np.full((*codes.shape, num_classes), np.log(np.float32(SMALLEST)), np.float32)
    np.put_along_axis(onehot, codes[..., None], np.float32(0), axis=-1)
    return np.logaddexp(onehot + log_keep, log_lose - np.float32(math.log(num_classes)))


def progressive_rates(
    rates: tuple[np.float32, np.float32], num_frames: int, counter: float, jump_length: int
) -> tuple[Floats, Floats]:
    """Rates of each frame, (T, 1, 1), in a step of these rates: see `diffusion.q_one_step_progressive`."""
    s = (np.arange(num_frames) - num_frames * counter / jump_length + 20) / 8
    extra = -np.logaddexp(0, -s).astype(np.float32)[:, None, None]
    return np.minimum(rates[0] - extra, 0), rates[1] + extra


def gumbel_draw(log_probabilities: Floats, uniforms: Floats) -> NDArray[np.int64]:
    """One class from each distribution (..., K) -> (...).  See `diffusion.gumbel_draw`."""
    small = np.float32(SMALLEST)
    gumbel = -np.log(np.maximum(-np.log(np.maximum(uniforms, small)), small))
    return np.asarray((log_probabilities + gumbel).argmax(axis=-1), dtype=np.int64)


class Draws:
    """Random numbers for B rows, each from its own generator; padding gets none.  See `repaint.Randomness`.

    A generator is the Mersenne twister, started as PyTorch starts it on the CPU.
    """

    def __init__(self, seeds: Sequence[int], lengths: Sequence[int], shape: tuple[int, int, int]) -> None:
        """`shape`: (B, T, L) of the codes; `lengths` (B,) frames that count."""
        self._generators = [np.random.RandomState(seed & 0xFFFFFFFF) for seed in seeds]
        self._lengths, self._shape = lengths, shape

    def uniforms(self, num_classes: int) -> Floats:
        """(B, T, L, K) in [0, 1); one half in the padding."""
        numbers = np.full((*self._shape, num_classes), 0.5, np.float32)
        for row, (generator, length) in enumerate(zip(self._generators, self._lengths, strict=True)):
            drawn = raw(generator, length * self._shape[2] * num_classes) & np.uint32(0xFFFFFF)
            numbers[row, :length] = (drawn.astype(np.float32) / np.float32(2**24)).reshape(length, -1, num_classes)
        return numbers

    def classes(self, num_classes: int, starts: Sequence[int]) -> NDArray[np.int64]:
        """(B, T, L) of any class, each row's from its frame in `starts` on; zeros elsewhere."""
        numbers = np.zeros(self._shape, np.int64)
        levels = self._shape[2]
        for row, (generator, length) in enumerate(zip(self._generators, self._lengths, strict=True)):
            drawn = raw(generator, (length - starts[row]) * levels) % np.uint32(num_classes)
            numbers[row, starts[row] : length] = drawn.astype(np.int64).reshape(-1, levels)
        return numbers


def raw(generator: np.random.RandomState, count: int) -> NDArray[np.uint32]:
    """(count,) numbers of 32 bits, as the twister makes them."""
    return generator.randint(0, 2**32, count, dtype=np.uint32)
