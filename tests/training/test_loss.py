"""What the terms of a loss add up to, and what of them is logged."""

from __future__ import annotations

import torch

from marstts_lab.training.loss import Loss, total, values


def test_the_sum_is_weighted_and_terms_of_weight_zero_are_logged_alone() -> None:
    one, other = torch.tensor(3.0, requires_grad=True), torch.tensor(5.0, requires_grad=True)
    losses = [Loss("one", 0.5, one * 2), Loss("score", 0.0, other * float("nan"))]
    loss = total(losses)
    loss.backward()
    assert float(loss.detach()) == 3.0 and float(one.grad) == 1.0 and other.grad is None
    logged = values(losses)
    assert list(logged) == ["one", "score"] and float(logged["one"]) == 6.0
    assert not any(value.requires_grad for value in logged.values())
