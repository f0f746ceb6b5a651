"""Normalization: written forms become words; any pasted text is accepted."""

from __future__ import annotations

import random
import re
import time

import pytest

from marstts.text.normalize import normalize
from marstts.text.numbers.units import units
from marstts.text.reading import read_text

SPOKEN = re.compile(r"[A-Za-z.,?!;:'\" -]*")


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        # plain numbers
        ("0", "zero"),
        ("1,234,567", "one million two hundred and thirty-four thousand five hundred and sixty-seven"),
        ("3.14", "three point one four"),
        (".5 or 0.05", "point five or zero point zero five"),
        ("-7 and \N{MINUS SIGN}7", "minus seven and minus seven"),
        ("1,2,3", "one, two, three"),
        ("007", "zero zero seven"),
        ("version 1.2.3", "version one point two point three"),
        ("16-bit 3D MP3", "sixteen-bit three D M P three"),
        # ordinals, fractions, ranges
        ("1st 2nd 3rd 21st 1,000th", "first second third twenty-first one thousandth"),
        ("1/2, 3/4, 2/3, 7/8", "one half, three quarters, two thirds, seven eighths"),
        ("2 1/2 and 2½ and ¼", "two and a half and two and a half and one quarter"),
        ("7/250", "seven over two hundred and fifty"),
        ("24/7", "twenty-four seven"),
        ("5-10 or 5\u201310", "five to ten or five to ten"),
        # years, dates, times
        ("1984 2005 2024 1905 1900", "nineteen eighty-four two thousand and five twenty twenty-four nineteen oh-five "
                                     "nineteen hundred"),
        ("the 1980s and '90s", "the nineteen eighties and nineties"),
        ("1914\u20131918", "nineteen fourteen to nineteen eighteen"),
        ("May 5, 2020", "May fifth, twenty twenty"),
        ("Jan. 1st", "January first"),
        ("on 5 May 1984.", "on the fifth of May, nineteen eighty-four."),
        ("the 4th of July", "the fourth of July"),
        ("in May 2020", "in May twenty twenty"),
        ("2024-05-13", "May thirteenth, twenty twenty-four"),
        ("5/13/2024 13/5/2024", "May thirteenth, twenty twenty-four May thirteenth, twenty twenty-four"),
        ("4:30 pm", "four thirty P M"),
        ("At 4:05 a.m. he slept.", "At four oh five A M he slept."),
        ("At 4 p.m. He left.", "At four P M. He left."),
        ("4:00", "four o'clock"),
        ("3:2", "three to two"),
        # money
        ("$3.50", "three dollars and fifty cents"),
        ("$1 £1.01 $0.99 50¢", "one dollar one pound and one penny ninety-nine cents fifty cents"),
        ("£3.5 million, €20bn, -$5", "three point five million pounds, twenty billion euros, minus five dollars"),
        ("5€", "five euros"),
        ("$1,000", "one thousand dollars"),
        # units, percent, degrees
        ("5% 5.5 %", "five percent five point five percent"),
        ("5 km, 1 lb, 60mph, 10kg", "five kilometers, one pound, sixty miles per hour, ten kilograms"),
        ("-5°C 98.6 °F 20°", "minus five degrees Celsius ninety-eight point six degrees Fahrenheit twenty degrees"),
        # telephones
        ("555-1234", "five five five, one two three four"),
        ("(555) 123-4567", "five five five, one two three, four five six seven"),
        ("+44 20 7946 0958", "plus four four, two zero, seven nine four six, zero nine five eight"),
        # abbreviations
        ("Dr. Smith, Mr Jones, Mrs. Li", "Doctor Smith, Mister Jones, Missus Li"),
        ("St. Paul on Main St. Then", "Saint Paul on Main Street. Then"),
        ("e.g. this, i.e. that", "for example this, that is that"),
        ("pears, etc. are; pears, etc.", "pears, et cetera are; pears, et cetera."),
        ("No. 5 on p. 12", "Number five on page twelve"),
        ("No. Never.", "No. Never."),
        ("Lt. Col. Ito vs. Prof. Ono", "Lieutenant Colonel Ito versus Professor Ono"),
        ("the U.S. Army", "the U S Army"),
        ("J. R. Smith", "J. R. Smith"),
        ("Chapter IV, World War II", "Chapter four, World War two"),
        ("BBC DVDs NASA MY HMM", "B B C D V D's NASA MY HMM"),
        # symbols and addresses
        ("A & B @ C + D = E", "A and B at C plus D equals E"),
        ("#5 #fun C#", "number five hashtag fun C sharp"),
        ("2 \u00d7 3 ÷ 4", "two times three divided by four"),
        ("a (short) word.", "a, short, word."),
        ("me@example.com", "me at example dot com"),
        ("https://www.example.org/a.", "W W W dot example dot org slash a."),
        # characters
        ("café naïve Straße ﬁne \uff21", "cafe naive Strasse fine A"),
        ("“Don\u2019t” \u2018go\u2019…", "\"Don't\" 'go'..."),
        ("wait — no \u2013 yes--so", "wait - no - yes - so"),
        ("e\N{COMBINING ACUTE ACCENT}t\N{ZERO WIDTH JOINER}e so\N{SOFT HYPHEN}ft", "ete soft"),
        ("\N{ARABIC-INDIC DIGIT THREE} 日本語 😀 Привет ok", "three ok"),
        # punctuation and space
        ("What?!?! No!!! Well....  so ,, yes", "What?! No! Well... so, yes"),
        ("Title\n\nText\nhere", "Title. Text here"),
        ("Hello.World", "Hello. World"),
        ("... - and so", "and so"),
        ("well-known rock-'n'-roll", "well-known rock-'n'-roll"),
    ],
)  # fmt: skip
def test_written_forms_are_read_out(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize("text", ["", "   \n", "😀🎉", "日本語", "...", "?!", "\x00\u200d", "- — ()", "\ud83d"])
def test_text_without_words_gives_no_sentence(text: str) -> None:
    assert normalize(text) == ""


def test_plain_prose_is_left_alone() -> None:
    prose = 'The old man said, "We set sail at dawn"; nobody\'s well-known plan - not mine: was it? Yes! So...'
    assert normalize(prose) == prose


FRAGMENTS = [
    "Mr", "Mrs.", "Dr", "St", "St.", "etc", "e.g.", "p.m.", "am", "No", "al.", "vol.", "U.S", "J.", "IV", "Chapter",
    "I", "BBC", "TVs", "www.", "http://", "x.com", "a@b.co", "May", "Jan", "A", "b", "Z", "million", "km", "lb",
    "m", "k", "5", "12", "1984", "007", "1,000", "3.14", "1/2", "4:30", "5th", "s", "'80s", "0", "th", "½", "²",
    "²³", "#", "$", "£", "€", "%", "°", "&", "@", "+", "=", "<", ">", "_", "*", "~", "^", "|", "\\", "(", ")", "[",
    "{", ".", ",", ":", ";", "?", "!", "...", "-", "--", "—", "\u2013", "/", '"', '""', "'", "''", "\u2019", " ",
    " ", " ", " ", " ", "  ", "\n", "\n\n", "\t", "\u00a0", "\u200d", "\u0301", "é", "日", "😀", "\ud800", "\x00",
]  # fmt: skip


def random_text(rng: random.Random) -> str:
    return "".join(rng.choice(FRAGMENTS) for _ in range(rng.randrange(1, 20)))


def test_output_holds_only_what_is_spoken_and_is_stable() -> None:
    rng = random.Random(11)
    for _ in range(60):
        text = random_text(rng)
        spoken = normalize(text)
        assert SPOKEN.fullmatch(spoken), text
        assert spoken == " ".join(spoken.split()), text
        assert normalize(spoken) == spoken, text


def test_random_unicode_is_survived() -> None:
    rng = random.Random(12)
    for _ in range(60):
        text = "".join(chr(rng.randrange(0x110000 if rng.random() < 0.3 else 0x2FF)) for _ in range(40))
        assert SPOKEN.fullmatch(normalize(text))


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        *["a", "a.", "A.", " ", "\n", '"', "-", "@", "a@", "a-", "(", "St. ", "https://x", "é", "B", "word "],
        *["1", "1,", "1,111,", "1.", "1/", "1:", "1-", "+1 ", "555-", "$1", ".1"],
    ],
)  # fmt: skip
def test_time_is_linear_whatever_is_repeated(unit: str) -> None:
    """Four times the text takes about four times as long; a quadratic pattern would take sixteen times."""

    def seconds(num_characters: int) -> float:
        text = (unit * num_characters)[:num_characters]
        start = time.process_time()
        normalize(text)
        return time.process_time() - start

    short = min(seconds(250) for _ in range(2))
    assert seconds(1_000) < 10 * short + 0.03 or seconds(1_000) < 10 * short + 0.03


