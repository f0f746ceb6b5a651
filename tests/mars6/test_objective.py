"""The loss, counted by hand."""

import math

import pytest
import torch

from marstts.mars6.config import Mars6Config
from marstts.mars6.model import Mars6
from marstts.mars6.objective import (
    FluxConfig,
    ObjectiveConfig,
    flux_loss,
    level_targets,
    next_token_loss,
    previous_codes,
)

CONFIG = Mars6Config(
    text_vocab_size=13, codebook_size=5, width=16, encoder_layers=1, global_layers=1, local_layers=1,
    heads=2, local_heads=4, identity_size=3, style_size=6,
)  # fmt: skip
PATCHES = torch.tensor([[0, 5, 9, 10, 14, 11, 12], [4, 6, 7, 13, 13, 10, 10], [15] * 7])


def test_targets_are_codes_within_their_level_and_eos_comes_last():
    l0, l1, l2 = level_targets(PATCHES, CONFIG)
    assert l0.tolist() == [[0], [4], [5]]
    assert l1.tolist() == [[0, 4], [1, 2], [5, 5]]
    assert l2.tolist() == [[0, 4, 1, 2], [3, 3, 0, 0], [5, 5, 5, 5]]


def test_loss_is_the_weighted_mean_of_each_levels_mean_cross_entropy():
    torch.manual_seed(0)
    logits = tuple(torch.randn(3, count, 6) for count in (1, 2, 4))
    loss = next_token_loss(logits, PATCHES, CONFIG, ObjectiveConfig(level_weights=(2.0, 1.0, 0.5)))
    expected, right = [], []
    for level, targets in zip(logits, level_targets(PATCHES, CONFIG), strict=True):
        terms, hits = [], []
        for n in range(3):
            for i in range(level.shape[1]):
                scores = level[n, i].tolist()
                terms.append(math.log(sum(map(math.exp, scores))) - scores[targets[n, i]])
                hits.append(scores.index(max(scores)) == int(targets[n, i]))
        expected.append(sum(terms) / len(terms))
        right.append(sum(hits) / len(hits))
    assert loss.levels.tolist() == pytest.approx(expected, abs=1e-5)
    assert loss.accuracy.tolist() == pytest.approx(right)
    assert loss.total.item() == pytest.approx((2 * expected[0] + expected[1] + 0.5 * expected[2]) / 3.5, abs=1e-5)


@pytest.mark.slow
def test_a_model_overfits_one_utterance():
    torch.manual_seed(0)
    model = Mars6(CONFIG)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    inputs = (torch.tensor([[1, 2, 3]]), torch.tensor([3]), torch.ones(1, 3), torch.ones(1, 6), PATCHES[None], torch.tensor([3]))  # noqa: E501  # fmt: skip
    for _ in range(60):
        output = model(*inputs)
        loss = next_token_loss(output.logits, PATCHES[None][output.scored], CONFIG, ObjectiveConfig())
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
    assert loss.total < 0.05 and loss.accuracy.tolist() == [1, 1, 1]


def test_the_code_before_is_that_of_the_row_and_the_first_has_none():
    rows = torch.stack((PATCHES, torch.tensor([[2, *[5] * 6], [15] * 7, [-100] * 7])))
    scored = torch.tensor([[True, True, True], [True, True, False]])
    assert previous_codes(rows, scored, CONFIG).tolist() == [[-1], [0], [4], [-1], [2]]
    some = torch.tensor([[False, True, False], [True, False, False]])
    assert previous_codes(rows, some, CONFIG).tolist() == [[0], [-1]]
    repeated = CONFIG.model_copy(update={"patch_layout": (2, 5)})
    assert previous_codes(rows[:1], scored[:1], repeated).tolist() == [[-1, 0], [-1, 4], [-1, -1]]


def test_flux_loss_and_its_gradient_match_equation_1_by_hand():
    torch.manual_seed(0)
    logits = (2 * torch.randn(4, 1, 6)).double().requires_grad_()
    previous, flux = torch.tensor([[3], [-1], [0], [4]]), FluxConfig(beta=0.7, epsilon=0.3)
    loss = flux_loss(logits, previous, flux)
    (gradient,) = torch.autograd.grad(loss, logits)
    expected, slopes = 0.0, torch.zeros(4, 1, 6).double()
    for n, code in ((0, 3), (2, 0), (3, 4)):
        scores = logits[n, 0].tolist()
        mass = sum(map(math.exp, scores))
        missed = math.log(mass) - scores[code]
        expected += 0.7 / (0.3 + missed) / 3
        for c in range(6):
            # d(beta / (epsilon + H)) = -beta / (epsilon + H)^2 dH, and dH / dlogit_c = p_c - [c = code]
            slopes[n, 0, c] = -0.7 / (0.3 + missed) ** 2 * (math.exp(scores[c]) / mass - (c == code)) / 3
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(gradient, slopes, rtol=1e-5, atol=1e-7)
    assert (gradient[[0, 2, 3], 0, [3, 0, 4]] > 0).all()  # going downhill makes the previous code less likely


def test_flux_loss_of_a_single_code_is_zero():
    assert flux_loss(torch.randn(1, 1, 6), torch.tensor([[-1]]), FluxConfig(beta=1.0)).item() == 0.0
