"""Written words and the spoken words that stand for them."""

from __future__ import annotations

import pytest

from marstts.synthesis.words.written_forms import pair_words, with_forms
from marstts.text.reading import read_text


def forms_of(text: str) -> list[tuple[str, str]]:
    segments = [segment for passage in read_text(text).passages for segment in with_forms(passage)]
    return [(form.written, segment.text[form.start : form.end]) for segment in segments for form in segment.forms]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Nobody came.", [("Nobody", "Nobody"), ("came.", "came.")]),
        ("Dr. Smith left.", [("Dr.", "Doctor"), ("Smith", "Smith"), ("left.", "left.")]),
        ("It cost $5.50 then.", [("It", "It"), ("cost", "cost"), ("$5.50", "five dollars and fifty cents"),
                                 ("then.", "then.")]),
        ("Dr. $5 said.", [("Dr.", "Doctor"), ("$5", "five dollars"), ("said.", "said.")]),
    ],
)  # fmt: skip
def test_spoken_words_are_paired_with_the_written_ones(text, expected):
    assert forms_of(text) == expected


def test_every_spoken_word_has_a_written_form():
    text = "On May 3, 1998 at 7:30 p.m. NASA's J. R. Smith e-mailed bob@site.com & called 555-1234 -- twice!"
    for passage in read_text(text).passages:
        for segment in with_forms(passage):
            covered = " ".join(segment.text[form.start : form.end] for form in segment.forms)
            assert covered.split() == [chunk for chunk in segment.text.split() if chunk != "-"]


def test_words_without_a_written_one_stand_for_themselves():
    assert list(pair_words(["a", "b"], ["a", "and", "b"])) == [(["a"], 0, 1), (["and"], 1, 2), (["b"], 2, 3)]


def test_a_form_over_a_cut_is_part_of_both_sentences():
    long = " ".join(["1234567"] * 8)
    segments = [segment for passage in read_text(long).passages for segment in with_forms(passage)]
    assert len(segments) > 1 and all(segment.forms for segment in segments)
