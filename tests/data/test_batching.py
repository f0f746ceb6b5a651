import dataclasses

import numpy as np
import pytest

from marstts.codec.base import CodecSpec
from marstts.data.batching import Batcher, BatchingConfig, cut_evenly, padding_share, row_length
from marstts.data.manifest import Utterance
from marstts.data.shards import Corpus
from marstts.errors import DataError

SPEC = CodecSpec(name="t", sample_rate=8000, codebook_size=19, hop_lengths=(800, 400, 200))


def make_corpus(count: int, seed: int = 0, speakers: int = 7) -> Corpus:
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(np.log(30), 0.5, count), 5, 200).astype(np.int64)
    return Corpus(
        codec=SPEC,
        identity_encoder="who",
        style_encoder="how",
        utterances=tuple(
            Utterance(
                id=f"u{i:05d}",
                audio="a.flac",
                text=f"Utterance Number {i}.",
                speaker=f"s{i % speakers}",
                style="whisper" if i % 3 else "regular",
                seconds=float(lengths[i]) / 10,
                source_rate=8000,
                split="train",
                licence="CC0",
            )
            for i in range(count)
        ),
        codes=tuple(np.zeros(int(lengths.sum()) * n, np.uint16) for n in SPEC.patch_layout),
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        identity=np.zeros((count, 3), np.float16),
        style=np.zeros((count, 5), np.float16),
    )


CORPUS = make_corpus(1500)


def epoch(batcher: Batcher, number: int = 0):
    return [batcher.items(number * batcher.batches_per_epoch + i) for i in range(batcher.batches_per_epoch)]


def test_a_batch_depends_on_seed_and_step_alone():
    config = BatchingConfig(patches_per_batch=400)
    one, other = Batcher(CORPUS, config, seed=3), Batcher(CORPUS, config, seed=3)
    forward = [one.items(step) for step in range(300)]
    backward = [other.items(step) for step in reversed(range(300))]
    assert forward == backward[::-1]
    assert Batcher(CORPUS, config, seed=4).items(0) != one.items(0)


def test_every_utterance_is_spoken_once_per_epoch_and_epochs_differ():
    batcher = Batcher(CORPUS, BatchingConfig(patches_per_batch=400), seed=0)
    first, second = epoch(batcher, 0), epoch(batcher, 1)
    for batches in (first, second):
        spoken = [part for batch in batches for item in batch for part in item.parts]
        assert sorted(spoken) == list(range(len(CORPUS)))
    assert first != second


def test_batches_hold_equal_audio_and_little_padding():
    batcher = Batcher(CORPUS, BatchingConfig(patches_per_batch=1200, max_patches=300), seed=0)
    lengths = [[row_length(item.parts, batcher.lengths) for item in batch] for batch in epoch(batcher)]
    sizes = np.array([sum(rows) for rows in lengths])
    assert abs(sizes.mean() / 1200 - 1) < 0.05 and sizes.max() < 1200 + 300
    padding = np.array([padding_share(rows) * max(rows) * len(rows) for rows in lengths])
    assert padding.sum() / (padding.sum() + sizes.sum()) < 0.1


def read_aloud(count: int) -> Corpus:
    """Lengths as of segmented audiobooks beside short prompts: most of 10 to 16 s, a tail of a few seconds."""
    rng = np.random.default_rng(2)
    long, short = rng.normal(13, 3, count), rng.lognormal(np.log(4), 0.4, count)
    seconds = np.clip(np.where(rng.random(count) < 0.8, long, short), 1.0, 20.0)
    corpus = make_corpus(count)
    lengths = np.round(seconds * 12).astype(np.int64)
    return dataclasses.replace(corpus, offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))


