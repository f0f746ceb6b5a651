"""The minimal-pair test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.metrics import sphinx
from marstts.metrics.sphinx import MinimalPairResult, MinimalPairTest, near_homophones

SENTENCE = ["he", "might", "even", "have", "been", "made", "amiable", "himself"]


@pytest.fixture(scope="module")
def word_test() -> MinimalPairTest:
    return MinimalPairTest()


@pytest.mark.slow
@pytest.mark.parametrize("word", ["mouse", "printing", "made", "never"])
def test_near_homophones_differ_in_exactly_one_phone(word: str):
    phones = sphinx.dictionary()[word]
    near = near_homophones(word)
    assert 1 <= len(near) <= 4 and len(set(near)) == len(near)
    for other in near:
        theirs = sphinx.dictionary()[other]
        assert len(theirs) == len(phones)
        assert sum(a != b for a, b in zip(phones, theirs, strict=True)) == 1


@pytest.mark.slow
def test_short_and_unknown_words_have_no_near_homophones():
    assert near_homophones("a") == near_homophones("he") == near_homophones("zyzzyvaflorb") == ()


@pytest.mark.slow
def test_vocabulary_has_only_common_words():
    words, _ = sphinx.vocabulary()
    assert 40_000 < len(words) < 50_000
    assert {"house", "printing"} <= set(words)
    assert not {"aaronson", "zywicki"} & set(words)


def test_count_correct_ignores_slots_without_alternatives():
    slots = [["he"], ["made", "maid", "mode"], ["mouse", "house"]]
    assert sphinx.count_correct(slots, ["he", "made", "mouse"]) == 2
    assert sphinx.count_correct(slots, ["he", "mode", "mouse"]) == 1
    assert sphinx.count_correct(slots, ["he", "made"]) == 0
    assert sphinx.count_correct(slots, []) == 0


@pytest.mark.slow
def test_words_of_human_speech_are_recognized_and_others_are_not(word_test: MinimalPairTest, amiable_pcm: bytes):
    score = word_test.score(amiable_pcm, SENTENCE)
    assert score.num_trials >= 3 and score.num_correct >= score.num_trials - 1
    other = word_test.score(amiable_pcm, ["printing", "surpassed", "nothing", "under", "yellow", "houses"])
    assert other.num_correct <= other.num_trials // 2


@pytest.mark.slow
def test_noise_without_speech_scores_nothing(word_test: MinimalPairTest):
    noise = np.random.default_rng(0).standard_normal(16000).astype(np.float32)
    score = word_test.score(sphinx.prepare(Waveform(noise, 16000)), SENTENCE)
    assert score.num_correct == 0 and score.num_trials > 0


@pytest.mark.slow
def test_words_without_a_pronunciation_are_skipped_and_counted(
    word_test: MinimalPairTest, amiable_pcm: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sphinx, "pronounce_by_flite", lambda word: None)
    sphinx.pronounce.cache_clear()
    known = word_test.score(amiable_pcm, SENTENCE)
    assert word_test.score(amiable_pcm, ["zyzzyvaflorb", *SENTENCE, "qqxq"]) == replace(known, skipped=2)
    assert word_test.score(amiable_pcm, ["zyzzyvaflorb"]) == MinimalPairResult(0, 0, skipped=1)
    sphinx.pronounce.cache_clear()
