"""ResidualTransformer: batches, conditioning, timesteps."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mars5_small import CODES, LEVELS, codes, nar
from marstts.mars5.config import CodecLMConfig, Mars5Config, ResidualTransformerConfig
from marstts.mars5.diffusion import ReverseStep, cosine_schedule, gumbel_draw, log_onehot, p_posterior
from marstts.mars5.nar import Conditioning, ResidualTransformer, timestep_waves


def given(model: ResidualTransformer, lengths: list[int], seed: int = 0) -> Conditioning:
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(0, 270, (len(lengths), max(lengths)), generator=generator)
    references = torch.stack([torch.from_numpy(codes(5, row)) for row in range(len(lengths))])
    with torch.inference_mode():
        speakers = model.encode_speaker(references, torch.tensor([5] * len(lengths)))
    return Conditioning(text, torch.tensor(lengths), speakers)


def row(given: Conditioning, index: int) -> Conditioning:
    length = int(given.text_lengths[index])
    return Conditioning(
        given.text_ids[index : index + 1, :length], given.text_lengths[index : index + 1],
        given.speaker[index : index + 1],
    )  # fmt: skip


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


@pytest.mark.slow
def test_the_defaults_have_the_published_size() -> None:
    with torch.device("meta"):
        model = ResidualTransformer(ResidualTransformerConfig(text_vocab_size=1))
    assert len(model.state_dict()) == 67 + 14 * (8 + 3) + 22 * 16
    assert sum(parameter.numel() for parameter in model.parameters()) - 1024 == pytest.approx(450.2e6, rel=1e-4)


@pytest.mark.slow
@torch.inference_mode()
def test_rows_of_a_batch_do_not_influence_each_other() -> None:
    model = nar()
    both, lengths, steps = given(model, [4, 9]), torch.tensor([8, 3]), torch.tensor([2, 150])
    x = torch.stack([torch.from_numpy(codes(8, seed)) for seed in (8, 9)])
    logits = model(x, lengths, steps, both)
    assert logits.shape == (2, 8, LEVELS, CODES + 1)
    for index, length in enumerate(lengths.tolist()):
        alone = model(
            x[index : index + 1, :length], lengths[index : index + 1], steps[index : index + 1], row(both, index)
        )
        close(logits[index, :length], alone[0])


@torch.inference_mode()
def test_every_frame_sees_every_other_frame() -> None:
    model, x = nar(), torch.from_numpy(codes(6))[None]
    condition, length, step = given(model, [4]), torch.tensor([6]), torch.tensor([9])
    before = model(x, length, step, condition)
    x[0, 5, 1] = (x[0, 5, 1] + 1) % CODES
    assert ((model(x, length, step, condition) - before).abs().amax(dim=(2, 3)) > 1e-4).all()


@torch.inference_mode()
def test_speaker_text_and_timestep_matter() -> None:
    model, x, length = nar(), torch.from_numpy(codes(6))[None], torch.tensor([6])
    condition, step = given(model, [4]), torch.tensor([9])
    before = model(x, length, step, condition)
    others = [
        (step + 1, condition),
        (step, Conditioning(condition.text_ids, condition.text_lengths, model.null_speaker(1))),
        (step, Conditioning((condition.text_ids + 1) % 270, condition.text_lengths, condition.speaker)),
    ]
    for other_step, other in others:
        assert (model(x, length, other_step, other) - before).abs().max() > 1e-3


@torch.inference_mode()
def test_dropping_the_reference_leaves_the_identity_token_alone() -> None:
    model = nar()
    dropped = model.encode_speaker(torch.full((1, 4, LEVELS), CODES), torch.tensor([0]))
    close(dropped, model.null_speaker(1))


def test_timesteps_become_cosines_and_then_sines() -> None:
    waves = timestep_waves(torch.tensor([0, 3]), 4)
    assert waves[0].tolist() == [1, 1, 0, 0]
    slow = 3 * math.exp(-math.log(10_000) / 2)
    torch.testing.assert_close(waves[1], torch.tensor([math.cos(3), math.cos(slow), math.sin(3), math.sin(slow)]))


@torch.inference_mode()
def test_guidance_extrapolates_from_the_null_speaker_to_the_speaker_and_forbids_padding() -> None:
    model, x, lengths, steps = nar(), torch.from_numpy(codes(6))[None], torch.tensor([6]), torch.tensor([7])
    condition = given(model, [4])
    unconditional = Conditioning(condition.text_ids, condition.text_lengths, model.null_speaker(1))
    slow = (2.5 * model(x, lengths, steps, condition) - 1.5 * model(x, lengths, steps, unconditional)) / 0.5
    slow[..., CODES] = -torch.inf
    schedule = cosine_schedule(200)
    uniforms = torch.rand((*x.shape, CODES + 1), generator=torch.Generator().manual_seed(1))
    expected = gumbel_draw(p_posterior(slow, log_onehot(x, CODES + 1), steps, schedule), uniforms)
    found = ReverseStep(model, schedule, condition, lengths, 2.5, 0.5, CODES)(x, 7, uniforms)
    assert found.tolist() == expected.tolist() and (found != CODES).all()


def test_models_that_do_not_fit_each_other_are_refused() -> None:
    nar_sizes = {"width": 8, "heads": 2, "levels": 2, "codebook_size": 9, "timestep_width": 6}
    ar = CodecLMConfig(text_vocab_size=5, speech_vocab_size=6, width=8, speaker_heads=2, levels=2, codebook_size=9)
    Mars5Config(ar=ar, nar=ResidualTransformerConfig(text_vocab_size=6, **nar_sizes))
    for text, change, complaint in (
        (6, {"levels": 4}, "levels"),
        (6, {"codebook_size": 8}, "codebook"),
        (4, {}, "text"),
    ):
        with pytest.raises(ValueError, match=complaint):
            Mars5Config(ar=ar, nar=ResidualTransformerConfig(text_vocab_size=text, **nar_sizes | change))
    with pytest.raises(ValueError, match="timestep_width"):
        ResidualTransformerConfig(text_vocab_size=6, **nar_sizes | {"timestep_width": 5})
