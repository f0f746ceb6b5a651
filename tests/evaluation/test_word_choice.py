"""The closed-response word test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.evaluation.metrics import sphinx, word_choice
from marstts.evaluation.metrics.word_choice import WordChoices, WordChoiceTest, near_homophones

SENTENCE = ["he", "might", "even", "have", "been", "made", "amiable", "himself"]


@pytest.fixture(scope="module")
def choices() -> WordChoiceTest:
    return WordChoiceTest()


@pytest.mark.parametrize("word", ["mouse", "printing", "made", "never"])
def test_near_homophones_differ_in_exactly_one_phone(word: str):
    phones = sphinx.dictionary()[word]
    near = near_homophones(word)
    assert 1 <= len(near) <= 4 and len(set(near)) == len(near)
    for other in near:
        theirs = sphinx.dictionary()[other]
        assert len(theirs) == len(phones)
        assert sum(a != b for a, b in zip(phones, theirs, strict=True)) == 1


def test_short_and_unknown_words_have_no_near_homophones():
    assert near_homophones("a") == near_homophones("he") == near_homophones("zyzzyvaflorb") == ()


def test_vocabulary_holds_ordinary_words_alone():
    words, _ = word_choice.vocabulary()
    assert 40_000 < len(words) < 50_000
    assert {"house", "printing"} <= set(words)
    assert not {"aaronson", "zywicki"} & set(words)


def test_count_right_looks_only_at_slots_with_a_choice():
    slots = [["he"], ["made", "maid", "mode"], ["mouse", "house"]]
    assert word_choice.count_right(slots, ["he", "made", "mouse"]) == 2
    assert word_choice.count_right(slots, ["he", "mode", "mouse"]) == 1
    assert word_choice.count_right(slots, ["he", "made"]) == 0
    assert word_choice.count_right(slots, []) == 0


def test_real_speech_is_chosen_rightly_and_other_words_are_not(choices: WordChoiceTest, amiable_pcm: bytes):
    said = choices.score(amiable_pcm, SENTENCE)
    assert said.choices >= 3 and said.right >= said.choices - 1
    other = choices.score(amiable_pcm, ["printing", "surpassed", "nothing", "under", "yellow", "houses"])
    assert other.right <= other.choices // 2


def test_noise_without_speech_scores_nothing(choices: WordChoiceTest):
    noise = np.random.default_rng(0).standard_normal(16000).astype(np.float32)
    score = choices.score(sphinx.prepare(Waveform(noise, 16000)), SENTENCE)
    assert score.right == 0 and score.choices > 0


def test_words_nobody_can_pronounce_are_skipped_and_counted(
    choices: WordChoiceTest, amiable_pcm: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sphinx, "pronounce_by_flite", lambda word: None)
    sphinx.pronounce.cache_clear()
    known = choices.score(amiable_pcm, SENTENCE)
    assert choices.score(amiable_pcm, ["zyzzyvaflorb", *SENTENCE, "qqxq"]) == replace(known, skipped=2)
    assert choices.score(amiable_pcm, ["zyzzyvaflorb"]) == WordChoices(0, 0, skipped=1)
    sphinx.pronounce.cache_clear()
