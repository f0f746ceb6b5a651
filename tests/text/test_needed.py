"""Strings that a rule needs: a text without them is not searched, and no reading is lost by that."""

from __future__ import annotations

import random

import pytest

from marstts.text.rules.engine import RuleList, rule
from marstts.text.rules.needed import SHAPE, needed_strings
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
        ("[0-9]+ km", {" km"}),
        ("a?b*(?:cd|[ef])", {"cd", "e", "f"}),
        ("(?:x|y?)z(?=!)(?!q)[^w].", {"z!"}),
        ("(?<=[0-9])th", {"0th"}),
        ("(?:Chapter|Act)[ivx]", {"Cha", "Act"}),
        ("(?i:s)", {"s", "S", "\u017f"}),
        (r"\w+", set()),
        ("(?:a|)[0-9]*", set()),
    ],
)
def test_the_needed_strings_follow_from_the_pattern(pattern: str, needed: set[str]) -> None:
    first, *_ = needed_strings(pattern).exact or (frozenset(),)
    assert first == needed or (first and all(any(one in two or two in one for two in needed) for one in first))


@pytest.mark.parametrize(
    ("pattern", "same"),
    [("[a-z]{2}[A-Z]", "xyZ"), ("[A-Z][0-9]{3}(?![0-9])", "Q123"), ("(?i:[a-z]),[A-Z]", "b,C"), ("Dr. [A-Z]", "Ab. C")],
)
def test_letters_of_a_set_are_needed_as_a_shape(pattern: str, same: str) -> None:
    """One string stands for all letters, so that the sets of three letters in a row do not get too large."""
    in_shape = same.translate(SHAPE.folded)
    sets = needed_strings(pattern).shape
    assert sets and all(any(string in f" {word} " for word in in_shape.split() for string in each) for each in sets)
    assert not any(any(string in " 1 b " for string in each) for each in sets)


def test_a_text_without_needed_strings_holds_no_match() -> None:
    rng = random.Random(3)
    num_matches = 0
    single = {(each.name, each.source): RuleList([each]) for each in (*MARKUP, *RULES)}
    for _ in range(150):
        text = "".join(rng.choice(FRAGMENTS) + rng.choice(["", " "]) for _ in range(8))
        for each in (*MARKUP, *RULES):
            if each.pattern.search(text):
                num_matches += 1
                assert single[each.name, each.source].may_apply(text), (each.name, text)
    assert num_matches > 500


def test_digits_of_other_scripts_count_as_digits() -> None:
    found = RuleList([rule("number", r"\d km", "far")])
    assert found.may_apply("٣ km") and not found.may_apply("a km")


def test_what_stands_in_two_words_is_found_in_neither() -> None:
    found = RuleList([rule("way", r"by(?= the way)", "near")])
    assert found.may_apply("go by the way") and not found.may_apply("goby they")