@pytest.mark.parametrize("rows", [12, 96])
def test_batches_of_equally_many_rows_hold_little_padding(rows):
    batcher = Batcher(read_aloud(3000), BatchingConfig(rows_per_batch=rows, max_patches=300), seed=0)
    plan = epoch(batcher)
    assert all(abs(len(batch) - rows) <= 1 + rows // 24 for batch in plan) and len(plan) > 20
    spoken = sorted(part for batch in plan for item in batch for part in item.parts)
    assert spoken == list(range(3000))
    lengths = [[row_length(item.parts, batcher.lengths) for item in batch] for batch in plan]
    padded = sum(max(row) * len(row) for row in lengths)
    assert 1 - sum(map(sum, lengths)) / padded < 0.1


@pytest.mark.parametrize("longest", [2, 4])
def test_chains_are_of_one_speaker_and_style_as_long_and_as_many_as_asked_for(longest):
    config = BatchingConfig(patches_per_batch=800, chain_probability=0.3, longest_chain=longest, max_patches=700)
    batcher = Batcher(CORPUS, config, seed=0)
    items = [item for number in range(3) for batch in epoch(batcher, number) for item in batch]
    chains = [item for item in items if len(item.parts) > 1]
    assert abs(len(chains) / len(items) - 0.3) < 0.05
    assert {len(item.parts) for item in chains} == set(range(2, longest + 1))
    for item in chains:
        utterances = [CORPUS.utterances[part] for part in item.parts]
        assert len({(utterance.speaker, utterance.style) for utterance in utterances}) == 1
        assert len({utterance.id for utterance in utterances}) == len(utterances)


def test_chains_never_exceed_the_longest_allowed_row():
    batcher = Batcher(CORPUS, BatchingConfig(patches_per_batch=400, chain_probability=1.0, max_patches=90), seed=0)
    items = [item for batch in epoch(batcher) for item in batch]
    assert max(row_length(item.parts, batcher.lengths) for item in items) <= 90
    assert sum(len(item.parts) == 2 for item in items) > len(items) // 3
    assert batcher.num_left_out == int((CORPUS.num_patches + 1 > 90).sum()) > 0


@pytest.mark.parametrize("probability", [0.0, 0.6, 1.0])
def test_the_reference_is_another_utterance_of_the_speaker_as_often_as_asked_for(probability):
    config = BatchingConfig(patches_per_batch=400, other_reference_probability=probability)
    items = [item for batch in epoch(Batcher(CORPUS, config, seed=0)) for item in batch]
    others = 0
    for item in items:
        reference, spoken = CORPUS.utterances[item.reference], CORPUS.utterances[item.parts[0]]
        assert (reference.speaker, reference.style) == (spoken.speaker, spoken.style)
        assert item.reference not in item.parts[1:]
        others += item.reference != item.parts[0]
    assert abs(others / len(items) - probability) < 0.05


def test_a_speaker_with_one_utterance_is_its_own_reference():
    batcher = Batcher(make_corpus(5, speakers=5), BatchingConfig(other_reference_probability=1.0), seed=0)
    assert all(item.reference == item.parts[0] for item in batcher.items(0))


def test_spelling_varies_as_often_as_asked_for():
    plain = Batcher(CORPUS, BatchingConfig(lower_case_probability=0.0, no_final_punctuation_probability=0.0), seed=0)
    assert all(
        item.texts == tuple(CORPUS.utterances[part].text for part in item.parts)
        for batch in epoch(plain)
        for item in batch
    )
    bare = Batcher(CORPUS, BatchingConfig(lower_case_probability=1.0, no_final_punctuation_probability=1.0), seed=0)
    for item in bare.items(0):
        *before, last = item.texts
        assert last == CORPUS.utterances[item.parts[-1]].text.lower().rstrip(".")
        assert before == [CORPUS.utterances[part].text.lower() for part in item.parts[:-1]]


def test_options_do_not_disturb_one_another():
    quiet = Batcher(CORPUS, BatchingConfig(lower_case_probability=0.0), seed=0).items(5)
    loud = Batcher(CORPUS, BatchingConfig(lower_case_probability=1.0), seed=0).items(5)
    assert [(i.parts, i.reference) for i in quiet] == [(i.parts, i.reference) for i in loud]


def test_rows_are_cut_into_runs_that_cover_all_even_when_there_are_fewer_rows_than_runs():
    lengths = np.array([3, 4, 9, 9, 10, 30])
    runs = [list(range(6))[run] for run in cut_evenly(lengths, 3)]
    assert [row for run in runs for row in run] == list(range(6)) and all(runs)
    crowded = [list(range(2))[run] for run in cut_evenly(np.array([5, 100]), 7)]
    assert all(crowded) and {row for run in crowded for row in run} == {0, 1}


def test_a_corpus_of_over_long_utterances_is_refused():
    with pytest.raises(DataError, match="raise max_patches"):
        Batcher(CORPUS, BatchingConfig(max_patches=3), seed=0)


def test_a_share_of_the_rows_comes_without_words():
    config = BatchingConfig(patches_per_batch=400, chain_probability=0.3, wordless_probability=0.2)
    batcher = Batcher(CORPUS, config, seed=0)
    wordless, spoken = [], []
    for item in (item for items in epoch(batcher) for item in items):
        (spoken if all(item.texts) else wordless).append(item)
    assert 0.15 < len(wordless) / (len(wordless) + len(spoken)) < 0.25
    assert {item.texts for item in wordless} == {("",)} and {len(item.parts) for item in wordless} == {1, 2}
    assert all(len(item.texts) == len(item.parts) for item in spoken)
