"""Words that a take leaves out: suspected by attention, confirmed by what patches gain when a word is hidden."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from test_attention_path import places_of, steps_at

from marstts.synthesis.attention_path import search_path
from marstts.synthesis.flaws import FlawKind, find_flaws
from marstts.synthesis.omissions import HiddenGains, OmissionCheck, word_tokens

SENTENCE = "Nobody, he said, came."
SOUND = [0, 1, 1, 1, 2, 3, 4, 4, 6, 6, 8]
"""Places: 1 Nobody, 2 the comma, 3 he, 4 said, 5 a comma, 6 came, 7 a stop, 8 the end."""
THIN = [0, 1, 1, 1, 1, 1, 1, 2, 3, 4, 6, 6, 6, 8]
"""Much is said of the first word, little of the fourth."""


class Engine:
    """Answers which words are needed, and remembers what it was asked."""

    def __init__(self, unneeded: Sequence[int]) -> None:
        self.unneeded, self.asked = unneeded, []

    def __call__(self, words: Sequence[int], span: tuple[int, int]) -> list[float]:
        self.asked.append((list(words), span))
        return [4.0 if word in self.unneeded else -9.0 for word in words]


def skipped(visited: list[int], gains: HiddenGains | None, **options) -> list[str]:
    search = search_path(places_of(SENTENCE), steps_at(places_of(SENTENCE), visited, sharpness=0.97))
    flaws = find_flaws(search, SENTENCE, 0.1, gains=gains, **options)
    return [flaw.word for flaw in flaws if flaw.kind is FlawKind.SKIPPED]


def test_a_suspected_word_is_a_flaw_only_if_patches_do_not_need_it():
    assert skipped(THIN, Engine(unneeded=[4])) == ["said"]
    assert skipped(THIN, Engine(unneeded=[])) == []


def test_neighbors_before_the_thinnest_place_are_suspected_too():
    engine = Engine(unneeded=[3])
    assert skipped(THIN, engine) == ["he"]
    [(words, (first, last))] = engine.asked
    assert words[-1] in (4, 6) and len(words) == 3
    assert 1 <= first < last <= len(THIN)


def test_a_take_with_enough_attention_everywhere_asks_nothing():
    engine = Engine(unneeded=[1, 3, 4, 6])
    assert skipped([0, 1, 1, 1, 1, 2, 2, 3, 4, 4, 4, 5, 5, 6, 6, 6, 7, 8], engine) == []
    assert engine.asked == []


def test_the_thorough_check_asks_about_every_word():
    engine = Engine(unneeded=[1, 6])
    assert skipped(SOUND, engine, check=OmissionCheck.ALL_WORDS) == ["Nobody", "came"]
    assert [words for words, _ in engine.asked] == [[1], [3], [4], [6]]


def test_the_tokens_of_a_word_begin_with_the_space_before_it():
    places = places_of(SENTENCE)  # two marks in front, then a token for each character
    assert word_tokens(places, 1) == (2, 8)
    assert word_tokens(places, 3) == (9, 12)


@pytest.mark.parametrize("check", list(OmissionCheck))
def test_a_take_that_a_limit_ended_is_not_asked_about(check):
    engine = Engine(unneeded=[4])
    search = search_path(places_of(SENTENCE), steps_at(places_of(SENTENCE), THIN[:6], sharpness=0.97))
    assert find_flaws(search, SENTENCE, 0.1, has_ended=False, gains=engine, check=check) == ()
    assert engine.asked == [] and np.isfinite(search.scores).all()
