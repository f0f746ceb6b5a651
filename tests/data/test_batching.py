import dataclasses

import numpy as np
import pytest

from marstts.codec.base import CodecSpec
from marstts.errors import DataError
from marstts_lab.data.batching import BatchingConfig, BatchSampler, cut_evenly, row_length
from marstts_lab.data.corpus import Corpus
from marstts_lab.data.manifest import Utterance
from marstts_lab.data.shards import EncoderInfo
from marstts_lab.data.utterance_table import UtteranceTable

pytestmark = pytest.mark.slow

SPEC = CodecSpec(name="t", sample_rate=8000, codebook_size=19, hop_lengths=(800, 400, 200))


def make_corpus(count: int, seed: int = 0, speakers: int = 7) -> Corpus:
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(np.log(30), 0.5, count), 5, 200).astype(np.int64)
    return Corpus(
        codec=SPEC,
        encoders={"identity": EncoderInfo("who", 3), "style": EncoderInfo("how", 5)},
        utterances=UtteranceTable(
            Utterance(
                id=f"u{i:05d}",
                audio="a.flac",
                text=f"Utterance Number {i}.",
                speaker=f"s{i % speakers}",
                style="whisper" if i % 3 else "regular",
                seconds=float(lengths[i]) / 10,
                source_rate=8000,
                split="train",
                license="CC0",
            )
            for i in range(count)
        ),
        codes=tuple(np.zeros(int(lengths.sum()) * n, np.uint16) for n in SPEC.patch_layout),
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        embeddings={"identity": np.zeros((count, 3), np.float16), "style": np.zeros((count, 5), np.float16)},
    )


CORPUS = make_corpus(1500)


def epoch(sampler: BatchSampler, number: int = 0):
    return [sampler.items(number * sampler.batches_per_epoch + i) for i in range(sampler.batches_per_epoch)]


def test_a_batch_depends_on_seed_and_step_alone():
    config = BatchingConfig(patches_per_batch=400)
    one, other = BatchSampler(CORPUS, config, seed=3), BatchSampler(CORPUS, config, seed=3)
    forward = [one.items(step) for step in range(300)]
    backward = [other.items(step) for step in reversed(range(300))]
    assert forward == backward[::-1]
    assert BatchSampler(CORPUS, config, seed=4).items(0) != one.items(0)


def test_every_utterance_occurs_once_per_epoch_and_epochs_differ():
    sampler = BatchSampler(CORPUS, BatchingConfig(patches_per_batch=400), seed=0)
    first, second = epoch(sampler, 0), epoch(sampler, 1)
    for batches in (first, second):
        spoken = [part for batch in batches for item in batch for part in item.parts]
        assert sorted(spoken) == list(range(len(CORPUS)))
    assert first != second


def test_batches_hold_equal_audio_and_little_padding():
    sampler = BatchSampler(CORPUS, BatchingConfig(patches_per_batch=1200, max_patches=300), seed=0)
    lengths = [[row_length(item.parts, sampler.lengths) for item in batch] for batch in epoch(sampler)]
    sizes = np.array([sum(rows) for rows in lengths])
    assert abs(sizes.mean() / 1200 - 1) < 0.05 and sizes.max() < 1200 + 300
    padding = np.array([max(rows) * len(rows) - sum(rows) for rows in lengths])
    assert padding.sum() / (padding.sum() + sizes.sum()) < 0.1


def audiobooks(count: int) -> Corpus:
    """Lengths as of segmented audiobooks and short prompts: most of 10 to 16 s, a tail of a few seconds."""
    rng = np.random.default_rng(2)
    long, short = rng.normal(13, 3, count), rng.lognormal(np.log(4), 0.4, count)
    seconds = np.clip(np.where(rng.random(count) < 0.8, long, short), 1.0, 20.0)
    corpus = make_corpus(count)
    lengths = np.round(seconds * 12).astype(np.int64)
    return dataclasses.replace(corpus, offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))


