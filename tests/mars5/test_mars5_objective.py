"""The training objectives of both models."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mars5_small import CODES, LEVELS, ar, codes, nar, vocabulary
from marstts.mars5.diffusion import cosine_schedule, log_onehot, q, step_loss
from marstts.mars5.nar import Conditioning
from marstts.mars5.objective import (
    NoisyBatch,
    ObjectiveConfig,
    add_noise,
    bound_loss,
    drop_references,
    next_token_loss,
    reference_length,
    training_tokens,
)

K = CODES + 1


def test_training_tokens_are_text_speech_and_its_end() -> None:
    joint = vocabulary()
    tokens = training_tokens([5, 6], np.array([0, 1, 3, 7]), joint)
    assert tokens.tolist() == [5, 6, 285, 277, joint.end]


def test_text_weighs_less_and_padding_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, tokens = torch.randn(2, 6, 9, generator=generator), torch.randint(0, 9, (2, 6), generator=generator)
    text_lengths, lengths = torch.tensor([3, 2]), torch.tensor([6, 4])
    loss = next_token_loss(logits, tokens, text_lengths, lengths, ObjectiveConfig(text_weight=0.25))
    text, speech, right = [], [], []
    for row in range(2):
        for place in range(1, int(lengths[row])):
            cost = -math.log(float(logits[row, place - 1].softmax(dim=0)[tokens[row, place]]))
            (text if place < text_lengths[row] else speech).append(cost)
            if place >= text_lengths[row]:
                right.append(float(logits[row, place - 1].argmax() == tokens[row, place]))
    assert float(loss.text) == pytest.approx(np.mean(text), rel=1e-5)
    assert float(loss.speech) == pytest.approx(np.mean(speech), rel=1e-5)
    assert float(loss.accuracy) == pytest.approx(np.mean(right))
    total = (0.25 * sum(text) + sum(speech)) / (0.25 * len(text) + len(speech))
    assert float(loss.total) == pytest.approx(total, rel=1e-5)


@pytest.mark.slow
def test_the_ar_can_be_fitted_to_one_utterance() -> None:
    model, joint = ar().train(), vocabulary()
    tokens = torch.from_numpy(training_tokens([4, 9, 7], codes(8)[:, 0], joint))[None]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        speaker = model.encode_speaker(torch.from_numpy(codes(4))[None], torch.tensor([4]))
        loss = next_token_loss(
            model(tokens, speaker), tokens, torch.tensor([3]), torch.tensor([tokens.shape[1]]), ObjectiveConfig()
        )
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
        losses.append(float(loss.speech.detach()))
    assert losses[-1] < 0.1 * losses[0]
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_noise_leaves_level_0_alone_and_follows_the_schedule() -> None:
    clean, schedule = torch.full((3000, 2, LEVELS), 4), cosine_schedule(9)
    batch = add_noise(clean, schedule, K, torch.Generator().manual_seed(0))
    assert (batch.noisy[..., 0] == 4).all()
    frequencies = batch.steps.bincount(minlength=9) / 3000
    torch.testing.assert_close(frequencies, torch.full((9,), 1 / 9), atol=0.02, rtol=0)
    for step in (0, 5, 8):
        rows = batch.steps == step
        kept = (batch.noisy[rows][..., 1:] == 4).float().mean()
        expected = q(log_onehot(torch.tensor([4]), K), torch.tensor([step]), schedule)[0, 4].exp()
        assert float(kept) == pytest.approx(float(expected), abs=0.06)


def test_steps_of_a_batch_are_spread_evenly_and_all_as_probable() -> None:
    schedule, generator = cosine_schedule(12), torch.Generator().manual_seed(0)
    drawn = [add_noise(torch.zeros(4, 1, LEVELS).long(), schedule, K, generator).steps for _ in range(600)]
    assert all(sorted((steps // 3).tolist()) == [0, 1, 2, 3] for steps in drawn)
    frequencies = torch.cat(drawn).bincount(minlength=12) / 2400
    torch.testing.assert_close(frequencies, torch.full((12,), 1 / 12), atol=0.02, rtol=0)


def test_the_bound_is_the_mean_over_frames_that_count_of_all_levels_but_the_first() -> None:
    generator, schedule = torch.Generator().manual_seed(1), cosine_schedule(6)
    clean, noisy = (torch.randint(0, K, (2, 5, LEVELS), generator=generator) for _ in range(2))
    logits, steps, lengths = (
        torch.randn(2, 5, LEVELS, K, generator=generator),
        torch.tensor([0, 4]),
        torch.tensor([5, 2]),
    )
    loss = bound_loss(logits, NoisyBatch(clean, noisy, steps), lengths, schedule)
    costs: dict[int, list[float]] = {level: [] for level in range(1, LEVELS)}
    for row, length in enumerate(lengths.tolist()):
        for frame in range(length):
            for level, level_costs in costs.items():
                place = (row, frame, level)
                cost = step_loss(
                    log_onehot(clean[place][None], K), logits[place][None], log_onehot(noisy[place][None], K),
                    steps[row : row + 1], schedule,
                )  # fmt: skip
                level_costs.append(float(cost))
    expected = [np.mean(level_costs) for level_costs in costs.values()]
    np.testing.assert_allclose(loss.levels.numpy(), expected, rtol=1e-4)
    assert float(loss.total) == pytest.approx(np.mean(expected), rel=1e-4)


def test_the_optimum_of_the_bound_is_the_true_probability() -> None:
    """Two codes of unequal probability, independent of all else."""
    schedule, share = cosine_schedule(5), torch.tensor([0.8, 0.2])
    generator = torch.Generator().manual_seed(0)
    clean = (torch.rand(20_000, 1, 2, generator=generator) > share[0]).long()
    batch = add_noise(clean, schedule, 2, generator)
    ratios = torch.tensor([0.5, 0.65, 0.8, 0.95])
    found = []
    for ratio in ratios:
        logits = torch.stack((ratio, 1 - ratio)).log().expand(20_000, 1, 2, 2)
        lengths = torch.ones(20_000, dtype=torch.long)
        found.append(float(bound_loss(logits, batch, lengths, schedule).total))
    assert np.argmin(found) == 2


def test_references_are_dropped_in_a_tenth_of_the_rows() -> None:
    lengths = torch.full((20_000,), 7)
    dropped = drop_references(lengths, 0.1, torch.Generator().manual_seed(0))
    assert float((dropped == 0).float().mean()) == pytest.approx(0.1, abs=0.01)
    assert set(dropped.tolist()) == {0, 7} and (lengths == 7).all()
    assert (drop_references(lengths, 0.0, torch.Generator()) == 7).all()


def test_references_are_at_most_half_of_the_utterance() -> None:
    config, rng = ObjectiveConfig(min_reference_frames=3, max_reference_frames=10), np.random.default_rng(0)
    assert {reference_length(100, rng, config) for _ in range(300)} == set(range(3, 11))
    assert {reference_length(8, rng, config) for _ in range(300)} == {3, 4}
    assert reference_length(1, rng, config) == 1


@pytest.mark.slow
def test_the_nar_can_be_fitted_to_one_utterance() -> None:
    model, schedule, clean = nar(), cosine_schedule(10), torch.from_numpy(codes(6))[None]
    generator, optimizer = torch.Generator().manual_seed(0), torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(80):
        batch = add_noise(clean.expand(8, -1, -1), schedule, K, generator)
        lengths = drop_references(torch.full((8,), 4), 0.1, generator)
        speaker = model.encode_speaker(clean[:, :4].expand(8, -1, -1), lengths)
        given = Conditioning(torch.tensor([[4, 9]]).expand(8, -1), torch.full((8,), 2), speaker)
        logits = model(batch.noisy, torch.full((8,), 6), batch.steps, given)
        loss = bound_loss(logits, batch, torch.full((8,), 6), schedule).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:5])
    with torch.inference_mode():
        noise = torch.randint(0, K, (1, 6, LEVELS), generator=generator)
        noise[..., 0] = clean[..., 0]
        one = Conditioning(given.text_ids[:1], given.text_lengths[:1], given.speaker[:1])
        logits = model(noise, torch.tensor([6]), torch.tensor([9]), one)
        assert (logits.argmax(dim=-1)[..., 1:] == clean[..., 1:]).float().mean() > 0.3  # by chance 0.07
