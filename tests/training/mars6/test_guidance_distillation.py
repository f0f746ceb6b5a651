"""Guidance distillation: the teacher equals two rows of the engine, and the student learns its distribution."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_training import CORPUS, TOKENIZER, config, task

from marstts.errors import ConfigError
from marstts.io.precision import autocast
from marstts.mars6.engines.torch import TorchEngine
from marstts.mars6.prompt import SPECIAL_TOKENS, Mars6Prompt
from marstts_lab.training.checkpoint import restore, save
from marstts_lab.training.loop import run
from marstts_lab.training.mars6.guidance_distillation import distillation_loss, drop_text, guided_probs
from marstts_lab.training.mars6.run_folder import init_from, open_run, trained_model
from marstts_lab.training.mars6.task import PretrainTask

SPECIAL = [TOKENIZER.encode(token)[0] for token in SPECIAL_TOKENS]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained a little, with text dropout."""
    folder = tmp_path_factory.mktemp("runs") / "base"
    settings = config(loop={"steps": 12, "validate_every": 100}, batching={"text_dropout": 0.2})
    open_run(folder, settings, CORPUS)
    run(task(settings), settings.loop, folder)
    return folder


def student(base: Path, **changes) -> PretrainTask:
    """A training that begins with the weights of its teacher."""
    learner = task(
        config(guidance_distillation_scale=3.0, optimizer={"learning_rate": 3e-3, "warmup_steps": 2}, **changes)
    )
    init_from(learner, base)
    return learner


@pytest.mark.slow
def test_the_teacher_predicts_what_two_rows_of_the_engine_predict(base):
    model = student(base).ema.eval()
    batch = task().training_batch(0)
    inputs = batch.model_inputs()
    probs = guided_probs(model, 3.0, SPECIAL, *inputs)
    engine = TorchEngine(model)
    for row, length in enumerate(batch.patch_lengths[:2].tolist()):
        text = batch.text_ids[row, : batch.text_lengths[row]].numpy()
        speaker = (batch.embeddings[role][row].numpy() for role in ("identity", "style"))
        prompt = Mars6Prompt(text, *speaker, np.zeros((0, 7), np.int64))
        state = engine.start([prompt, replace(prompt, text_ids=text[np.isin(text, SPECIAL)])])
        for patch in batch.patches[row, :length].numpy():
            for position in range(7):
                logits, state = engine.next_logits(state, np.stack([patch[:position]] * 2))
                level, place = ((0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3))[position]
                expected = torch.from_numpy(3 * logits[0] - 2 * logits[1]).softmax(dim=-1)
                torch.testing.assert_close(probs[level][0, place], expected, atol=1e-5, rtol=1e-3)
            state = engine.append(state, np.stack([patch] * 2))
            probs = tuple(level[1:] for level in probs)
    assert len(probs[0]) == int(batch.patch_lengths[2:].sum())


def test_text_dropout_keeps_special_tokens_only():
    batch = task().training_batch(0)
    ids, lengths = drop_text(batch.text_ids, batch.text_lengths, SPECIAL)
    assert ids.shape == batch.text_ids.shape and lengths.tolist() == [3] * len(ids)
    for row, full, length in zip(ids.tolist(), batch.text_ids.tolist(), batch.text_lengths.tolist(), strict=True):
        assert row[:3] == [token for token in full[:length] if token in SPECIAL] and not any(row[3:])


def test_the_loss_is_the_cross_entropy_with_the_teachers_probabilities():
    rng = torch.Generator().manual_seed(0)
    logits = [torch.randn(5, count, 4, generator=rng) for count in (1, 2, 4)]
    probs = [torch.rand(5, count, 4, generator=rng) for count in (1, 2, 4)]
    probs = [level / level.sum(dim=-1, keepdim=True) for level in probs]
    slowly = [
        np.mean([-(p * np.log(np.exp(x) / np.exp(x).sum())).sum() for x, p in zip(rows, targets, strict=True)])
        for rows, targets in (
            (x.double().numpy().reshape(-1, 4), p.double().numpy().reshape(-1, 4))
            for x, p in zip(logits, probs, strict=True)
        )
    ]
    loss = distillation_loss(logits, probs, (1.0, 2.0, 0.5))
    assert float(loss) == pytest.approx((slowly[0] + 2 * slowly[1] + 0.5 * slowly[2]) / 3.5, rel=1e-6)


@pytest.mark.slow
def test_the_student_learns_the_guided_distribution(base):
    learner = student(base, loop={"steps": 60})
    teacher = {name: value.clone() for name, value in learner.modules["teacher"].state_dict().items()}
    before = learner.validate(0)["distill_loss"]
    for step in range(60):
        scores = learner.train_step(step)
    assert {"distill_loss", "loss", "accuracy0"} <= scores.keys()
    entropy = teacher_entropy(learner)
    after = learner.validate(60)["distill_loss"]
    assert after - entropy < 0.5 * (before - entropy)
    assert all(torch.equal(value, teacher[name]) for name, value in learner.modules["teacher"].state_dict().items())


def teacher_entropy(learner: PretrainTask) -> float:
    """The lowest loss that a student can reach on the validation batches."""
    sums = weights = 0.0
    for items in learner.validation_items:
        batch = learner.collate_validation(items)
        inputs = batch.model_inputs()
        with autocast("cpu", learner.config.precision):
            probs = guided_probs(learner.modules["teacher"], 3.0, SPECIAL, *inputs)
        weight = int(batch.patch_lengths.sum())
        logs = [level.clamp_min(1e-30).log() for level in probs]
        sums += weight * float(distillation_loss(logs, probs, (1.0, 1.0, 1.0)))
        weights += weight
    return sums / weights


@pytest.mark.slow
def test_a_resumed_student_keeps_its_teacher(base, tmp_path):
    learner = student(base)
    learner.train_step(0)
    save(learner, tmp_path / "run", 1)
    other = task(config(guidance_distillation_scale=3.0, optimizer={"learning_rate": 3e-3, "warmup_steps": 2}))
    assert restore(other, tmp_path / "run") == 1
    assert float(learner.train_step(1)["distill_loss"]) == float(other.train_step(1)["distill_loss"])


def test_distillation_without_initial_weights_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="--init-from RUN"):
        open_run(tmp_path / "new", config(guidance_distillation_scale=2.0), CORPUS)


@pytest.mark.slow
def test_a_student_is_loaded_like_any_model(base, tmp_path):
    learner = student(base)
    open_run(tmp_path / "run", learner.config, CORPUS, base)
    save(learner, tmp_path / "run", 1)
    for name, value in trained_model(tmp_path / "run").state_dict().items():
        assert torch.equal(value, learner.ema.state_dict()[name])
