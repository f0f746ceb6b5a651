"""A model of letters teaches one that reads phones, too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toy_training import CORPUS, TOKENIZER, config, task

from marstts.text.phones import CHARACTERS, FALLING, PAIR_LETTERS, PAIR_TOKENS, PHONE_TOKENS, RISING, letter_with_phone
from marstts_lab.training.loop import LoopConfig, run
from marstts_lab.training.loss import values
from marstts_lab.training.mars6.phone_embeddings import train_phones_faster
from marstts_lab.training.mars6.run_folder import init_from, open_run, trained_model
from marstts_lab.training.mars6.task import PretrainTask

PHONES = {"letters_probability": 0.2, "phones_probability": 0.4, "word_probability": 0.5}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained a little, on letters."""
    folder = tmp_path_factory.mktemp("runs") / "base"
    settings = config(loop={"steps": 12, "validate_every": 100})
    open_run(folder, settings, CORPUS)
    run(task(settings), settings.loop, folder)
    return folder


def student(
    base: Path, *, phone_embedding_lr_scale: float = 1.0, graphones: float = 0.0, **distillation: object
) -> PretrainTask:
    """A training of the model with phones, which begins with the weights of letters."""
    tokenizer = TOKENIZER.with_special_tokens([*PHONE_TOKENS, *(PAIR_TOKENS if graphones else ())])
    settings = config(
        model={"text_vocab_size": tokenizer.vocab_size},
        batching={"phones": {**PHONES, "graphone_probability": graphones}},
        letters_distillation=distillation,
        phone_embedding_lr_scale=phone_embedding_lr_scale,
        precision="fp32",
    )
    learner = PretrainTask(settings, CORPUS, tokenizer)
    init_from(learner, base)
    return learner


def test_new_phones_begin_as_the_letters_that_they_are_written_with(base: Path) -> None:
    learner, before = student(base), trained_model(base).encoder.text_embedding.weight
    rows, ids = learner.model.encoder.text_embedding.weight, learner.tokenizer.special_tokens
    torch.testing.assert_close(rows[: len(before)], before)
    ratios = torch.nn.functional.cosine_similarity(rows[ids[CHARACTERS["B"]]], before, dim=1)
    assert int(ratios.argmax()) == learner.tokenizer.encode("b")[0]
    for mark, character in ((RISING, "?"), (FALLING, ".")):
        ratios = torch.nn.functional.cosine_similarity(rows[ids[mark]], before, dim=1)
        assert int(ratios.argmax()) == learner.tokenizer.encode(character)[0]


def test_letters_with_phones_begin_as_the_letters(base: Path) -> None:
    learner, before = student(base, graphones=1.0), trained_model(base).encoder.text_embedding.weight
    rows, ids = learner.model.encoder.text_embedding.weight, learner.tokenizer.special_tokens
    for letter, phone in (("b", "B"), ("e", None), ("'", "S")):
        expected = before[learner.tokenizer.encode(letter)[0]]
        torch.testing.assert_close(rows[ids[letter_with_phone(letter, phone)]], expected)


def test_a_phone_moves_all_letters_that_it_is_read_with_equally(base: Path) -> None:
    learner = student(base, graphones=0.7, phone_embedding_lr_scale=20.0)
    before = learner.model.encoder.text_embedding.weight.detach().clone()
    for step in range(4):
        learner.train_step(step)
    moved = (learner.model.encoder.text_embedding.weight.detach() - before)[-len(PAIR_TOKENS) :]
    by_letter = moved.view(len(PAIR_LETTERS), -1, moved.shape[1])
    assert by_letter[0].any(dim=1).sum() > 3
    torch.testing.assert_close(by_letter, by_letter[:1].expand_as(by_letter), atol=1e-6, rtol=0)
    assert not (learner.model.encoder.text_embedding.weight.detach() - before)[: TOKENIZER.vocab_size].any()


def test_of_a_model_of_letters_with_phones_the_marks_of_intonation_may_learn_alone(base: Path) -> None:
    learner = student(base, graphones=0.7)
    optimizer = torch.optim.AdamW(learner.model.parameters())
    train_phones_faster(learner.model, optimizer, 20.0, learner.tokenizer, alone=True)
    weight = learner.model.encoder.text_embedding.weight
    (weight**2).sum().backward()
    assert weight.grad is not None
    learnt = weight.grad.any(dim=1).nonzero()[:, 0].tolist()
    assert set(learnt) == {learner.tokenizer.special_tokens[mark] for mark in (RISING, FALLING)}


def test_the_teacher_reads_letters_and_the_student_phones(base: Path) -> None:
    learner = student(base)
    first_phone = learner.tokenizer.vocab_size - len(PHONE_TOKENS)
    batches = [learner.training_batch(number) for number in range(6)]
    assert any((batch.text_ids >= first_phone).any() for batch in batches)
    assert not any((batch.letters["ids"] >= first_phone).any() for batch in batches)
    assert all(batch.letters["is_distilled"].all() for batch in batches)


def test_the_targets_are_the_teachers_distribution_over_the_same_codes(base: Path) -> None:
    learner, teacher = student(base), trained_model(base)
    learner.model.encoder.text_embedding.weight.data[-len(PHONE_TOKENS) :] += 0.5  # so that phones and letters differ
    batch = learner.training_batch(0)
    found = values(learner.losses(learner.model, batch, ()).losses)["distill_loss"]
    with torch.no_grad():
        taught = teacher(batch.letters["ids"], batch.letters["lengths"], *batch.model_inputs()[2:]).logits
        predicted = learner.model(*batch.model_inputs()).logits
    levels = [
        -(target.softmax(dim=-1) * scores.log_softmax(dim=-1)).sum(dim=-1).mean()
        for target, scores in zip(taught, predicted, strict=True)
    ]
    torch.testing.assert_close(found, torch.stack(levels).mean(), atol=1e-5, rtol=1e-5)


