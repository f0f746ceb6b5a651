"""Sentences: cut where a reader would pause, and never at the price of a word."""

from __future__ import annotations

import random
import time

import pytest

from marstts.text.sentences import split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        ("  \n ", []),
        ("One sentence", ["One sentence"]),
        ("One. Two! Three? Four.", ["One.", "Two!", "Three?", "Four."]),
        ("all lower. case here. fine.", ["all lower.", "case here.", "fine."]),
        ("Mr. Smith met Dr. Jones. They talked.", ["Mr. Smith met Dr. Jones.", "They talked."]),
        ("J. R. Smith wrote it. I read it.", ["J. R. Smith wrote it.", "I read it."]),
        ("It was I. He knew.", ["It was I.", "He knew."]),
        ("He left the U S A. Then he rested.", ["He left the U S A.", "Then he rested."]),
        ("Pi is 3.14 or so. Yes.", ["Pi is 3.14 or so.", "Yes."]),
        ("What?! No... really. Wait... Go!", ["What?!", "No... really.", "Wait...", "Go!"]),
        ('"Why?" he asked. "Because." She left.', ['"Why?" he asked.', '"Because."', "She left."]),
        ('He said "Go." Then he went.', ['He said "Go."', "Then he went."]),
        ("Apples, pears, etc. are fruit. Bread, etc. It goes on.",
         ["Apples, pears, etc. are fruit.", "Bread, etc.", "It goes on."]),
        ("At 5 p.m. we met. At 6 p.m. We left.", ["At 5 p.m. we met.", "At 6 p.m.", "We left."]),
        ("Stop. ... Go on.", ["Stop. ...", "Go on."]),
        ("... And so on. -", ["... And so on. -"]),
        ("Hello.World stays. Fine.", ["Hello.World stays.", "Fine."]),
    ],
)  # fmt: skip
def test_sentences_end_where_a_reader_would_end_them(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_a_long_sentence_is_cut_after_clauses() -> None:
    text = (
        "When the wind had fallen and the boats lay still upon the water, the old man rose from his seat; "
        "he looked along the shore, where nothing moved, and called his daughter by her name."
    )
    pieces = split_sentences(text, max_characters=100)
    assert len(pieces) == 2
    assert pieces[0].endswith(";")
    assert max(map(len, pieces)) <= 100


def test_a_long_sentence_without_marks_is_cut_evenly_between_words() -> None:
    pieces = split_sentences(" ".join(["word"] * 33), max_characters=160)  # 164 characters
    assert [len(piece.split()) for piece in pieces] in ([16, 17], [17, 16])


@pytest.mark.parametrize(
    "amount",
    [
        "twelve thousand three hundred and forty-five dollars and sixty-seven cents",
        "two thousand three hundred and forty-five kilograms",
        "March fourteenth, nineteen eighty-seven",
    ],
)
def test_a_cut_lies_in_no_number_and_not_before_what_it_counts(amount: str) -> None:
    for num_words in range(8, 30):  # the best place for a cut moves through the amount
        text = " ".join(["and"] * num_words + [amount] + ["then"] * 20)
        assert amount in "|".join(split_sentences(text, 120)), text


def test_a_short_clause_is_not_cut_off_on_its_own() -> None:
    pieces = split_sentences("Yes, " + " ".join(["word"] * 40), max_characters=120)
    assert pieces[0].startswith("Yes, word")


def test_a_word_longer_than_the_limit_is_cut_too() -> None:
    assert split_sentences("a " + "b" * 25, max_characters=10) == ["a", "b" * 10, "b" * 10, "b" * 5]


def random_text(rng: random.Random) -> str:
    words = ["a", "Word", "Mr.", "etc.", "J.", "I.", '"Why?"', "he", "...", "-", ",", "end.", "what?!", "3.14", "(so)",
             "long" * 12, "U", "S", "A.", "clause,", "日本。", "😀", '"', "and;", "é"]  # fmt: skip
    spaces = [" ", " ", " ", "  ", "\n", "\n\n", "\t"]
    return "".join(rng.choice(words) + rng.choice(spaces) for _ in range(rng.randrange(120)))


@pytest.mark.parametrize("max_characters", [7, 40, 160])
def test_joined_pieces_lose_nothing_and_none_is_too_long_or_empty(max_characters: int) -> None:
    rng = random.Random(max_characters)
    for _ in range(300):
        text = random_text(rng)
        pieces = split_sentences(text, max_characters)
        assert "".join("".join(pieces).split()) == "".join(text.split())
        assert all(0 < len(piece) <= max_characters for piece in pieces)
        if max_characters == 160:  # no word is longer than this
            assert " ".join(pieces).split() == text.split()


@pytest.mark.parametrize("unit", ["word ", "a. ", "A. ", ". ", "x", '"', ", ", "...", "?!", "?x"])
def test_long_inputs_take_time_in_proportion(unit: str) -> None:
    text = (unit * 20_000)[:19_999] + "x"
    start = time.process_time()
    split_sentences(text)
    assert time.process_time() - start < 2
