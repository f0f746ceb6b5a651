"""Characters that a rule needs: a text without them is not searched, and no reading is lost by that."""

from __future__ import annotations

import random
import re

import pytest

from marstts.text.rules.needed import needed_characters
from marstts.text.rules.order import MARKUP, RULES

FRAGMENTS = [
    *["$5", "3.50", "12/5/2024", "9:30 a.m.", "Dr.", "St.", "km/h", "30 °C", "[1]", "(Smith, 2020)", "No.", "§", "©"],
    *[
        "http://x.com",
        "a@b.co",
        "555-1234",
        "1990s",
        "1st",
        "IV",
        "Chapter",
        "e4",
        "Nf3",
        "0xff",
        "U.S.",
        "½",
        "€",
        "²",
    ],
    *[
        "word",
        "The",
        "k",
        "\u212a",
        "\u017f",
        "İ",
        "٣",
        "-",
        "—",
        "/",
        ":",
        ",",
        ".",
        "'",
        '"',
        "\n",
        "&",
        "%",
        "+",
        "~",
    ],
]


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        ("[0-9]+ km", {"k", "m", " ", "0123456789"}),
        ("a?b*(?:cd|[ef])", {"cef"}),
        ("(?:x|y?)z(?=!)(?!q)[^w].", {"z", "!"}),
        ("(?i:s)", {"sS\u017f"}),
        (r"\w+", set()),
    ],
)
def test_the_needed_characters_follow_from_the_pattern(pattern: str, needed: set[str]) -> None:
    found = needed_characters(pattern)
    assert len(found) == min(len(needed), 3)
    assert set(found) <= {frozenset(characters) for characters in needed}


def test_a_text_without_needed_characters_holds_no_match() -> None:
    rng = random.Random(3)
    num_matches = 0
    for _ in range(150):
        text = "".join(rng.choice(FRAGMENTS) + rng.choice(["", " "]) for _ in range(8))
        for rule in (*MARKUP, *RULES):
            if rule.pattern.search(text):
                num_matches += 1
                assert not any(needed.isdisjoint(text) for needed in rule.needed), (rule.name, text)
    assert num_matches > 500


def test_digits_of_other_scripts_count_as_digits() -> None:
    assert re.search(r"\d", "٣")
    assert all("٣" in needed for needed in needed_characters(r"\d"))