def test_a_range_of_times_is_no_offset_from_utc() -> None:
    assert normalize("Class runs 10:30-11:45.") == "Class runs ten thirty to eleven forty-five."
    assert "U T C minus five" in normalize("2024-05-01T10:30:00-05:00")


def test_dollar_signs_of_a_formula_are_no_money() -> None:
    assert "dollar" not in normalize(r"Area $\frac{1}{2}bh$ and $x$.")


def test_an_option_in_plain_words_is_read() -> None:
    assert normalize("Use git commit -m fix.") == "Use git commit dash m fix."


def test_the_table_of_units_is_built_once() -> None:
    assert units() is units()


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Yes, IT'S true.", "Yes, IT'S true."),
        ("WHO'S there?", "WHO'S there?"),
        ("IT'LL do.", "IT'LL do."),
        ("The WHO's report.", "The W H O's report."),
        ("THE BBC'S NEW SHOW.", "THE B B C'S NEW SHOW."),
    ],
)
def test_contractions_in_capitals_are_words_and_possessives_of_initialisms_are_not(written: str, spoken: str):
    assert normalize(written) == spoken


@pytest.mark.parametrize("num_digits", [1, 2, 3, 4, 7, 8, 10, 11, 15, 16, 30])
def test_a_line_of_digits_is_read_as_the_rules_read_it(num_digits: int) -> None:
    rng = random.Random(num_digits)
    for _ in range(5):
        digits = str(rng.randrange(10 ** (num_digits - 1), 10**num_digits))
        assert normalize(digits) + "." == normalize(f"{digits}.")
        [step] = read_text(digits).passages[0].steps
        assert (step.rule, step.written, step.read) == ("number.plain", digits, normalize(digits))
