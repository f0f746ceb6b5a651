"""Words that are written alike and said by their use."""

from __future__ import annotations

import pytest

from marstts.mars6.spelling import Spelling, read_aloud
from marstts.text.phones import PHONES, as_characters, readable
from marstts.text.pronunciation.heteronyms import in_context, table
from marstts.text.pronunciation.words import PhoneUse, word_pieces
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
        ("People record it.", "record", "R IH0 K AO1 R D"),
        ("Record it.", "record", "R IH0 K AO1 R D"),
        ("Record companies sold it.", "record", "R EH1 K ER0 D"),
        ("It's separate.", "separate", "S EH1 P ER0 AH0 T"),
        ("Do you object to it?", "object", "AH0 B JH EH1 K T"),
        ("Close the door.", "close", "K L OW1 Z"),
        ("They live close to us.", "close", "K L OW1 S"),
        ("I read it yesterday.", "read", "R EH1 D"),
        ("It was read by many.", "read", "R EH1 D"),
        ("Please read it.", "read", "R IY1 D"),
        ("Students read three books each term.", "read", "R IY1 D"),
        ("His wound hurts.", "wound", "W UW1 N D"),
        ("She wound the clock.", "wound", "W AW1 N D"),
        ("A learned man came.", "learned", "L ER1 N IH0 D"),
        ("He learned it.", "learned", "L ER1 N D"),
        ("I am content.", "content", "K AH0 N T EH1 N T"),
        ("The content is new.", "content", "K AA1 N T EH0 N T"),
    ],
)
def test_the_sentence_decides(sentence: str, word: str, phones: str) -> None:
    assert said(sentence, word) == phones


def test_uses_of_a_heteronym_have_phones_and_some_differ() -> None:
    for word, heteronym in table().items():
        uses = [phones for phones in heteronym if phones]
        assert {phone for phones in uses for phone in phones} <= set(PHONES), word
        assert len(set(uses)) > 1, word


def test_an_article_makes_a_noun_and_to_a_verb() -> None:
    """of 367 words, in any case"""
    right = []
    for word, heteronym in table().items():
        for text, phones in ((f"The {word} is here.", heteronym.noun), (f"We want to {word} it.", heteronym.verb)):
            found = in_context(word.upper(), text, text.index(word))
            assert found is not None and found.word == word and found.phones == heteronym.phones(found.use)
            right += [found.phones == phones] * bool(phones)
    assert sum(right) > 0.95 * len(right)


def test_an_adjective_that_is_said_as_the_noun_is_a_noun() -> None:
    found = in_context("live", "A live show.", 2)
    assert found is not None and found.use == "noun"


def test_the_sentence_decides_wherever_the_word_is_in_a_text() -> None:
    """Far words, phones that a user gave and other characters change nothing near the word."""
    for before in ("", "One two three four five six seven. " * 300, as_characters(["K", "AE1", "T"]) + " ", "… «é» "):
        text = before + "They record it."
        [found] = [each for word, start, _ in word_pieces(text) if (each := in_context(word, text, start))]
        assert found.word == "record" and found.use == "verb"


def test_what_is_no_heteronym_is_left_alone() -> None:
    for word in ("table", "s", "'s"):
        assert in_context(word, f"the {word}", 4) is None
