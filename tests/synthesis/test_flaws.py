"""Flaws that are found in the path of a take, and in its tokens."""

from __future__ import annotations

import numpy as np
import pytest
from test_attention_path import places_of, steps_at

from marstts.synthesis.words.attention_path import search_path
from marstts.synthesis.words.flaws import FlawKind, find_flaws, repeated_patches

SENTENCE = "Nobody, he said, came."
SOUND = [0, 1, 1, 1, 2, 3, 4, 4, 6, 6, 8]
"""Places: 1 Nobody, 2 the comma, 3 he, 4 said, 5 a comma, 6 came, 7 a stop, 8 the end."""


def flaws_of(visited: list[int], **options) -> list[tuple[FlawKind, str]]:
    search = search_path(places_of(SENTENCE), steps_at(places_of(SENTENCE), visited, sharpness=0.97))
    return [(flaw.kind, flaw.word) for flaw in find_flaws(search, SENTENCE, 0.1, **options)]


def test_a_sound_take_has_no_flaw():
    assert flaws_of(SOUND) == []


def test_sound_after_the_last_word_dies_away_without_being_a_flaw():
    assert flaws_of([*SOUND, 8, 8]) == []


@pytest.mark.parametrize(
    ("visited", "expected"),
    [
        ([1, 1, 1, 2, 3, 6, 6, 6, 8], (FlawKind.SKIPPED, "said")),
        ([1, 1, 2, 3, 4, 4, 6], (FlawKind.UNFINISHED, "came")),
        ([*SOUND, 8, 8, 8, 8, 8], (FlawKind.BABBLE, "")),
        ([1, 1, 2, 3, *[4] * 25, 6, 6, 8], (FlawKind.LOOP, "said")),
    ],
)
def test_a_flaw_is_named_with_its_word(visited, expected):
    assert expected in flaws_of(visited)


def test_a_take_that_a_limit_ended_is_not_called_unfinished():
    assert flaws_of([1, 1, 2, 3, 4, 4, 6], has_ended=False) == []


def test_the_time_of_a_flaw_is_the_step_where_it_begins():
    search = search_path(places_of(), steps_at(places_of(), [1, 1, 1, 2, 3, 6, 6, 6, 8], sharpness=0.97))
    assert find_flaws(search, SENTENCE, 0.1)[0].seconds == pytest.approx(0.5)


def test_stretches_that_return_token_for_token_are_found():
    tokens = np.random.default_rng(0).integers(0, 50, (12, 7))
    assert repeated_patches(tokens) is None
    assert repeated_patches(np.concatenate([tokens[:8], tokens[5:]])) == 5
    assert repeated_patches(np.concatenate([tokens[:6], tokens[5:]])) is None  # a single patch may be a long sound
