"""Guidance learnt by heart: the teacher says what the guided engine says, and the pupil comes to say it, too."""

from pathlib import Path

import numpy as np
import pytest
import torch
from test_pretrain import CORPUS, TOKENIZER, config, quiet, task

from marstts.engine.guided import guided
from marstts.engine.torch import TorchEngine
from marstts.errors import ConfigError
from marstts.mars6.prompt import SPECIAL_TOKENS, Prompt
from marstts.training.guidance import distillation_loss, guided_chances, wordless
from marstts.training.loop import restore, run, save
from marstts.training.pretrain import PretrainTask, open_run, start_from, trained_model

SPECIAL = [TOKENIZER.encode(token)[0] for token in SPECIAL_TOKENS]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained a little, some of its rows without words."""
    folder = tmp_path_factory.mktemp("runs") / "base"
    settings = config(loop={"steps": 40, "validate_every": 100}, batching={"wordless_probability": 0.2})
    open_run(folder, settings, CORPUS)
    run(task(settings), settings.loop, folder, quiet)
    return folder


def pupil(base: Path, **changes) -> PretrainTask:
    """One that begins with the weights of its teacher."""
    learner = task(config(learnt_guidance=3.0, optimizer={"learning_rate": 3e-3, "warmup_steps": 2}, **changes))
    start_from(learner, base)
    return learner


def test_the_teacher_says_at_every_token_what_the_guided_engine_says(base):
    model = pupil(base).average.eval()
    batch = task().training_batch(0)
    inputs = (batch.text_ids, batch.text_lengths, batch.identity, batch.style, batch.patches, batch.patch_lengths)
    chances = guided_chances(model, 3.0, SPECIAL, *inputs)
    engine = guided(TorchEngine(model), TOKENIZER, 3.0)
    for row, length in enumerate(batch.patch_lengths[:2].tolist()):
        text = batch.text_ids[row, : batch.text_lengths[row]].numpy()
        prompt = Prompt(text, batch.identity[row].numpy(), batch.style[row].numpy(), np.zeros((0, 7), np.int64))
        state = engine.start([prompt])
        for patch in batch.patches[row, :length].numpy():
            for position in range(7):
                logits, state = engine.local_logits(state, patch[None, :position])
                level, place = ((0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3))[position]
                told = torch.from_numpy(logits[0]).softmax(dim=-1)
                torch.testing.assert_close(chances[level][0, place], told, atol=1e-5, rtol=1e-3)
            state = engine.append(state, patch[None])
            chances = tuple(level[1:] for level in chances)
    assert len(chances[0]) == int(batch.patch_lengths[2:].sum())


def test_of_a_text_without_words_only_the_special_tokens_stay():
    batch = task().training_batch(0)
    ids, lengths = wordless(batch.text_ids, batch.text_lengths, SPECIAL)
    assert ids.shape == batch.text_ids.shape and lengths.tolist() == [3] * len(ids)
    for row, full, length in zip(ids.tolist(), batch.text_ids.tolist(), batch.text_lengths.tolist(), strict=True):
        assert row[:3] == [token for token in full[:length] if token in SPECIAL] and not any(row[3:])


def test_the_loss_is_the_cross_entropy_with_the_teachers_chances():
    rng = torch.Generator().manual_seed(0)
    logits = [torch.randn(5, count, 4, generator=rng) for count in (1, 2, 4)]
    chances = [torch.rand(5, count, 4, generator=rng) for count in (1, 2, 4)]
    chances = [level / level.sum(dim=-1, keepdim=True) for level in chances]
    slowly = [
        np.mean([-(p * np.log(np.exp(x) / np.exp(x).sum())).sum() for x, p in zip(rows, wanted, strict=True)])
        for rows, wanted in (
            (x.double().numpy().reshape(-1, 4), p.double().numpy().reshape(-1, 4))
            for x, p in zip(logits, chances, strict=True)
        )
    ]
    loss = distillation_loss(logits, chances, (1.0, 2.0, 0.5))
    assert float(loss) == pytest.approx((slowly[0] + 2 * slowly[1] + 0.5 * slowly[2]) / 3.5, rel=1e-6)


def test_a_pupil_comes_to_say_unguided_what_its_teacher_says_guided(base):
    learner = pupil(base, loop={"steps": 60})
    teacher = {name: value.clone() for name, value in learner.modules["teacher"].state_dict().items()}
    before = learner.validate(0, None)["distilled"]
    for step in range(60):
        scores = learner.train_step(step)
    assert {"distilled", "loss", "accuracy0"} <= scores.keys()
    entropy = teacher_entropy(learner)
    after = learner.validate(60, None)["distilled"]
    assert after - entropy < 0.5 * (before - entropy)
    assert all(torch.equal(value, teacher[name]) for name, value in learner.modules["teacher"].state_dict().items())


def teacher_entropy(learner: PretrainTask) -> float:
    """What no pupil can get below on the validation batches."""
    sums = weights = 0.0
    for items in learner.validation_items:
        batch = learner.collate_validation(items)
        inputs = (batch.text_ids, batch.text_lengths, batch.identity, batch.style, batch.patches, batch.patch_lengths)
        with learner.autocast():
            chances = guided_chances(learner.modules["teacher"], 3.0, SPECIAL, *inputs)
        weight = int(batch.patch_lengths.sum())
        logs = [level.clamp_min(1e-30).log() for level in chances]
        sums += weight * float(distillation_loss(logs, chances, (1.0, 1.0, 1.0)))
        weights += weight
    return sums / weights


def test_a_resumed_pupil_keeps_its_teacher(base, tmp_path):
    learner = pupil(base)
    learner.train_step(0)
    save(learner, tmp_path / "run", 1)
    other = task(config(learnt_guidance=3.0, optimizer={"learning_rate": 3e-3, "warmup_steps": 2}))
    assert restore(other, tmp_path / "run") == 1
    assert float(learner.train_step(1)["distilled"]) == float(other.train_step(1)["distilled"])


def test_without_anybody_to_learn_guidance_from_there_is_nothing_to_train(tmp_path):
    with pytest.raises(ConfigError, match="--from RUN"):
        open_run(tmp_path / "new", config(learnt_guidance=2.0), CORPUS)


def test_the_pupil_is_a_model_like_any_other(base, tmp_path):
    learner = pupil(base)
    open_run(tmp_path / "run", learner.config, CORPUS, base)
    save(learner, tmp_path / "run", 1)
    for name, value in trained_model(tmp_path / "run").state_dict().items():
        assert torch.equal(value, learner.average.state_dict()[name])
