import copy
import math

import pytest
import torch
from torch import nn

from marstts_lab.training.optim import (
    OptimizerConfig,
    Schedule,
    learning_rate,
    make_ema,
    make_optimizer,
    minimize,
    update_ema,
)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.norm = nn.LayerNorm(3)
        self.output = nn.Linear(3, 2)
        self.strength = nn.Parameter(torch.ones(1))

    def forward(self, ids):
        return self.output(self.norm(self.embedding(ids))) * self.strength


def test_the_learning_rate_rises_to_its_peak_and_falls_to_its_final_ratio():
    config = OptimizerConfig(learning_rate=2.0, warmup_steps=4, final_lr_ratio=0.1, schedule=Schedule.COSINE)
    assert [learning_rate(step, 24, config) for step in range(5)] == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert learning_rate(14, 24, config) == pytest.approx(2.0 * (0.1 + 0.9 * 0.5))
    assert learning_rate(24, 24, config) == pytest.approx(0.2) == learning_rate(99, 24, config)
    linear = config.model_copy(update={"schedule": Schedule.LINEAR})
    assert learning_rate(9, 24, linear) == pytest.approx(2.0 * (0.1 + 0.9 * 0.75))
    constant = config.model_copy(update={"schedule": Schedule.CONSTANT})
    assert learning_rate(20, 24, constant) == pytest.approx(2.0)
    assert learning_rate(0, 24, config.model_copy(update={"warmup_steps": 0})) == pytest.approx(2.0)


def test_only_matrices_decay():
    model = Small()
    optimizer = make_optimizer(model, OptimizerConfig(learning_rate=1e-2, weight_decay=0.5))
    before = copy.deepcopy(model.state_dict())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, value in model.state_dict().items():
        expected = before[name] * (1 - 1e-2 * 0.5) if name == "output.weight" else before[name]
        torch.testing.assert_close(value, expected, msg=name)


def test_gradient_clipping_reports_the_norm_before_it():
    def gradient(grad_clip_norm: float) -> tuple[float, float]:
        torch.manual_seed(0)
        model = Small()
        optimizer = make_optimizer(model, OptimizerConfig())
        loss = 100 * model(torch.tensor([1, 2])).square().sum()
        reported = minimize(optimizer, loss, lr=1e-3, grad_clip_norm=grad_clip_norm)
        assert {group["lr"] for group in optimizer.param_groups} == {1e-3}
        return float(reported), math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))

    true, unclipped = gradient(1e9)
    reported, clipped = gradient(1.0)
    assert reported == pytest.approx(true) == pytest.approx(unclipped) and true > 1
    assert clipped == pytest.approx(1.0, rel=1e-4)


def test_the_ema_follows_the_weights_quickly_at_first_and_slowly_later():
    model = Small()
    average = make_ema(model)
    assert not any(parameter.requires_grad for parameter in average.parameters()) and not average.training
    start = model.output.weight.detach().clone()
    with torch.no_grad():
        model.output.weight.add_(1.0)
    update_ema(average, model, step=0, decay=0.999)
    torch.testing.assert_close(average.output.weight, start + 0.9)
    update_ema(average, model, step=10**6, decay=0.75)
    torch.testing.assert_close(average.output.weight, start + 0.925)
    update_ema(average, model, step=10**6, decay=0.0)
    torch.testing.assert_close(average.output.weight, model.output.weight)
    assert average.state_dict().keys() == model.state_dict().keys()
