"""Pretraining of MARS6 on a corpus of synthetic codes."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from toy_training import CORPUS, TOKENIZER, collator, config, task, weights

from marstts.errors import ConfigError, DataError
from marstts_lab.data.batching import TrainingItem
from marstts_lab.training.attention_guidance import attention_scores
from marstts_lab.training.distributed import Share
from marstts_lab.training.loop import LoopConfig, run
from marstts_lab.training.mars6.task import PretrainTask

pytestmark = pytest.mark.slow


def test_training_lowers_the_loss_of_every_level(tmp_path):
    settings = config(loop={"steps": 60, "validate_every": 60}, optimizer={"learning_rate": 6e-3})
    learner = task(settings)
    before = learner.validate(0)
    assert abs(before["loss0"] - np.log(17)) < 1.5
    run(learner, settings.loop, tmp_path)
    after = learner.validate(60)
    assert after["loss0"] < 0.6 * before["loss0"] and after["loss2"] < 0.25 * before["loss2"]
    assert after["accuracy2"] > 0.9
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    names = {
        "loss",
        "loss0",
        "loss1",
        "loss2",
        "accuracy0",
        "attention_guidance",
        "attention_peak",
        "attention_monotonicity",
        "grad_norm",
    }
    assert names | {"learning_rate", "audio_seconds_per_second", "padding"} <= logged[0].keys()


def test_resumed_training_equals_uninterrupted_training(tmp_path):
    whole = task()
    run(whole, LoopConfig(steps=6, validate_every=4, log_every=2), tmp_path / "whole")
    first = task()
    run(first, LoopConfig(steps=3, validate_every=4, log_every=2), tmp_path / "parts")
    # the schedule is that of the whole run: the task holds it, the loop only stopped early
    second = task()
    assert run(second, LoopConfig(steps=6, validate_every=4, log_every=2), tmp_path / "parts") == 6
    for name, value in weights(whole).items():
        torch.testing.assert_close(weights(second)[name], value, rtol=0, atol=0, msg=name)


def test_accumulation_follows_the_mean_gradient_of_its_batches():
    halves = {"precision": "fp32", "prefetch": False, "attention_guidance": {"weight": 0.0}}
    both = task(config(accumulation_batches=2, **halves))
    both.train_step(0)
    apart = task(config(**halves))
    gradients = []
    for number in (0, 1):
        apart.optimizer.zero_grad()
        apart.backward(0, Share(number, Fraction(0), Fraction(1)))
        gradients.append([parameter.grad / 2 for parameter in apart.model.parameters()])
    joined = [one + other for one, other in zip(*gradients, strict=True)]
    length = torch.sqrt(sum(value.square().sum() for value in joined)).clamp_min(1.0)
    for parameter, gradient in zip(both.model.parameters(), joined, strict=True):
        torch.testing.assert_close(parameter.grad, gradient / length, rtol=1e-4, atol=1e-6)


def test_a_resumed_run_continues_with_the_next_batch_whatever_its_accumulation_was():
    learner = task(config(accumulation_batches=3))
    assert learner.data_state(4) == {"batches": 12}
    learner.load_data_state(4, {"batches": 8})  # by two processes with one batch each
    assert (learner.batches_before(4), learner.data_state(5)) == (8, {"batches": 11})
    learner.load_data_state(4, {})  # a checkpoint without this entry
    assert learner.batches_before(4) == 12


def test_throughput_is_the_audio_of_a_step_over_its_time():
    learner = task()
    learner.last_step_at -= 1000.0  # so long that a busy machine adds little
    assert learner.throughput(125_000.0) == pytest.approx(125 * 256 / 8000, rel=0.05)


def test_attention_guidance_ends_at_end_step():
    learner = task(config(attention_guidance={"end_step": 1}))
    assert "attention_guidance" in learner.train_step(0)
    assert "attention_guidance" not in learner.train_step(1)
    assert "attention_guidance" not in task(config(attention_guidance={"weight": 0.0})).train_step(0)


def test_a_compiled_training_takes_the_same_step(monkeypatch):
    # traced as usual, but not compiled to machine code, which takes minutes
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    small = {"precision": "fp32", "model": {"global_layers": 1}, "attention_guidance": {"layers": [0]}}
    compiled, eager = task(config(compile=True, **small)), task(config(**small))
    assert compiled.model.local_decoder.layers[0]._compiled_call_impl is not None
    one, other = compiled.train_step(0), eager.train_step(0)
    assert float(one["loss"]) == pytest.approx(float(other["loss"]), rel=1e-4)
    assert float(one["grad_norm"]) == pytest.approx(float(other["grad_norm"]), rel=1e-3)


def test_validation_scores_the_ema_weights_and_changes_no_weights():
    learner = task()
    scores = learner.validate(0)
    before = weights(learner)
    with torch.no_grad():
        learner.model.local_decoder.output.weight.mul_(3)
    assert learner.validate(0) == scores
    with torch.no_grad():
        learner.model.local_decoder.output.weight.div_(3)
    for name, value in weights(learner).items():
        torch.testing.assert_close(value, before[name])


def test_diagonal_attention_is_monotonic_with_a_high_peak():
    batch = collator()([TrainingItem((1,), 1, ("One two.",)), TrainingItem((3,), 3, ("One.",))])
    length = batch.patches.shape[1]
    forward = torch.eye(length).expand(2, 1, length, length)
    shape = attention_scores((forward,), batch.patch_lengths, heads=1)
    assert (
        float(shape["attention_monotonicity"]) == pytest.approx(1.0, abs=1e-4) and float(shape["attention_peak"]) == 1.0
    )
    backward = attention_scores((forward.flip(-1),), batch.patch_lengths, heads=1)
    assert float(backward["attention_monotonicity"]) == pytest.approx(-1.0, abs=1e-4)
    flat = attention_scores((torch.full((2, 1, length, 10), 0.1),), batch.patch_lengths, heads=1)
    assert abs(float(flat["attention_monotonicity"])) < 1e-3 and float(flat["attention_peak"]) == pytest.approx(0.1)


def test_a_model_that_does_not_fit_its_data_is_refused_with_every_reason():
    settings = config(
        model={"codebook_size": 32, "style_size": 6},
        attention_guidance={"layers": [2]},
        objective={"level_weights": [1.0]},
    )
    with pytest.raises(ConfigError) as caught:
        task(settings)
    for complaint in (
        "codebook_size is 32",
        "style_size is 6",
        "has layers 0 to 1",
        "predicts 3 levels",
    ):
        assert complaint in str(caught.value)
    with pytest.raises(DataError, match="no utterances in its validation split"):
        PretrainTask(config(), CORPUS.split("train"), TOKENIZER)
    with pytest.raises(ConfigError, match="expected `auto`"):
        task(config(device="abacus"))


def test_input_token_noise_changes_training_and_not_validation():
    true, noisy = task(config()), task(config(input_token_noise=0.9))
    assert float(true.train_step(0)["loss"]) != float(noisy.train_step(0)["loss"])
    validation = [learner.validate(0)["loss"] for learner in (task(config()), task(config(input_token_noise=0.9)))]
    assert validation[0] == validation[1]