def test_recordings_are_the_targets_where_the_teacher_misreads_texts(base: Path) -> None:
    learner = student(base, not_distilled=("s",))
    batch = learner.training_batch(0)
    assert not batch.letters["is_distilled"].any()
    scores = values(learner.losses(learner.model, batch, ()).losses)
    torch.testing.assert_close(scores["distill_loss"], scores["loss"], atol=1e-5, rtol=1e-5)


def test_hidden_states_are_compared_with_those_of_the_teacher_layer_by_layer(base: Path) -> None:
    learner, teacher = student(base, hidden_state_weight=2.0), trained_model(base)
    batch = learner.training_batch(0)
    found = values(learner.losses(learner.model.eval(), batch, ()).losses)["hidden_state_loss"]
    with torch.no_grad():
        taught = teacher(batch.letters["ids"], batch.letters["lengths"], *batch.model_inputs()[2:]).hidden_states
        ours = learner.model(*batch.model_inputs()).hidden_states
    layers = []
    for layer, target in zip(ours, taught, strict=True):
        rows = [(layer[row, :length], target[row, :length]) for row, length in enumerate(batch.patch_lengths.tolist())]
        targets = torch.cat([row for _, row in rows])
        error = torch.cat([one - other for one, other in rows]).square().mean()
        layers.append(error / (targets - targets.mean(dim=0)).square().mean())
    torch.testing.assert_close(found, 2.0 * torch.stack(layers).mean(), atol=1e-5, rtol=1e-4)


def test_hidden_states_of_recordings_that_are_not_distilled_have_no_loss(base: Path) -> None:
    learner = student(base, hidden_state_weight=2.0, not_distilled=("s",))
    scores = values(learner.losses(learner.model, learner.training_batch(0), ()).losses)
    assert scores["hidden_state_loss"] == 0


def test_a_ratio_of_the_patches_is_scored_in_training(base: Path) -> None:
    learner = student(base, scored_ratio=0.3)
    batches = [learner.training_batch(number) for number in range(8)]
    scored = [learner.scored_patches(batch, number) for number, batch in enumerate(batches)]
    assert all(mask[:, 0].all() for mask in scored)
    assert 0.25 < float(torch.cat([mask.flatten() for mask in scored]).float().mean()) < 0.45
    assert torch.equal(scored[3], learner.scored_patches(batches[3], 3))
    assert not torch.equal(scored[0][:, 1:4], scored[1][:, 1:4])


def test_all_patches_of_recordings_that_are_not_distilled_are_scored(base: Path) -> None:
    learner = student(base, scored_ratio=0.3, not_distilled=("s0",))
    for number in range(8):
        batch = learner.training_batch(number)
        scored, is_distilled = learner.scored_patches(batch, number), batch.letters["is_distilled"]
        assert scored[~is_distilled].all()
        assert not is_distilled.any() or not scored[is_distilled].all()


def test_phones_learn_faster_and_letters_stay(base: Path) -> None:
    steps = {}
    for scale in (1.0, 20.0):
        learner = student(base, phone_embedding_lr_scale=scale)
        before = learner.model.encoder.text_embedding.weight.detach().clone()
        learner.train_step(0)
        steps[scale] = (learner.model.encoder.text_embedding.weight.detach() - before).abs()
    letters = len(steps[20.0]) - len(PHONE_TOKENS)
    assert not steps[20.0][:letters].any()
    assert steps[1.0][:letters].any()
    ratio = steps[20.0][letters:].max() / steps[1.0][letters:].max()
    assert 15 < ratio < 25


def test_a_resumed_run_with_faster_phones_equals_an_uninterrupted_one(base: Path, tmp_path: Path) -> None:
    changes = {"phone_embedding_lr_scale": 20.0, "hidden_state_weight": 1.0, "scored_ratio": 0.5}
    loop = LoopConfig(steps=4, validate_every=4, log_every=2)
    whole = student(base, **changes)
    run(whole, loop, tmp_path / "whole")
    run(student(base, **changes), loop.model_copy(update={"steps": 2}), tmp_path / "parts")
    second = student(base, **changes)
    run(second, loop, tmp_path / "parts")
    torch.testing.assert_close(second.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


def test_the_encoder_may_learn_alone(base: Path) -> None:
    learner = student(
        base, graphones=0.7, train_local_decoder=False, train_global_decoder=False, hidden_state_weight=1.0
    )
    learner.train_step(0)
    learner.train_step(1)
    before, after = trained_model(base).state_dict(), learner.model.state_dict()
    size = len(before["encoder.text_embedding.weight"])
    after["encoder.text_embedding.weight"] = after["encoder.text_embedding.weight"][:size]
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all(name.startswith("encoder.") for name in changed)


def test_the_local_decoder_may_stay_that_of_the_teacher(base: Path) -> None:
    learner = student(base, train_local_decoder=False, hidden_state_weight=1.0)
    learner.train_step(0)
    learner.train_step(1)
    before, after = trained_model(base).state_dict(), learner.model.state_dict()
    changed = {name for name in before if name in after and not torch.equal(before[name], after[name])}
    assert not any(name.startswith("local_decoder.") for name in changed)
    assert {"encoder.", "global_decoder."} <= {name.partition(".")[0] + "." for name in changed}
