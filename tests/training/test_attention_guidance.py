"""Guided attention: the band, the loss, and that it makes attention monotonic."""

import math

import pytest
import torch

from marstts_lab.training.attention_guidance import diagonal_band, guided_attention_loss


def slow_band(n: int, m: int, boundary: tuple[int, int], width: float) -> list[list[bool]]:
    def place(index, length, start):
        return (1, (index - start) / (length - start)) if index >= start else (0, index / start)

    rows = []
    for t in range(n):
        row = []
        for s in range(m):
            (half_t, at), (half_s, reading) = place(t, n, boundary[0]), place(s, m, boundary[1])
            tokens = (m - boundary[1]) if half_s else boundary[1]
            row.append(half_t == half_s and abs(at - reading) <= max(width, 1 / tokens) + 1e-9)
        rows.append(row)
    return rows


@pytest.mark.parametrize(
    ("n", "m", "boundary"), [(20, 30, (0, 0)), (7, 40, (0, 0)), (30, 3, (0, 0)), (31, 44, (11, 17))]
)
def test_band_holds_text_near_the_diagonal_of_each_stretch(n, m, boundary):
    band = diagonal_band(
        torch.tensor([m, 5]), torch.tensor([n, 4]), m + 2, n + 1, torch.tensor([boundary, (0, 0)]), 0.1301
    )
    assert band.shape == (2, n + 1, m + 2)
    assert band[0, :n, :m].tolist() == slow_band(n, m, boundary, 0.1301)
    assert not band[0, :, m:].any() and not band[1, :, 5:].any()
    assert band[0, :n].any(dim=1).all()


def test_guided_attention_loss_is_minus_log_of_the_mass_inside():
    attention = torch.zeros(1, 2, 4, 2 + 4)
    attention[0, 0, torch.arange(4), 2 + torch.arange(4)] = 0.5  # half on the diagonal,
    attention[0, 0, :, 0] = 0.5  # half fled to a speaker slot
    attention[0, 1, torch.arange(4), 2 + torch.arange(4)] = 1.0
    lengths = torch.tensor([4])
    reward = guided_attention_loss(attention, lengths, lengths, num_slots=2)
    assert reward.item() == pytest.approx(math.log(2) / 2, abs=1e-5)


def test_guided_attention_loss_ignores_padding_and_is_finite_without_mass():
    torch.manual_seed(0)
    attention = torch.rand(1, 2, 5, 2 + 6).softmax(dim=-1)
    text, patches = torch.tensor([6]), torch.tensor([5])
    padded = torch.nn.functional.pad(attention, (0, 3, 0, 4))
    torch.testing.assert_close(
        guided_attention_loss(padded, text, patches, num_slots=2),
        guided_attention_loss(attention, text, patches, num_slots=2),
    )
    assert guided_attention_loss(torch.zeros_like(attention), text, patches, num_slots=2).isfinite()


def test_guided_attention_loss_trains_monotonic_attention():
    torch.manual_seed(0)
    scores = torch.zeros(1, 1, 12, 2 + 9, requires_grad=True)
    text, patches = torch.tensor([9]), torch.tensor([12])
    for _ in range(50):
        loss = guided_attention_loss(scores.softmax(dim=-1), text, patches, num_slots=2)
        (gradient,) = torch.autograd.grad(loss, scores)
        scores = (scores - 20 * gradient).detach().requires_grad_()
    focus = scores.softmax(dim=-1)[0, 0, :, 2:] @ torch.arange(9.0)
    assert (focus.diff() > -0.2).all() and focus[-1] > focus[0] + 5