@pytest.mark.parametrize("rows", [12, 96])
def test_batches_of_equally_many_rows_hold_little_padding(rows):
    sampler = BatchSampler(audiobooks(3000), BatchingConfig(batch_size=rows, max_patches=300), seed=0)
    plan = epoch(sampler)
    assert all(abs(len(batch) - rows) <= 1 + rows // 24 for batch in plan) and len(plan) > 20
    spoken = sorted(part for batch in plan for item in batch for part in item.parts)
    assert spoken == list(range(3000))
    lengths = [[row_length(item.parts, sampler.lengths) for item in batch] for batch in plan]
    padded = sum(max(row) * len(row) for row in lengths)
    assert 1 - sum(map(sum, lengths)) / padded < 0.1


@pytest.mark.parametrize("longest", [2, 4])
def test_concatenated_utterances_are_of_one_speaker_and_style_in_the_configured_numbers(longest):
    config = BatchingConfig(patches_per_batch=800, concat_probability=0.3, max_concat=longest, max_patches=700)
    sampler = BatchSampler(CORPUS, config, seed=0)
    items = [item for number in range(3) for batch in epoch(sampler, number) for item in batch]
    joined = [item for item in items if len(item.parts) > 1]
    assert abs(len(joined) / len(items) - 0.3) < 0.05
    assert {len(item.parts) for item in joined} == set(range(2, longest + 1))
    for item in joined:
        utterances = [CORPUS.utterances[part] for part in item.parts]
        assert len({(utterance.speaker, utterance.style) for utterance in utterances}) == 1
        assert len({utterance.id for utterance in utterances}) == len(utterances)


def test_concatenated_utterances_never_exceed_max_patches():
    sampler = BatchSampler(
        CORPUS, BatchingConfig(patches_per_batch=400, concat_probability=1.0, max_patches=90), seed=0
    )
    items = [item for batch in epoch(sampler) for item in batch]
    assert max(row_length(item.parts, sampler.lengths) for item in items) <= 90
    assert sum(len(item.parts) == 2 for item in items) > len(items) // 3
    assert len(CORPUS) - len(sampler.usable) == int((CORPUS.num_patches + 1 > 90).sum()) > 0


@pytest.mark.parametrize("probability", [0.0, 0.6, 1.0])
def test_the_reference_is_another_utterance_of_the_speaker_with_the_configured_probability(probability):
    config = BatchingConfig(patches_per_batch=400, cross_reference_probability=probability)
    items = [item for batch in epoch(BatchSampler(CORPUS, config, seed=0)) for item in batch]
    others = 0
    for item in items:
        reference, spoken = CORPUS.utterances[item.reference], CORPUS.utterances[item.parts[0]]
        assert (reference.speaker, reference.style) == (spoken.speaker, spoken.style)
        assert item.reference not in item.parts[1:]
        others += item.reference != item.parts[0]
    assert abs(others / len(items) - probability) < 0.05


def test_spelling_varies_with_the_configured_probabilities():
    plain = BatchSampler(
        CORPUS, BatchingConfig(lower_case_probability=0.0, strip_final_punctuation_probability=0.0), seed=0
    )
    assert all(
        item.texts == tuple(CORPUS.utterances[part].text for part in item.parts)
        for batch in epoch(plain)
        for item in batch
    )
    bare = BatchSampler(
        CORPUS, BatchingConfig(lower_case_probability=1.0, strip_final_punctuation_probability=1.0), seed=0
    )
    for item in bare.items(0):
        *before, last = item.texts
        assert last == CORPUS.utterances[item.parts[-1]].text.lower().rstrip(".")
        assert before == [CORPUS.utterances[part].text.lower() for part in item.parts[:-1]]


def test_rows_are_cut_into_runs_that_cover_all_even_when_there_are_fewer_rows_than_runs():
    lengths = np.array([3, 4, 9, 9, 10, 30])
    runs = [list(range(6))[run] for run in cut_evenly(lengths, 3)]
    assert [row for run in runs for row in run] == list(range(6)) and all(runs)
    crowded = [list(range(2))[run] for run in cut_evenly(np.array([5, 100]), 7)]
    assert all(crowded) and {row for run in crowded for row in run} == {0, 1}


def test_a_corpus_of_over_long_utterances_is_refused():
    with pytest.raises(DataError, match="raise max_patches"):
        BatchSampler(CORPUS, BatchingConfig(max_patches=3), seed=0)


def test_text_dropout_leaves_a_fraction_of_the_rows_unconditional():
    config = BatchingConfig(patches_per_batch=400, concat_probability=0.3, text_dropout=0.2)
    sampler = BatchSampler(CORPUS, config, seed=0)
    unconditional, conditional = [], []
    for item in (item for items in epoch(sampler) for item in items):
        (conditional if all(item.texts) else unconditional).append(item)
    assert 0.15 < len(unconditional) / (len(unconditional) + len(conditional)) < 0.25
    assert {item.texts for item in unconditional} == {("",)} and {len(item.parts) for item in unconditional} == {1, 2}
    assert all(len(item.texts) == len(item.parts) for item in conditional)
