"""What the reading of a text costs: time grows as the text does, whatever kind of text it is."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from num2words import num2words

from marstts.text.normalize import AMOUNT_WORDS
from marstts.text.numbers.words import grouped, ordinal, year
from marstts.text.reading import read_text
from marstts.text.rules.order import may_be_read

WORDS = [
    *("the", "house", "of", "my", "people", "had", "long", "water", "but", "not", "only", "one", "river", "then"),
    *("all", "boats", "come", "down", "and", "may", "carry", "oil"),
]
MONTHS = ("January", "March", "May", "August", "October")

Writer = Callable[[random.Random], str]


def word(rng: random.Random) -> str:
    return rng.choice(WORDS)


def sentence(rng: random.Random) -> str:
    return " ".join(word(rng) for _ in range(rng.randrange(4, 18))).capitalize() + ". "


def capitals(rng: random.Random) -> str:
    return "".join(rng.choice("ABCDEFGHILMNORSTU") for _ in range(rng.randrange(2, 8)))


def letters(rng: random.Random, least: int, end: int) -> str:
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randrange(least, end)))


KINDS: dict[str, Writer] = {
    "prose": sentence,
    "paragraphs": lambda rng: sentence(rng) + "\n\n",
    "numbers": lambda rng: f"{rng.randrange(10 ** rng.randrange(1, 12))} ",
    "lines of numbers": lambda rng: f"{rng.randrange(10 ** rng.randrange(1, 9))}\n",
    "grouped numbers": lambda rng: f"{rng.randrange(10**9):,}, ",
    "decimals": lambda rng: f"{1000 * rng.random():.3f} ",
    "long digits": lambda rng: f"{rng.randrange(10**60)} ",
    "dates": lambda rng: (
        f"{rng.choice(MONTHS)} {rng.randrange(1, 29)}, {rng.randrange(1500, 2100)}; 2024-05-13; 3/14/22. "
    ),
    "money": lambda rng: (
        f"${rng.randrange(10**5)}.{rng.randrange(100):02d} £{rng.randrange(9999)} {rng.randrange(999)} € "
    ),
    "times": lambda rng: f"{rng.randrange(24)}:{rng.randrange(60):02d} at {rng.randrange(1, 13)}:30 p.m. ",
    "units": lambda rng: f"{rng.randrange(999)} km, {rng.randrange(99)}kg {rng.randrange(99)} °C {rng.randrange(99)}% ",
    "telephones": lambda rng: f"({rng.randrange(200, 999)}) 555-{rng.randrange(1000, 9999)}, +44 20 7946 0958 ",
    "addresses of the web": lambda rng: (
        f"https://www.{word(rng)}{rng.randrange(99)}.com/{word(rng)}?q={rng.randrange(9)} "
    ),
    "addresses of mail": lambda rng: f"{word(rng)}.{word(rng)}{rng.randrange(99)}@{word(rng)}.org ",
    "streets": lambda rng: (
        f"{rng.randrange(999)} St. Mary St., NY {rng.randrange(10000, 99999)}. Dr. {word(rng).title()} vs. "
    ),
    "citations": lambda rng: (
        f"{word(rng)} [{rng.randrange(99)}], ({word(rng).title()} et al., {rng.randrange(1900, 2020)}). "
    ),
    "Roman numerals": lambda rng: f"Chapter {rng.choice(['XIV', 'II', 'XC'])} King {word(rng).title()} IX ",
    "initials": lambda rng: f"{rng.choice('ABCD')}. {rng.choice('ABCD')}. {word(rng).title()} ",
    "capitals": lambda rng: f"{capitals(rng)} {word(rng)} ",
    "names of a play": lambda rng: f"{capitals(rng)}: {sentence(rng)}\n",
    "emoji": lambda rng: f"{word(rng)} {rng.choice('😀😂🎉🚀')} ",
    "Chinese": lambda rng: chr(rng.randrange(0x4E00, 0x9FFF)),
    "lines of Chinese": lambda rng: chr(rng.randrange(0x4E00, 0x9FFF)) * 5 + "。\n",
    "lines of one Chinese character": lambda rng: chr(rng.randrange(0x4E00, 0x9FFF)) + "\n",
    "combining marks": lambda rng: rng.choice("aeiou") + chr(rng.randrange(0x300, 0x36F)) * rng.randrange(1, 3),
    "accents": lambda rng: "".join(rng.choice("éüñçøßaebc") for _ in range(7)) + " ",
    "Markdown": lambda rng: f"# {word(rng)}\n\n* **{word(rng)}** [{word(rng)}](http://x.org/{rng.randrange(99)}) `a`\n",
    "HTML": lambda rng: f"<p>{word(rng)} <b>{word(rng)}</b> x<sup>{rng.randrange(9)}</sup></p>\n",
    "BBCode": lambda rng: f"[b]{word(rng)}[/b] [url=http://x.org/{rng.randrange(999)}]{word(rng)}[/url] ",
    "LaTeX": lambda rng: (
        rf"The $x_{{{rng.randrange(99)}}} + \frac{{{rng.randrange(99)}}}{{7}}$ is \sqrt[3]{{{rng.randrange(99)}}}. "
    ),
    "subtitles": lambda rng: (
        f"{rng.randrange(999)}\n00:01:{rng.randrange(60):02d},000 --> 00:02:00,500\n{sentence(rng)}\n\n"
    ),
    "tables": lambda rng: f"| {word(rng)} | {rng.randrange(999)} | {word(rng)} |\n",
    "spreadsheets": lambda rng: f"{word(rng)},{rng.randrange(999)},{word(rng)};{rng.random():.2f}\n",
    "code": lambda rng: (
        f"def {word(rng)}_{word(rng)}(self, a={rng.randrange(9)}):\n    return camelCase[{rng.randrange(9)}]\n"
    ),
    "brackets": lambda rng: rng.choice(list("()[]{}<>")) + rng.choice(["", word(rng)]),
    "quotations": lambda rng: f'"{word(rng)} {word(rng)}," he said. “It\u2019s {word(rng)}.” ',
    "compounds": lambda rng: "-".join(word(rng) for _ in range(3)) + " ",
    "divided words": lambda rng: word(rng)[:3] + "-\n" + word(rng) + " ",
    "pronunciations": lambda rng: f"[{word(rng)}]{{{rng.choice(['HH AH0 L OW1', 'nee-roh', '/həˈloʊ/'])}}} ",
    "spans": lambda rng: f"[{word(rng)}]{{.smallcaps}} a[{rng.randrange(9)}]{{{rng.randrange(9)}}} ",
    "marks of voices": lambda rng: f"[voice:{word(rng)}] {word(rng)} [pause:{rng.randrange(9)}s] ",
    "chess": lambda rng: (
        f"{rng.randrange(1, 40)}. {rng.choice('NBRQK')}{rng.choice('abcdefgh')}{rng.randrange(1, 9)} e4 "
    ),
    "formulas": lambda rng: (
        f"{rng.randrange(99)} + {rng.randrange(99)} = {rng.randrange(99)} \u00d7 {rng.randrange(9)}² "
    ),
    "ranges": lambda rng: f"{rng.randrange(99)}\u2013{rng.randrange(99)} pp. {rng.randrange(99)}-{rng.randrange(99)} ",
    "hexadecimals": lambda rng: f"0x{rng.randrange(16**8):x} {rng.randrange(16**12):x} ",
    "hashtags": lambda rng: f"@{word(rng)}{rng.randrange(99)} #{word(rng)}{word(rng).title()} :) ",
    "numbered lines": lambda rng: f"{rng.randrange(99)}. {word(rng)}\n",
    "numbers of items alone": lambda rng: f"{rng.randrange(10**5)}.\n",
    "numbered lines of two words": lambda rng: f"{rng.randrange(10**4)}. {word(rng)} {word(rng)}\n",
    "short lines": lambda rng: f"{word(rng)}\n",
    "words of one line": lambda rng: letters(rng, 1, 9) + "\n",
    "capitals of one line": lambda rng: capitals(rng) + "\n",
    "sentences of one word": lambda rng: letters(rng, 2, 6).capitalize() + ". ",
    "negative numbers": lambda rng: f"-{rng.randrange(10**4)}\n",
    "lines of decimals": lambda rng: f"{1000 * rng.random():.2f}\n",
    "lines of dates": lambda rng: f"{rng.randrange(1, 13)}/{rng.randrange(1, 29)}/{rng.randrange(1900, 2030)}\n",
    "lines of times": lambda rng: f"{rng.randrange(24)}:{rng.randrange(60):02d}\n",
    "sums of money": lambda rng: f"${rng.randrange(10**6):,}.{rng.randrange(100):02d}\n",
    "lines of units": lambda rng: f"{rng.randrange(999)} {rng.choice(['km', 'kg', 'mph', 'MB', 'ft', 'oz'])}\n",
    "lines of streets": lambda rng: (
        f"{rng.randrange(1, 9999)} {word(rng).title()} {rng.choice(['St', 'Ave', 'Rd'])}., Apt. {rng.randrange(99)}\n"
    ),
    "tables of numbers": lambda rng: "\t".join(str(rng.randrange(10**4)) for _ in range(5)) + "\n",
    "scores": lambda rng: (
        f"{word(rng).title()} {rng.randrange(9)}-{rng.randrange(9)} {word(rng)} ({rng.randrange(90)}')\n"
    ),
    "recipes": lambda rng: f"{rng.randrange(1, 9)} {rng.randrange(1, 9)}/8 cups {word(rng)}, {rng.randrange(999)} g\n",
    "log lines": lambda rng: (
        f"2024-05-{rng.randrange(10, 29)} 10:{rng.randrange(10, 60)}:07,{rng.randrange(999)} INFO {word(rng)}.run\n"
    ),
    "identifiers": lambda rng: f"{rng.randrange(16**8):08x}-{rng.randrange(16**4):04x}-{rng.randrange(16**4):04x}\n",
    "items of a list": lambda rng: f"- {word(rng)} {rng.randrange(10**5)}\n",
    "chemistry": lambda rng: rng.choice(["H2O", "CO2", "C6H12O6", "NaCl", "Fe2O3", "CH3COOH", "SO4^2-"]) + " ",
    "numerals alone": lambda rng: rng.choice(["II", "IV", "V", "VIII", "IX", "XIV", "XL", "MCMXC"]) + ".\n",
    "other scripts": lambda rng: word(rng) + rng.choice(["\u6f22\u5b57", "\u043f\u0440\u0438", "\u05e9\u05dc"]) + " ",
    "nested brackets": lambda rng: f"((({word(rng)} [{word(rng)}] )))",
    "tags of SSML": lambda rng: f'{word(rng)} <break time="{rng.randrange(999)}ms"/> <emphasis>{word(rng)}</emphasis> ',
    "directions": lambda rng: (
        f"[{rng.choice(['laughs', 'sighs', 'x'])}] {word(rng)} ({rng.choice(['aside', 'smiles'])}) "
    ),
    "messages": lambda rng: (
        f"RT @{word(rng)}{rng.randrange(99)}: {word(rng)} #{word(rng)} \U0001f602 https://t.co/{letters(rng, 8, 9)}\n"
    ),
    "encoded bytes": lambda rng: rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"),
    "lines of ASCII": lambda rng: "".join(chr(rng.randrange(33, 127)) for _ in range(6)) + "\n",
    "any ASCII": lambda rng: chr(rng.randrange(32, 127)),
    "any character": lambda rng: chr(rng.randrange(32, 0xD7FF)),
    **{
        repr(unit): lambda rng, unit=unit: unit  # type: ignore[misc]
        for unit in (
            "1\n",
            "\\\n",
            "a.",
            "A.B.",
            "(((",
            "$1 ",
            "1\n\n",
            "I ",
            "\n",
            '"',
            "[",
            "a-\n",
            "| ",
            "😀\n",
            "---\n",
        )
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_time_is_linear_in_texts_of_every_kind(kind: str) -> None:
    """Four times the text takes about four times as long; what is quadratic would take sixteen times."""
    read_text(text_of(kind, 500))  # compiles the rules
    short = min(seconds(kind, 1000) for _ in range(2))
    assert seconds(kind, 4000) < 10 * short + 0.03 or seconds(kind, 4000) < 10 * short + 0.03


def test_the_words_of_numbers_are_searched_by_no_rule() -> None:
    """They are most of what is spoken of a text of numbers, and each is read a second time."""
    assert not may_be_read("eight million three hundred and twelve, seven")
    assert may_be_read("fifty km") and may_be_read("Dr. Fifty")


def test_no_rule_reads_words_of_amounts_in_any_order() -> None:
    """So texts of them alone are not searched."""
    rng, words = random.Random(0), sorted(AMOUNT_WORDS)
    for _ in range(200):
        parts = (rng.choice(words) + rng.choice([" ", " ", "-", ", ", ". ", "; ", ": ", "! ", "? "]) for _ in range(30))
        assert not may_be_read("".join(parts) + rng.choice(words))


@pytest.mark.parametrize("to", ["cardinal", "ordinal", "year"])
def test_names_of_numbers_are_those_of_the_library(to: str) -> None:
    """It is asked for small ones alone: each takes as long as a short sentence."""
    name = {"cardinal": grouped, "ordinal": ordinal, "year": year}[to]
    for number in [*range(1, 2100, 7), *range(1900, 2025), 3000, 4004, 9999]:
        assert name(str(number)) == num2words(number, to=to).replace(",", "")


def test_words_that_no_rule_matches_are_final() -> None:
    assert not may_be_read("one thousand two hundred and four. the house had BBC news")
    assert may_be_read("one thousand two hundred and four. the house vs. the river")


@pytest.mark.parametrize(
    ("line", "spoken"),
    [
        ("1911.", "nineteen eleven."),
        ("12:", "twelve:"),
        ("9110!", "nine thousand one hundred and ten!"),
        ("911", "nine one one"),
        ("911.", "nine one one."),
        ("007.", "zero zero seven."),
    ],
)
def test_a_number_alone_in_a_line_is_read_as_in_other_texts(line: str, spoken: str) -> None:
    assert read_text(line).sentences == (spoken,)


def test_lines_of_other_scripts_say_what_is_left_out() -> None:
    reading = read_text("\u6f22\u5b57\u3002\n\uac00\n\u6f22 a\n")
    assert [passage.left_out for passage in reading.passages] == [("\u6f22", "\u5b57"), ("\uac00",), ("\u6f22",)]
    assert reading.sentences == ("a",)


def text_of(kind: str, num_characters: int) -> str:
    rng, text = random.Random(kind), ""
    while len(text) < num_characters:
        text += KINDS[kind](rng)
    return text[:num_characters]


def seconds(kind: str, num_characters: int) -> float:
    text = text_of(kind, num_characters)
    started = time.process_time()
    read_text(text)
    return time.process_time() - started
