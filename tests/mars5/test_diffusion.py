"""Multinomial diffusion against what can be computed by hand and by enumeration."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from marstts.mars5.diffusion import (
    cosine_schedule,
    gumbel_draw,
    log_onehot,
    p_posterior,
    q,
    q_one_step,
    q_posterior,
    step_loss,
)

K, T = 3, 4
SCHEDULE = cosine_schedule(T)
ALPHAS = SCHEDULE.log_alpha.exp().double()


def index(*values: int) -> Tensor:
    return torch.tensor(values)


def matrix(alpha: float) -> Tensor:
    """(K, K) one step of the chain: stay with probability alpha, else jump anywhere."""
    return alpha * torch.eye(K, dtype=torch.float64) + (1 - alpha) / K


def matrices() -> list[Tensor]:
    return [matrix(float(alpha)) for alpha in ALPHAS]


def test_the_schedule_loses_everything_but_little_at_first() -> None:
    kept = cosine_schedule(200).log_cumprod_alpha.exp()
    assert kept[0] > 0.999 and kept[-1] < 0.01
    assert (kept.diff() < 0).all()
    half = math.cos((100 / 200 + 0.008) / 1.008 * math.pi / 2) / math.cos(0.008 / 1.008 * math.pi / 2)
    assert float(kept[99]) == pytest.approx(half, rel=1e-4)  # after the square root, the cosine itself


def test_marginals_are_products_of_the_steps() -> None:
    chain = torch.eye(K, dtype=torch.float64)
    for t, step in enumerate(matrices()):
        chain = chain @ step
        for start in range(K):
            ours = q(log_onehot(index(start), K), index(t), SCHEDULE)[0].exp().double()
            torch.testing.assert_close(ours, chain[start], atol=1e-6, rtol=1e-5)


def test_one_step_is_one_row_of_its_matrix() -> None:
    for t, step in enumerate(matrices()):
        for start in range(K):
            ours = q_one_step(log_onehot(index(start), K), index(t), SCHEDULE)[0].exp().double()
            torch.testing.assert_close(ours, step[start], atol=1e-6, rtol=1e-5)


def test_the_posterior_is_bayes_rule_and_sums_to_one() -> None:
    steps, chain = matrices(), [torch.eye(K, dtype=torch.float64)]
    for step in steps:
        chain.append(chain[-1] @ step)
    for t, x0, xt in itertools.product(range(T), range(K), range(K)):
        ours = q_posterior(log_onehot(index(x0), K), log_onehot(index(xt), K), index(t), SCHEDULE)[0].exp().double()
        truth = chain[t][x0] * steps[t][:, xt]
        torch.testing.assert_close(ours, truth / truth.sum(), atol=1e-5, rtol=1e-5)  # log 0 is log 1e-7
        assert float(ours.sum()) == pytest.approx(1, abs=1e-6)


def test_rows_take_their_own_step_and_other_axes_are_alike() -> None:
    classes = torch.randint(0, K, (3, 5, 2), generator=torch.Generator().manual_seed(0))
    noisy = q(log_onehot(classes, K), index(0, 2, 3), SCHEDULE)
    for row, t in enumerate((0, 2, 3)):
        torch.testing.assert_close(noisy[row, 4, 1], q(log_onehot(classes[row, 4, 1:2], K), index(t), SCHEDULE)[0])
    clean = q(log_onehot(classes, K), index(-1, -1, -1), SCHEDULE)
    assert torch.equal(clean, log_onehot(classes, K))


def test_the_terms_sum_to_the_bound_over_all_trajectories() -> None:
    """-E[log p(x_0..x_T) / q(x_1..x_T | x_0)] by walking through all 81 trajectories, without any posterior of q."""
    predictions = torch.randn(T, K, K, generator=torch.Generator().manual_seed(1))  # logits of x_0, given t and x_t
    model = (
        torch.stack(
            [
                p_posterior(predictions[t], log_onehot(torch.arange(K), K), torch.full((K,), t), SCHEDULE)
                for t in range(T)
            ]
        )
        .exp()
        .double()
    )  # (T, x_t, x_{t-1})
    steps = matrices()
    for x0 in range(K):
        bound = 0.0
        for path in itertools.product(range(K), repeat=T):
            places = (x0, *path)
            forward = [float(steps[t][places[t], places[t + 1]]) for t in range(T)]
            backward = [float(model[t, places[t + 1], places[t]]) for t in range(T)]
            ratio = math.log(1 / K) + sum(map(math.log, backward)) - sum(map(math.log, forward))
            bound -= math.prod(forward) * ratio
        assert expected_losses(x0, predictions) == pytest.approx(bound, rel=1e-4)


def expected_losses(x0: int, predictions: Tensor) -> float:
    """The sum over steps of the loss, averaged over q(x_t | x_0), and the divergence of q(x_T | x_0) from uniform."""
    log_x0 = log_onehot(index(x0), K).expand(K, K)
    last = q(log_x0[:1], torch.tensor([T - 1]), SCHEDULE)[0]
    total = float((last.exp() * (last + math.log(K))).sum())
    for t in range(T):
        steps = torch.full((K,), t)
        losses = step_loss(log_x0, predictions[t], log_onehot(torch.arange(K), K), steps, SCHEDULE)
        total += float((q(log_x0[:1], steps[:1], SCHEDULE)[0].exp() * losses).sum())
    return total


def test_a_perfect_prediction_has_no_loss_and_a_wrong_one_has() -> None:
    classes = torch.tensor([[0, 2, 1]] * 3)
    log_x0, log_xt, t = log_onehot(classes, K), log_onehot(classes.roll(1, dims=1), K), index(0, 1, 3)
    assert step_loss(log_x0, log_x0, log_xt, t, SCHEDULE).abs().max() < 1e-4
    assert (step_loss(log_x0, log_onehot((classes + 1) % K, K), log_xt, t, SCHEDULE) > 0.01).all()


def test_gradients_reach_the_prediction_at_every_step() -> None:
    logits = torch.zeros(T, 1, K, requires_grad=True)
    log_x0 = log_onehot(torch.ones(T, 1, dtype=torch.long), K)
    log_xt = log_onehot(torch.zeros(T, 1, dtype=torch.long), K)
    step_loss(log_x0, logits, log_xt, torch.arange(T), SCHEDULE).sum().backward()
    assert logits.grad is not None
    assert (logits.grad[:, 0, 1] < 0).all() and (logits.grad[:, 0, 0] > 0).all()


def test_draws_have_the_frequencies_of_the_distribution() -> None:
    probabilities = torch.tensor([0.1, 0.6, 0.25, 0.05])
    uniforms = torch.rand(20_000, 4, generator=torch.Generator().manual_seed(2))
    drawn = gumbel_draw(probabilities.log().expand(20_000, -1), uniforms)
    torch.testing.assert_close(drawn.bincount() / 20_000, probabilities, atol=0.01, rtol=0)
    assert int(gumbel_draw(torch.tensor([-torch.inf, 0.0]), torch.tensor([1.0, 0.0]))) == 1
