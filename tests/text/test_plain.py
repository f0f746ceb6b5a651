"""Plain text is read without any rule; that changes nothing but the time. So do the names of whole numbers."""

from __future__ import annotations

import random

import pytest
from num2words import num2words

from marstts.text.normalize import normalize, normalize_block
from marstts.text.numbers.words import grouped
from marstts.text.plain import cut_passages, is_plain, is_spoken
from marstts.text.rules.characters import fold_characters
from marstts.text.rules.engine import Trace
from marstts.text.rules.order import read_markup, read_written_forms
from marstts.text.rules.punctuation import tidy_punctuation

PARTS = [*"aAbcI' ,;:-\"", "the", "Then", " ", " ", "  ", ". ", ", ", "; ", " - ", "?", "!", ".", "'s"]


def read_by_every_rule(text: str, trace: Trace) -> str:
    """The text as every rule in order leaves it."""
    text = fold_characters(read_markup(text, trace), trace)
    return tidy_punctuation(read_written_forms(text, trace))


def is_plain_text(text: str) -> bool:
    return is_spoken(text) and all(plain for _, plain in cut_passages(text))


def test_every_rule_leaves_plain_text_as_it_is() -> None:
    rng = random.Random(7)
    texts = ["".join(rng.choices(PARTS, k=rng.randint(1, 14))) for _ in range(8000)]
    plain = [text for text in texts if any(map(str.isalpha, text)) and is_plain_text(text)]
    assert len(plain) > 500
    for text in plain:
        trace, every = Trace(), Trace()
        assert normalize_block(text, trace) == read_by_every_rule(read_by_every_rule(text, every), every), repr(text)
        assert (trace.steps, trace.left_out) == (every.steps, every.left_out) == ([], []), repr(text)


@pytest.mark.parametrize(
    "sentence",
    ["He said no.", "NASA flew to the moon.", "Mister Smith, she said; why not?", "What?!", "I may go in March."],
)
def test_plain_sentences_are_read_by_no_rule(sentence: str) -> None:
    assert is_plain(sentence)
    assert normalize(sentence) == sentence


@pytest.mark.parametrize(
    "sentence",
    ["The BBC.", "Mr Smith.", "Chapter IV.", "King Henry V.", "five lbs.", "June-July.", "Elm St.", "btw no."],
)
def test_what_a_rule_may_read_is_not_plain(sentence: str) -> None:
    assert not is_plain(sentence)


def test_an_abbreviation_is_read_with_the_sentence_after_it() -> None:
    assert list(cut_passages("He left. See St. John. He knew the BBC. She too.")) == [
        ("He left.", True), ("See St. John.", False), ("He knew the BBC.", False), ("She too.", True),
    ]  # fmt: skip


def test_spoken_text_holds_letters_and_marks() -> None:
    assert is_spoken('It\'s so - he said: "no"!')
    assert not any(map(is_spoken, ["5 km", " a", "a  b", "a/b", "é"]))


def test_whole_numbers_are_those_of_num2words() -> None:
    rng = random.Random(0)
    numbers = [*range(1200), *(rng.randrange(10 ** rng.randint(4, 15)) for _ in range(2000)), 10**6, 10**9 + 5, 10**12]
    assert [each for each in numbers if grouped(f"{each:,}") != num2words(each).replace(",", "")] == []
