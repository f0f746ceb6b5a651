"""A model of letters teaches one that reads phones, too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toy_training import CORPUS, TOKENIZER, config, task

from marstts.text.phones import CHARACTERS, PHONE_TOKENS
from marstts.training.loop import run
from marstts.training.mars6.run_folder import init_from, open_run, trained_model
from marstts.training.mars6.task import PretrainTask

PHONES = {"letters_probability": 0.2, "phones_probability": 0.4, "word_probability": 0.5}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained a little, on letters."""
    folder = tmp_path_factory.mktemp("runs") / "base"
    settings = config(loop={"steps": 12, "validate_every": 100})
    open_run(folder, settings, CORPUS)
    run(task(settings), settings.loop, folder)
    return folder


def student(base: Path, *, not_distilled: tuple[str, ...] = ()) -> PretrainTask:
    """A training of the model with phones, which begins with the weights of letters."""
    tokenizer = TOKENIZER.with_special_tokens(PHONE_TOKENS)
    settings = config(
        model={"text_vocab_size": tokenizer.vocab_size},
        batching={"phones": PHONES},
        letters_distillation={"not_distilled": not_distilled},
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
    found = learner.losses(learner.model, batch, ()).distill_loss
    with torch.no_grad():
        taught = teacher(batch.letters["ids"], batch.letters["lengths"], *batch.model_inputs()[2:]).logits
        predicted = learner.model(*batch.model_inputs()).logits
    levels = [
        -(target.softmax(dim=-1) * scores.log_softmax(dim=-1)).sum(dim=-1).mean()
        for target, scores in zip(taught, predicted, strict=True)
    ]
    torch.testing.assert_close(found.detach(), torch.stack(levels).mean(), atol=1e-5, rtol=1e-5)


def test_recordings_are_the_targets_where_the_teacher_misreads_texts(base: Path) -> None:
    learner = student(base, not_distilled=("s",))
    batch = learner.training_batch(0)
    assert not batch.letters["is_distilled"].any()
    output = learner.losses(learner.model, batch, ())
    torch.testing.assert_close(output.distill_loss, output.loss.total, atol=1e-5, rtol=1e-5)
