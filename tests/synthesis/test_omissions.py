"""Words that a take leaves out: suspected by odds, confirmed by what patches gain when a word is hidden."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from test_attention_path import places_of, steps_at

from marstts.synthesis.attention_path import search_path
from marstts.synthesis.flaws import FlawKind, find_flaws
from marstts.synthesis.omissions import HiddenGain, OmissionCheck, word_tokens

SENTENCE = "Nobody, he said, came."
SOUND = [0, 1, 1, 1, 2, 3, 4, 4, 6, 6, 8]
"""Places: 1 Nobody, 2 the comma, 3 he, 4 said, 5 a comma, 6 came, 7 a stop, 8 the end."""
THIN = [0, 1, 1, 1, 1, 1, 1, 2, 3, 4, 6, 6, 6, 8]
"""Much is said of the first word, little of the fourth."""


class Engine:
    """Answers which words are needed, and remembers what it was asked."""

    def __init__(self, unneeded: Sequence[int]) -> None:
        self.unneeded, self.asked = unneeded, []

    def __call__(self, word: int, span: tuple[int, int]) -> float:
        self.asked.append((word, span))
        return 4.0 if word in self.unneeded else -9.0


def skipped(visited: list[int], gain: HiddenGain | None, odds: Sequence[float] | None = None, **options) -> list[str]:
    search = search_path(places_of(SENTENCE), steps_at(places_of(SENTENCE), visited, sharpness=0.97))
    suspicions = None if odds is None else lambda: np.array(odds)
    flaws = find_flaws(search, SENTENCE, 0.1, gain=gain, suspicions=suspicions, **options)
    return [flaw.word for flaw in flaws if flaw.kind is FlawKind.SKIPPED]


def test_a_suspected_word_is_a_flaw_only_if_patches_do_not_need_it():
    odds = [-9.0, -1.0, 2.0, -9.0]  # of four words
    assert skipped(THIN, Engine(unneeded=[4]), odds) == ["said"]
    assert skipped(THIN, Engine(unneeded=[]), odds) == []


def test_the_most_suspicious_word_is_asked_about_first_and_the_first_that_is_confirmed_ends_the_search():
    engine = Engine(unneeded=[3])
    assert skipped(THIN, engine, [-1.2, 0.5, -1.0, 3.0]) == ["he"]
    assert [word for word, _ in engine.asked] == [6, 3]
    assert all(1 <= first < last <= len(THIN) for _, (first, last) in engine.asked)


def test_words_that_are_not_suspicious_are_not_asked_about():
    engine = Engine(unneeded=[1, 3, 4, 6])
    assert skipped(SOUND, engine, [-3.0, -1.6, -9.0, -4.0]) == []
    assert engine.asked == []


def test_suspicion_alone_decides_where_no_engine_can_tell():
    assert skipped(SOUND, None, [-9.0, -1.0, 4.0, -9.0]) == ["said"]
    assert skipped(SOUND, None) == [] == skipped(SOUND, Engine(unneeded=[4]))


def test_the_thorough_check_asks_about_every_word():
    engine = Engine(unneeded=[1, 6])
    assert skipped(SOUND, engine, check=OmissionCheck.ALL_WORDS) == ["Nobody", "came"]
    assert [word for word, _ in engine.asked] == [1, 3, 4, 6]


def test_the_tokens_of_a_word_begin_with_the_space_before_it():
    places = places_of(SENTENCE)  # two marks in front, then a token for each character
    assert word_tokens(places, 1) == (2, 8)
    assert word_tokens(places, 3) == (9, 12)


@pytest.mark.parametrize("check", list(OmissionCheck))
def test_a_take_that_a_limit_ended_is_not_asked_about(check):
    engine = Engine(unneeded=[4])
    search = search_path(places_of(SENTENCE), steps_at(places_of(SENTENCE), THIN[:6], sharpness=0.97))
    assert (
        find_flaws(search, SENTENCE, 0.1, has_ended=False, gain=engine, suspicions=lambda: np.full(4, 9.0), check=check)
        == ()
    )
    assert engine.asked == [] and np.isfinite(search.scores).all()
