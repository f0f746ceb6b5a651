"""Repetition and truncation, in cases counted by hand."""

from __future__ import annotations

import pytest

from marstts_lab.metrics.words import has_repetition, is_truncated, words_missing_at_end


@pytest.mark.parametrize(
    ("text", "transcript", "expected"),
    [
        ("the cat sat", "the cat sat", False),
        ("the cat sat", "the the cat sat", True),
        ("the cat sat", "the cat the cat sat", True),
        ("it was very very cold", "it was very very cold", False),
        ("it was very very cold", "it was was very very cold", True),
        ("a b c d e f", "a b c d a b c d e f", True),
        ("a b c d e f", "a b c d e a b c d e f", False),  # runs of five are not searched for
        ("the cat sat", "", False),
    ],
)
def test_repetition_is_detected_unless_the_text_has_it(text: str, transcript: str, expected: bool):
    assert has_repetition(text.split(), transcript.split()) is expected


TEN = "one two three four five six seven eight nine ten"


@pytest.mark.parametrize(
    ("text", "transcript", "missing", "truncated"),
    [
        (TEN, TEN, 0, False),
        (TEN, "one two three four five six seven eight nine", 1, False),
        (TEN, "one two three four five six seven eight", 2, True),
        (TEN, "", 10, True),
        (TEN, "three four five six seven eight nine ten", 0, False),
        ("yes", "", 1, True),
        ("yes sir", "yes", 1, False),
    ],
)
def test_truncation_counts_words_missing_at_the_end(text: str, transcript: str, missing: int, truncated: bool):
    assert words_missing_at_end(text.split(), transcript.split()) == missing
    assert is_truncated(text.split(), transcript.split()) is truncated
