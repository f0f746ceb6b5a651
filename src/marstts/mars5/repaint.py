"""RePaint over arrays: codes drawn by reverse diffusion, some of which are known beforehand.

Upstream: `runtime.RunnableNAR` (one step), the AR's level 0, a reference's codes.  Downstream: `pipeline`.
Lugmayr et al. (arXiv:2201.09865), Algorithm 1, with multinomial diffusion (arXiv:2102.05379, the equations of
`diffusion`) in place of Gaussian; the sequentially progressive jump is TransFusion's (arXiv:2210.07677, Sec. 4.2).
Deviations of the published code from the paper are values of `steps.ReverseRules`; by default we follow the paper.
Rows are independent: each draws from its own generator as many numbers as its own frames need.
Shapes: B batch · T frames · L levels · K classes · N steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marstts.mars5.steps import PAPER, SMALLEST, DiffusionConfig, JumpNoise, ReverseRules, Schedule, walk, walk_pairs

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

StepDown = Callable[[Ids, int, Floats | None], Ids]
"""Codes (B, T, L) at a step of the schedule, and uniforms (B, T, L, K) -> codes of the step before.

Without uniforms the most probable ones."""


@dataclass(frozen=True)
class Given:
    """Codes that are known before the diffusion; B rows of up to T frames."""

    codes: Ids
    """(B, T, L); what is not known may be any class."""

    known: NDArray[np.bool_]
    """(B, T, L) True for codes that are known to the end, and noised meanwhile (inpainting)."""

    held: NDArray[np.bool_]
    """(B, T, L) True for codes that the model sees clean: level 0."""

    lengths: tuple[int, ...]
    """B frames that count; at least 1 each."""


class Draws:
    """Random numbers for B rows, each from its own generator; padding gets none.

    A generator is the Mersenne twister, started as PyTorch starts it on the CPU: so runs of the release are repeated.
    """

    def __init__(self, seeds: Sequence[int], lengths: Sequence[int], shape: tuple[int, ...]) -> None:
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

    def classes(self, num_classes: int, starts: Sequence[int]) -> Ids:
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


def repaint(
    step_down: StepDown,
    given: Given,
    schedule: Schedule,
    config: DiffusionConfig,
    draws: Draws,
    *,
    num_classes: int,
    starts: Sequence[int],
    rules: ReverseRules = PAPER,
) -> Ids:
    """Codes (B, T, L) drawn by the reverse process; `steps` has the steps to be made.

    `starts` are the rows' first frames that begin as noise; what is before them is known entirely.
    """
    x = np.where(given.known | given.held, given.codes, draws.classes(num_classes, starts))
    for step, following, counter in walk_pairs(walk(len(schedule), config.jump_len, config.jump_n_sample), config):
        if following < step:
            greedy = config.last_greedy and following < 0
            drawn = step_down(x, step, None if greedy else draws.uniforms(num_classes))
            known = given.codes
            if following >= 0:
                rates = schedule.all_steps_to(step - rules.known_lag)
                known = noised(given.codes, rates, draws.uniforms(num_classes), given.known)
            x = np.where(given.known, known, drawn)
        else:
            x = step_up(x, schedule, step + rules.jump_lead, config, counter, draws.uniforms(num_classes))
        if rules.hold(step, config.q0_override_steps, schedule):
            x = np.where(given.held, given.codes, x)
    return x


def noised(codes: Ids, rates: tuple[np.float32, np.float32], uniforms: Floats, wanted: NDArray[np.bool_]) -> Ids:
    """The codes (B, T, L) with noise, where they are `wanted`: others are not computed."""
    if not wanted.any():
        return codes
    keep, lose = (np.asarray(rate, np.float32) for rate in rates)
    return gumbel_draw(noisy_logs(codes, uniforms.shape[-1], keep, lose), uniforms)


def step_up(x: Ids, schedule: Schedule, step: int, config: DiffusionConfig, counter: float, uniforms: Floats) -> Ids:
    """x (B, T, L) with the noise of one step added."""
    rates = schedule.one_step(step)
    if config.jump_noise is JumpNoise.PROGRESSIVE:
        keep, lose = progressive_rates(rates, x.shape[1], counter, config.jump_len)
    else:
        keep, lose = (np.asarray(rate, np.float32) for rate in rates)
    return gumbel_draw(noisy_logs(x, uniforms.shape[-1], keep, lose), uniforms)


def noisy_logs(codes: Ids, num_classes: int, log_keep: Floats, log_lose: Floats) -> Floats:
    """log of the codes (B, T, L) mixed with uniform noise (Eqs. 11 and 12): -> (B, T, L, K).

    What is kept and lost is broadcast to (B, T, L, K).
    """
    onehot = np.full((*codes.shape, num_classes), np.log(np.float32(SMALLEST)), np.float32)
    np.put_along_axis(onehot, codes[..., None], np.float32(0), axis=-1)
    return np.logaddexp(onehot + log_keep, log_lose - np.float32(math.log(num_classes)))


def progressive_rates(
    rates: tuple[np.float32, np.float32], num_frames: int, counter: float, jump_length: int
) -> tuple[Floats, Floats]:
    """Rates of each frame, (T, 1, 1), in a step of these rates, which spares early frames.

    Frame i of T keeps the more the smaller s_i = sigmoid((i - T c / j + 20) / 8) is, for a counter c, a jump length j.
    """
    s = (np.arange(num_frames) - num_frames * counter / jump_length + 20) / 8
    extra = -np.logaddexp(0, -s).astype(np.float32)[:, None, None]
    return np.minimum(rates[0] - extra, 0), rates[1] + extra


def gumbel_draw(log_probabilities: Floats, uniforms: Floats) -> Ids:
    """One class from each distribution (..., K) -> (...).  The Gumbel-max trick."""
    small = np.float32(SMALLEST)
    gumbel = -np.log(np.maximum(-np.log(np.maximum(uniforms, small)), small))
    return np.asarray((log_probabilities + gumbel).argmax(axis=-1), dtype=np.int64)
