"""Repetition and truncation, in cases counted by hand."""

from __future__ import annotations

import pytest

from marstts.evaluation.metrics.faults import breaks_off, repeats_itself, words_missing_at_the_end


@pytest.mark.parametrize(
    ("text", "heard", "repeats"),
    [
        ("the cat sat", "the cat sat", False),
        ("the cat sat", "the the cat sat", True),
        ("the cat sat", "the cat the cat sat", True),
        ("it was very very cold", "it was very very cold", False),
        ("it was very very cold", "it was was very very cold", True),
        ("a b c d e f", "a b c d a b c d e f", True),
        ("a b c d e f", "a b c d e a b c d e f", False),  # runs of five are not looked for
        ("the cat sat", "", False),
    ],
)
def test_repetitions_that_the_text_has_are_none(text: str, heard: str, repeats: bool):
    assert repeats_itself(text.split(), heard.split()) is repeats


TEN = "one two three four five six seven eight nine ten"


@pytest.mark.parametrize(
    ("text", "heard", "missing", "cut"),
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
def test_only_what_is_missing_at_the_end_is_cut(text: str, heard: str, missing: int, cut: bool):
    assert words_missing_at_the_end(text.split(), heard.split()) == missing
    assert breaks_off(text.split(), heard.split()) is cut
