"""RePaint: the walk, what is known and what is held, and its distribution where the truth is known."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from marstts.mars5.diffusion import (
    NoiseSchedule,
    cosine_schedule,
    gumbel_draw,
    log_onehot,
    p_posterior,
    q,
    subsample,
)
from marstts.mars5.repaint import (
    PAPER,
    PUBLISHED,
    DiffusionConfig,
    Draws,
    Given,
    ReverseRules,
    StepDown,
    repaint,
    walk,
)

JOINT = torch.tensor([[0.30, 0.02, 0.02], [0.02, 0.25, 0.02], [0.05, 0.02, 0.30]])
"""Probabilities of two codes of three classes."""

SAMPLES = 2000


class Numbers:
    """Random numbers for many samples at once; the slower `Draws` has a generator for each."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(1)

    def uniforms(self, num_classes: int) -> Tensor:
        return torch.rand((SAMPLES, 1, 2, num_classes), generator=self.generator)

    def classes(self, num_classes: int, starts: list[int]) -> Tensor:
        return torch.randint(num_classes, (SAMPLES, 1, 2), generator=self.generator)


def best_step(schedule: NoiseSchedule) -> StepDown:
    """The true reverse step: each code given the *other* noisy code, by Bayes' rule."""

    def step_down(x: Tensor, step: int, uniforms: Tensor | None) -> Tensor:
        index = torch.full((len(x),), step)
        likelihood = q(log_onehot(torch.arange(3), 3)[None], index[:1], schedule)[0].exp()  # (x_0, x_t)
        first, second = (likelihood[:, x[:, 0, place]].T for place in (0, 1))
        logits = torch.stack((second @ JOINT.T, first @ JOINT), dim=1)[:, None].log()
        log_probabilities = p_posterior(logits, log_onehot(x, 3), index, schedule)
        return log_probabilities.argmax(dim=-1) if uniforms is None else gumbel_draw(log_probabilities, uniforms)

    return step_down


def draw(config: DiffusionConfig, schedule: NoiseSchedule, known: int | None, rules: ReverseRules = PAPER) -> Tensor:
    """(SAMPLES, 2) codes; the first is `known`, if it is."""
    codes = torch.zeros(SAMPLES, 1, 2, dtype=torch.long)
    mask = torch.zeros_like(codes, dtype=torch.bool)
    if known is not None:
        codes[..., 0], mask[..., 0] = known, True
    given = Given(codes, mask, torch.zeros_like(mask), (1,) * SAMPLES)
    drawn = repaint(
        best_step(schedule), given, schedule, config, Numbers(), num_classes=3, starts=[0] * SAMPLES, rules=rules
    )  # type: ignore[arg-type]
    if known is not None:
        assert (drawn[..., 0] == known).all()
    return drawn[:, 0]


def distance(drawn: Tensor, truth: Tensor) -> float:
    """Half the sum of absolute differences of probabilities."""
    frequencies = (drawn[:, 0] * 3 + drawn[:, 1]).bincount(minlength=9).view(3, 3) / len(drawn)
    return float((frequencies - truth).abs().sum() / 2)


def conditional(known: int) -> Tensor:
    truth = torch.zeros(3, 3)
    truth[known] = JOINT[known] / JOINT[known].sum()
    return truth


def settings(**changes: object) -> DiffusionConfig:
    return DiffusionConfig(q0_override_steps=1000, last_greedy=False).model_copy(update=changes)


@pytest.mark.parametrize("steps", [20, 50])
def test_without_anything_known_the_joint_distribution_comes_out(steps: int) -> None:
    schedule = subsample(cosine_schedule(50), steps)
    assert distance(draw(settings(), schedule, None), JOINT / JOINT.sum()) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("known", [0, 1, 2])
def test_jumps_lead_to_the_conditional_distribution(known: int) -> None:
    schedule = cosine_schedule(10)
    straight = distance(draw(settings(), schedule, known), conditional(known))
    jumping = distance(draw(settings(jump_len=1, jump_n_sample=10), schedule, known), conditional(known))
    assert straight > 0.15
    assert jumping < 0.11


def test_a_greedy_last_step_takes_the_most_probable_codes() -> None:
    """A single step is greedy: almost all samples become the same codes."""
    schedule = subsample(cosine_schedule(10), 1)
    greedy = draw(settings(last_greedy=True), schedule, 1)
    assert len(greedy.unique(dim=0)) == 1
    assert len(draw(settings(), schedule, 1).unique(dim=0)) == 3


def test_the_walk_goes_back_up_at_every_multiple() -> None:
    assert walk(5, 1, 1) == [4, 3, 2, 1, 0, -1]
    assert walk(6, 2, 2) == [5, 4, 3, 2, 3, 4, 3, 2, 1, 0, 1, 2, 1, 0, -1]
    assert walk(4, 10, 10) == [3, 2, 1, 0, -1]
    for steps, length, times in ((20, 3, 4), (13, 5, 2)):
        visits = walk(steps, length, times)
        assert {abs(a - b) for a, b in pairwise(visits)} == {1}
        assert len(visits) == steps + 1 + 2 * length * (times - 1) * len(range(0, steps - length, length))


