"""Boundaries of sentences at abbreviations, initials, times and numbers of lists."""

from __future__ import annotations

import pytest

from marstts.text.reading import stream_sentences


@pytest.mark.parametrize(
    ("written", "sentences"),
    [
        ("He came in Sept. The rest came in Oct. 2020.",
         ["He came in September.", "The rest came in October twenty twenty."]),
        ("At 6 p.m. I left.", ["At six P M I left."]),
        ("We met at 6 p.m. I left.", ["We met at six P M.", "I left."]),
        ("Group B. I got an A. He got a B.", ["Group B.", "I got an A.", "He got a B."]),
        ("So did C. S. Lewis and J. Smith.", ["So did C. S. Lewis and J. Smith."]),
        ("Baz Co. Ltd. lost the case.", ["Baz Company Limited lost the case."]),
        ("The temp. is low.", ["The temperature is low."]),
        ("Steps: 1. Mix. 2. Bake. 3. Eat.", ["Steps: one, Mix.", "two, Bake.", "three, Eat."]),
        ("He sat in row 1. 2. It was dark.", ["He sat in row one.", "two.", "It was dark."]),
    ],
)  # fmt: skip
def test_a_stop_of_an_abbreviation_ends_a_sentence_only_where_another_begins(
    written: str, sentences: list[str]
) -> None:
    assert list(stream_sentences([written])) == sentences
