"""The normalizer of the metrics: the same plain words for any spelling of a text."""

from __future__ import annotations

import pytest

from marstts_lab.metrics.words import plain_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Has NEVER been, surpassed!", "has never been surpassed"),
        ("O\u2019Neil's 'quoted' café", "o'neil's quoted cafe"),
        ("well-known — and so on…", "well known and so on"),
        ("Mr. and Mrs. Hale & Dr Lee", "mister and missus hale and doctor lee"),
        ("He paid 1,250 for 3", "he paid one thousand two hundred and fifty for three"),
        ("apples, etc.; i.e. fruit", "apples et cetera that is fruit"),
        ("?! … 😀", ""),
    ],
)
def test_texts_become_plain_words(text: str, words: str):
    assert plain_words(text) == words.split()


def test_plain_words_stay_as_they_are():
    words = plain_words("Don't count 42 twice, Mr. O\u2019Neil.")
    assert plain_words(" ".join(words)) == words


def test_numbers_too_long_for_a_name_are_read_digit_by_digit():
    assert plain_words("12" * 200) == ["one", "two"] * 200