class Recorder:
    """A step that finds the first class most probable, and remembers what it was given."""

    def __init__(self) -> None:
        self.seen: list[tuple[Tensor, int]] = []

    def __call__(self, codes: Tensor, step: int, uniforms: Tensor | None) -> Tensor:
        self.seen.append((codes.clone(), step))
        logits = torch.zeros(*codes.shape, 4)
        logits[..., 0] = 3.0
        return logits.argmax(dim=-1) if uniforms is None else gumbel_draw(logits, uniforms)


def two_rows() -> Given:
    """Lengths 6 and 4; level 0 held, the first two frames of row 0 known."""
    codes = torch.randint(4, (2, 6, 3), generator=torch.Generator().manual_seed(0))
    known, held = torch.zeros_like(codes, dtype=torch.bool), torch.zeros_like(codes, dtype=torch.bool)
    known[0, :2] = True
    held[..., 0] = True
    held[1, 4:] = False
    return Given(codes, known, held, (6, 4))


def run(given: Given, rules: ReverseRules = PAPER, **changes: object) -> tuple[Tensor, Recorder]:
    recorder, config = Recorder(), DiffusionConfig(timesteps=8, q0_override_steps=3).model_copy(update=changes)
    drawn = repaint(
        recorder, given, cosine_schedule(8), config, Draws((5, 6), given), num_classes=4,
        starts=[2, 0], rules=rules,
    )  # fmt: skip
    return drawn, recorder


@pytest.mark.parametrize("override", [0, 3, 200])
@pytest.mark.parametrize("jumps", [{}, {"jump_len": 2, "jump_n_sample": 2}])
def test_level_0_is_fixed_as_the_papers_say(jumps: dict[str, object], override: int) -> None:
    given = two_rows()
    drawn, recorder = run(given, q0_override_steps=override, **jumps)
    assert all(torch.equal(x[given.held], given.codes[given.held]) for x, _ in recorder.seen)
    assert torch.equal(drawn[given.held], given.codes[given.held])
    assert torch.equal(drawn[given.known], given.codes[given.known])


def test_the_release_noises_level_0_in_the_last_steps_and_restores_it() -> None:
    given = two_rows()
    inpainted = replace(given, known=given.known | given.held)
    drawn, recorder = run(inpainted, rules=PUBLISHED)
    assert torch.equal(drawn[given.held], given.codes[given.held])
    noised = [step for x, step in recorder.seen if not torch.equal(x[given.held], given.codes[given.held])]
    assert noised and max(noised) < 3


def test_random_numbers_are_those_of_pytorch() -> None:
    """So runs of the release that were recorded with a seed are repeated."""
    seeds, lengths = (2**62 + 12345, 7), (9, 5)
    empty = torch.zeros(2, 9, 3)
    draws, theirs = Draws(seeds, Given(empty, empty, empty, lengths)), [torch.Generator().manual_seed(s) for s in seeds]
    for _ in range(2):
        uniforms, classes = draws.uniforms(1025), draws.classes(1025, [0, 2])
        expected = [torch.rand((length, 3, 1025), generator=g) for g, length in zip(theirs, lengths, strict=True)]
        for row, length in enumerate(lengths):
            assert np.array_equal(uniforms[row, :length], expected[row])
            whole = torch.randint(0, 1025, (length - [0, 2][row], 3), generator=theirs[row])
            assert np.array_equal(classes[row, [0, 2][row] : length], whole)


def test_rows_draw_from_their_own_generators() -> None:
    given = two_rows()
    together, _ = run(given)
    for row, (seed, start) in enumerate(((5, 2), (6, 0))):
        length = given.lengths[row]
        alone = Given(*(part[row : row + 1, :length] for part in (given.codes, given.known, given.held)), (length,))
        drawn = repaint(
            Recorder(), alone, cosine_schedule(8), DiffusionConfig(timesteps=8, q0_override_steps=3),
            Draws([seed], alone), num_classes=4, starts=[start],
        )  # fmt: skip
        assert torch.equal(drawn[0], together[row, :length])


def test_the_rules_of_the_release_change_the_result() -> None:
    given = two_rows()
    drawn = [run(given, rules=rules, jump_len=2, jump_n_sample=3)[0] for rules in (PAPER, PUBLISHED)]
    assert not torch.equal(*drawn)


def test_fewer_steps_keep_the_marginals() -> None:
    whole = cosine_schedule(50)
    few = subsample(whole, 7)
    assert few.timesteps.tolist() == [0, 8, 16, 24, 33, 41, 49]
    np.testing.assert_array_equal(few.log_cumprod_alpha, whole.log_cumprod_alpha[few.timesteps])
    np.testing.assert_allclose(few.log_alpha.cumsum(dim=0), few.log_cumprod_alpha, rtol=1e-5)
    np.testing.assert_allclose(np.exp(few.log_alpha) + np.exp(few.log_1_min_alpha), np.ones(7), rtol=1e-5)
    assert subsample(whole, 50) is whole and subsample(whole, 90) is whole
    assert subsample(whole, 1).timesteps.tolist() == [49]


@pytest.mark.parametrize(
    "wrong",
    [{"timesteps": 0}, {"x_0_temp": 0}, {"jump_len": 0}, {"jump_n_sample": 0}, {"nar_guidance_w": float("nan")}],
)
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DiffusionConfig(**wrong)
