"""Nouns and verbs that are written alike."""

from __future__ import annotations

import pytest

from marstts.mars6.spelling import Spelling, read_aloud
from marstts.text.phones import PHONES, readable
from marstts.text.pronunciation.heteronyms import UsedWord, in_context, table
from marstts.text.pronunciation.words import PhoneUse
from marstts.text.reading import read_text


def said(sentence: str, word: str) -> str | None:
    """The phones of a word of a sentence, given as its number from 0; None where it stays letters."""
    [normalized] = read_text(sentence).sentences
    words = readable(read_aloud(normalized, Spelling.SIMPLE, PhoneUse.KNOWN).text)
    index = [each.strip(".,?!").lower() for each in sentence.split()].index(word)
    pieces = [piece for piece in words.replace("{", "|{").replace("}", "}|").split("|") if piece.strip(" .,?!")]
    found = pieces[index].strip()
    return found.strip("{}") if found.startswith("{") else None


@pytest.mark.parametrize(
    ("sentence", "word", "phones"),
    [
        ("The record was broken.", "record", "R EH1 K ER0 D"),
        ("We will record it.", "record", "R IH0 K AO1 R D"),
        ("My records are here.", "records", "R EH1 K ER0 D Z"),
        ("She records them.", "records", "R IH0 K AO1 R D Z"),
        ("Anna's project is here.", "project", "P R AA1 JH EH0 K T"),
        ("They live here.", "live", "L IH1 V"),
        ("A live show.", "live", "L AY1 V"),
        ("We use it.", "use", "Y UW1 Z"),
        ("It is of use.", "use", "Y UW1 S"),
    ],
)
def test_the_word_before_decides(sentence: str, word: str, phones: str) -> None:
    assert said(sentence, word) == phones


@pytest.mark.parametrize(
    ("sentence", "word"), [("People record it.", "record"), ("Record it.", "record"), ("It's separate.", "separate")]
)
def test_without_a_hint_the_model_reads_letters(sentence: str, word: str) -> None:
    assert said(sentence, word) is None


def test_both_uses_have_phones_and_differ() -> None:
    for word, (noun, verb) in table().items():
        assert {*noun, *verb} <= set(PHONES), word
        assert noun != verb, word
        for before, use, phones in (("the ", "noun", noun), ("to ", "verb", verb)):
            found = in_context(word.upper(), before)
            assert found == UsedWord(word, use, "") and found.phones == phones


def test_what_is_no_heteronym_is_left_alone() -> None:
    assert in_context("table", "the ") is None and in_context("s", "the ") is None and in_context("'s", "the ") is None
