"""Batches of MARS6: texts, patches, embeddings, and noise on input tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from toy_training import CONFIG, CORPUS, TOKENIZER, collator, config, task

from marstts.mars6.config import Mars6Config
from marstts.mars6.prompt import prompt_string
from marstts_lab.data.batching import BatchSampler, TrainingItem
from marstts_lab.training.mars6.batches import corrupt_tokens


def test_a_batch_holds_texts_patches_and_the_references_embeddings():
    batch = collator()([TrainingItem((1,), 4, ("Two one.",)), TrainingItem((2, 5), 8, ("One.", "Four two."))])
    first = TOKENIZER.encode(prompt_string("Two one.", quality=16000))
    second = TOKENIZER.encode(prompt_string("One. Four two.", quality=48000))
    assert batch.text_lengths.tolist() == [len(first), len(second)]
    assert batch.text_ids[0, : len(first)].tolist() == first and batch.text_ids[1, : len(second)].tolist() == second
    np.testing.assert_array_equal(
        batch.embeddings["identity"].numpy(), CORPUS.embeddings["identity"][[4, 8]].astype(np.float32)
    )
    np.testing.assert_array_equal(
        batch.embeddings["style"].numpy(), CORPUS.embeddings["style"][[4, 8]].astype(np.float32)
    )

    coarse, middle, fine = CORPUS.codes_of(1)
    eos = 3 * 16
    for t in range(len(coarse)):
        expected = [coarse[t], *(16 + middle[2 * t : 2 * t + 2]), *(32 + fine[4 * t : 4 * t + 4])]
        assert batch.patches[0, t].tolist() == expected
    length = len(coarse) + 1
    assert batch.patch_lengths[0] == length and batch.patches[0, length - 1].tolist() == [eos] * 7
    assert (batch.patches[0, length:] == -100).all()
    pair = CORPUS.num_patches[2] + CORPUS.num_patches[5]
    assert batch.patch_lengths[1] == pair + 1 and (batch.patches[1, :pair] < eos).all()


@pytest.mark.parametrize(
    ("parts", "texts"),
    [((2, 5), ("One two three.", "Four two.")), ((2, 4, 5), ("One two three.", "Three one.", "Four two."))],
)
def test_the_boundary_of_concatenated_utterances_is_where_the_last_begins(parts, texts):
    make = collator()
    chain = make([TrainingItem(parts, 2, texts)])
    patch, token = chain.boundaries[0].tolist()
    assert patch == sum(CORPUS.num_patches[part] for part in parts[:-1])
    text_ids = chain.text_ids[0, : int(chain.text_lengths[0]) - 1].tolist()
    assert TOKENIZER.decode(text_ids[token:]) == " Four two."
    assert " ".join(texts) in TOKENIZER.decode(text_ids)
    assert make([TrainingItem((2,), 2, ("One two three.",))]).boundaries.tolist() == [[0, 0]]


def test_the_quality_prefix_follows_the_true_sample_rate():
    make = collator()
    announced = [make.quality(TrainingItem(parts, parts[0], ("One.",))) for parts in ((0,), (1,), (2,), (1, 2))]
    assert announced == [8000, 16000, 48000, 16000]


def test_prefetching_does_not_change_batches():
    eager, ahead = task(config(prefetch=False)), task(config(prefetch=True))
    for step in (0, 1, 2, 7):
        one, other = eager.training_batch(step), ahead.training_batch(step)
        assert torch.equal(one.patches, other.patches) and torch.equal(one.text_ids, other.text_ids)


def test_input_token_noise_replaces_codes_by_codes_of_their_level_only():
    model = Mars6Config(**CONFIG["model"])
    batch = task(config()).training_batch(0)
    noisy = corrupt_tokens(batch.patches, 0.5, model, seed=0, number=3)
    changed = noisy != batch.patches
    codes = (batch.patches >= 0) & (batch.patches != model.eos)
    assert 0.3 < changed[codes].float().mean() < 0.6 and not changed[~codes].any()
    levels = torch.tensor(model.position_levels).expand_as(noisy)
    assert torch.equal((noisy // model.codebook_size)[codes], levels[codes])
    assert torch.equal(noisy, corrupt_tokens(batch.patches, 0.5, model, seed=0, number=3))


def test_batches_of_training_come_from_the_training_split_only():
    train = CORPUS.split("train")
    batcher = BatchSampler(train, config().batching, seed=0)
    spoken = {part for step in range(batcher.batches_per_epoch) for item in batcher.items(step) for part in item.parts}
    assert {train.utterances[part].split for part in spoken} == {"train"} and len(spoken) == 40
