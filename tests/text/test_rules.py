"""Rules are applied in order, each to what the one before it left."""

from __future__ import annotations

import random

import pytest
from num2words import num2words

from marstts.text.normalize import normalize
from marstts.text.numbers.words import grouped
from marstts.text.rules.engine import Rule, Trace, apply_all, rule


def test_what_a_change_adds_is_seen_with_its_neighbors() -> None:
    rules: tuple[Rule, ...] = (rule("one", "#", "No", parted=False), rule("two", "No(?=[0-9]{4})", "number "))
    assert apply_all(rules, "a #1234", Trace()) == "a number 1234"


def test_words_are_kept_apart_from_what_touches_a_match() -> None:
    assert apply_all((rule("three", "3", "three"),), "MP3s", Trace()) == "MP three s"


@pytest.mark.parametrize(
    "sentence",
    [
        "He said no.", "NASA flew to the moon.", "Mister Smith, she said; why not?", "What?!", "I may go in March.",
        "Use 'pip install x' - see here.", "Run 'f' - or 'g' - now.",
    ],
)  # fmt: skip
def test_words_that_no_rule_reads_stay(sentence: str) -> None:
    assert normalize(sentence) == sentence


@pytest.mark.slow
def test_whole_numbers_are_those_of_num2words() -> None:
    rng = random.Random(0)
    numbers = [*range(1200), *(rng.randrange(10 ** rng.randint(4, 15)) for _ in range(2000)), 10**6, 10**9 + 5, 10**12]
    assert [each for each in numbers if grouped(f"{each:,}") != num2words(each).replace(",", "")] == []
