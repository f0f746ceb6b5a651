"""Strings that a rule needs: a text without them is not searched, and no reading is lost by that."""

from __future__ import annotations

import random

import pytest

from marstts.text.rules.characters import fold_characters
from marstts.text.rules.engine import RuleList, Trace, rule
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


@pytest.mark.parametrize(
    ("pattern", "spaces"),
    [
        (r"(?<![A-Za-z])[0-9]+(?=\w)", 0),
        ("[0-9]+ km(?= away)(?! from)", 3),
        ("(?<=in )(?:one|two or three) {0,3}[^a]", 7),
        (r"(?<!x )\S+[^\s.]+\Z", 0),
        ("(?: [a-z])*", float("inf")),
    ],
)
def test_the_most_spaces_of_a_match_follow_from_the_pattern(pattern: str, spaces: float) -> None:
    assert needed_strings(pattern).spaces == spaces


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


def test_a_long_text_is_read_as_by_every_rule_in_order() -> None:
    """Rules are tried in groups of words that hold what they need, also behind what other rules changed."""
    rng = random.Random(5)
    rules = RuleList(RULES)
    num_changes = 0
    for size in [*range(20, 200, 9), 400]:
        words = [rng.choice(FRAGMENTS) + rng.choice(["", "", "word", "a b c d e f g"]) for _ in range(size)]
        text = expected = fold_characters(" ".join(words))
        for each in RULES:
            changed = each.apply(expected, Trace())
            num_changes += changed is not None
            expected = expected if changed is None else changed.text
        assert rules.apply(text, Trace()) == expected
        assert rules.may_apply(text) and rules.may_apply(f"{'word ' * size}5 km")
        assert not rules.may_apply("word " * size)
    assert num_changes > 200


@pytest.mark.parametrize("size", [6, 12, 18, 40, 300])
def test_noise_is_read_as_by_every_rule_in_order(size: int) -> None:
    """Each word is new, and so is its shape: what takes long to search counts as found until the text comes again."""
    rng = random.Random(size)
    rules = RuleList(RULES)
    noise = ["".join(rng.choice("aZ09.-/$%:&= ") for _ in range(size - 5)) for _ in range(20)]
    texts = [fold_characters(each + rng.choice([" 5 km", "Dr. X", "$5.30"])) for each in noise]
    num_changed = 0
    for text in texts * 2:
        expected = text
        for each in RULES:
            changed = each.apply(expected, Trace())
            expected = expected if changed is None else changed.text
        num_changed += expected != text
        assert rules.apply(text, Trace()) == expected
    assert num_changed > 20


def test_a_rule_of_one_word_is_tried_wherever_the_word_stands() -> None:
    found = RuleList([rule("code", r"(?<![A-Z0-9])[A-Z][0-9](?![A-Z0-9])", "code", parted=False)])
    for place in range(0, 60, 3):
        words = ["word"] * 60
        words[place] = "(A5)"
        assert found.apply(" ".join(words), Trace()).split(" ")[place] == "(code)"


def test_what_is_far_apart_in_a_long_text_is_no_match() -> None:
    found = RuleList([rule("distance", r"[0-9]+ km", "far")])
    apart = "5 " + "word " * 60 + "km"
    assert not found.may_apply(apart) and found.may_apply(f"{apart} 5 km")
    assert found.apply(f"{apart} 5 km", Trace()) == f"{apart} far"


def test_digits_of_other_scripts_count_as_digits() -> None:
    found = RuleList([rule("number", r"\d km", "far")])
    assert found.may_apply("٣ km") and not found.may_apply("a km")


def test_what_stands_in_two_words_is_found_in_neither() -> None:
    found = RuleList([rule("way", r"by(?= the way)", "near")])
    assert found.may_apply("go by the way") and not found.may_apply("goby they")
