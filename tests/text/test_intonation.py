"""Which questions rise at their end."""

from __future__ import annotations

import pytest

from marstts.text.intonation import contour_of
from marstts.text.lexicon import written_words
from marstts.text.phones import FALLING, RISING
from marstts.text.reading import read_text


@pytest.mark.parametrize(
    "question",
    [
        "Is it late", "Do you like apples", "Well, Anna, is it an apple", "Can't you swim", "Really", "Ready",
        "You bought a car", "It is late, isn't it", "And have they gone", "So you know whether it's open, right",
        "Would you tell me where it is", "Are you coming or not",
    ],
)  # fmt: skip
def test_yes_no_questions_rise(question: str) -> None:
    assert contour_of(question) == RISING


@pytest.mark.parametrize(
    "question",
    [
        "Where is Anna", "What did you say", "And who is that", "Well, why not", "How far is it to the station",
        "Tea or coffee", "Is it red or blue", "In which house does he live", "What's that",
    ],
)  # fmt: skip
def test_questions_with_a_question_word_and_alternatives_fall(question: str) -> None:
    assert contour_of(question) == FALLING


@pytest.mark.parametrize(
    "question", ["", "42", "The committee has decided that the old bridge will be closed in the spring"]
)
def test_other_questions_are_left_to_the_model(question: str) -> None:
    assert contour_of(question) is None


def test_a_user_decides_with_a_mark() -> None:
    reading = read_text("It is late[rising]? Is it[falling]? He is [rising] slowly.")
    assert [RISING in reading.sentences[0], FALLING in reading.sentences[1]] == [True, True]
    assert not any(mark in reading.sentences[2] for mark in (RISING, FALLING))
    assert written_words("It is late[rising]?") == "It is late?"
