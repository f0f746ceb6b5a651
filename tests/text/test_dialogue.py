"""Dialogue: what somebody says is told from what the narrator says, by quotation marks."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from marstts.text.dialogue import quotes_in
from marstts.text.reading import Manner, read_stream, read_text


def said(text: str, following: str = "") -> list[str]:
    return [text[first:last] for first, last in quotes_in(text, following)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"Hello," she said. "Who is there?"', ['"Hello,"', '"Who is there?"']),
        ("\u201cHello,\u201d he said\u2014\u201cwho is it?\u201d", ["\u201cHello,\u201d", "\u201cwho is it?\u201d"]),
        ("\u2018I can\u2019t see boys\u2019 tea,\u2019 he said.", ["\u2018I can\u2019t see boys\u2019 tea,\u2019"]),
        ("'It's Tom's,' he said, 'isn't it?'", ["'It's Tom's,'", "'isn't it?'"]),
        ('He said, "She told me \'no,\' and left."', ['"She told me \'no,\' and left."']),
        ("\u2018He said \u201cno,\u201d to me,\u2019 she said.", ["\u2018He said \u201cno,\u201d to me,\u2019"]),
        ('"Well\u2014" he began. Then: "Go!"', ['"Well\u2014"', '"Go!"']),
        ('She said "yes" and left.', ['"yes"']),
        ('"Home" is what she answered, "no".', ['"no"']),
        ('"It is a 12" record," he said.', ['"It is a 12" record,"']),
        ('("Run!" they cried.)', ['"Run!"']),
        ('*"Hello,"* she said.', ['"Hello,"']),
        ('"You were born in 1912," he said.', ['"You were born in 1912,"']),
        ('"I was born in 1912" was all she said.', ['"I was born in 1912"']),
    ],
)  # fmt: skip
def test_what_is_said_stands_in_quotation_marks(text: str, expected: list[str]) -> None:
    assert said(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        'He is 5\'10" tall, and the board is 12" wide.',
        "'Tis the season, and rock 'n' roll of the '60s isn't the dogs' choice.",
        'They called it "home" and the "Argo" sank.',
        '"War and Peace" is a long book.',
        "The so-called \u201cexpert\u201d left.",
        'An "unclosed mark opens nothing. It ends here.',
        "The boys' mothers' cars, and the girls'.",
        "\u2018Tis true that \u2019em are there.",
    ],
)
def test_marks_that_are_no_speech_open_nothing(text: str) -> None:
    assert said(text) == []


@pytest.mark.parametrize("mark", ['"', "\u201c", "\u2018"])
def test_a_speech_over_paragraphs_opens_anew_in_each(mark: str) -> None:
    text, following = f"He began. {mark}I was young. I was poor.", f"{mark}Then I was old."
    assert said(text, following) == [f"{mark}I was young. I was poor."]
    assert said(text, "Then he stopped.") == []


def test_an_unclosed_mark_does_not_reach_into_the_next_speech() -> None:
    assert said('"Hello, he said. "I am fine."') == ['"I am fine."']


def voices(text: str) -> list[tuple[str | None, str]]:
    return [(each.voice, each.text) for each in read_text(text, manner=Manner(dialogue="Anna")).segments]


def test_what_is_said_has_the_voice_of_the_dialogue() -> None:
    text = 'Dr. Smith sat. "It cost $5," he said. "I paid."\n\nShe left.\n\n# "Hello," he said'
    assert voices(text) == [
        (None, "Doctor Smith sat."), ("Anna", '"It cost five dollars,"'), (None, "he said."), ("Anna", '"I paid."'),
        (None, "She left."), (None, '"Hello," he said'),
    ]  # fmt: skip


def test_a_voice_mark_goes_before_quotation_marks() -> None:
    assert voices('"One," he said. [voice:Tom] "Two," he said. [voice:default] "Three."') == [
        ("Anna", '"One,"'), (None, "he said."), ("Tom", '"Two," he said.'), ("Anna", '"Three."'),
    ]  # fmt: skip
    assert voices('<speak>"One," he said.</speak>') == [(None, '"One," he said.')]


@pytest.mark.slow
def test_a_long_speech_is_dialogue_to_its_end_however_it_comes_in_pieces() -> None:
    sentences = [f"I saw ship number {number} and the boys\u2019 boat." for number in range(90)]
    for opening, closing in ("\u201c\u201d", "\u2018\u2019", '""'):
        text = f"He spoke. {opening}{' '.join(sentences)}{closing} Then he left. It was late."
        pieces = [text[start : start + 7] for start in range(0, len(text), 7)]
        read = [
            segment for passage in read_stream(pieces, manner=Manner(dialogue="Anna")) for segment in passage.segments
        ]
        narrated = [segment.text for segment in read if segment.voice is None]
        assert narrated == ["He spoke.", "Then he left.", "It was late."]


@pytest.mark.parametrize(
    "piece", ["('a", '("a', "'a ", '"a ', '"1', "\u2018a\u2019", '"A." ', "'a.' ", "\u201c", "'", '"Go." 12" ']
)
def test_marks_without_end_take_linear_time(piece: str) -> None:
    """Four times the text takes about four times as long; a quadratic search would take sixteen times."""

    def seconds(times: int) -> float:
        started = time.process_time()
        quotes_in(piece * times)
        return time.process_time() - started

    assert min(seconds(8_000) for _ in range(2)) < 10 * min(seconds(2_000) for _ in range(2)) + 0.1
    quotes = quotes_in(piece * 100)
    assert all(first < last <= after for (first, last), (after, _) in pairwise(quotes))
