"""What comes with texts from PDF files, papers, plays, forums, subtitles and scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from marstts.text.books.book import read_book
from marstts.text.normalize import normalize
from marstts.text.reading import read_stream, read_text


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("an inter-\nesting man", "an interesting man"),
        ("the govern-\nment we re-\nduce", "the government we reduce"),
        ("nega-\ntive connec-\ntions of the com-\nmittee", "negative connections of the committee"),
        ("to-\ngether, with-\nout friend-\nship", "together, without friendship"),
        ("an emo\u00ad\ntional day", "an emotional day"),
        ("a well-\nmade boat and a good-\nnatured, self-\nimportant man",
         "a well-made boat and a good-natured, self-important man"),
        ("a mother-in-\nlaw of twenty-\nfive, by e-\nmail", "a mother-in-law of twenty-five, by e-mail"),
    ],
)  # fmt: skip
def test_words_divided_at_line_ends_are_joined(written: str, spoken: str) -> None:
    assert normalize(written) == spoken
    pieces = [segment.text for passage in read_stream(list(written)) for segment in passage.segments]
    assert " ".join(pieces) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("It grew [3].", "It grew."),
        ("He knew [4\u20136] well.", "He knew well."),
        ("It fell.† Then it rose.[†] Then.", "It fell. Then it rose. Then."),
        ("rest matters [4,5] and more [6\u20139]", "rest matters and more"),
        ("The city[2] was old.[3][4] It sank [12], [13].", "The city was old. It sank."),
        ("It is known [@doe99; @smith, p. 3] and true[citation needed].", "It is known and true."),
        ("The price* is low.", "The price is low."),
        ("Press [3] now.", "Press, three, now."),
        ("As shown in [3], it grows.", "As shown in, three, it grows."),
        ("arr[0] and x = [1, 2]", "arr, zero, and x equals, one, two,"),
        ("Ann Low (†1990) left.", "Ann Low, died nineteen ninety, left."),
    ],
)
def test_citations_and_marks_of_notes_are_left_out(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("II\n\nIt rained.", "two. It rained."),
        ("I\n\nIt rained.", "one. It rained."),
        ("IV. The Storm", "four, The Storm"),
        ("V. The Letter", "five, The Letter"),
        ("II: The Return", "two, The Return"),
        ("# IX", "nine"),
        ("XL\n\nIt rained.", "forty. It rained."),
        ("CD", "C D"),
        ("X. Li came.", "X. Li came."),
        ("I saw it.\nI did.", "I saw it. I did."),
    ],
)
def test_roman_numerals_alone_are_headings(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("ROMEO: Stay.", "ROMEO: Stay."),
        ("PUCK\nUp and down.", "PUCK. Up and down."),
        ("AMY\nWhere is JIM?", "AMY. Where is JIM?"),
        ("IAGO. My lord.", "IAGO. My lord."),
        ("OZRIC (aside): Yes.", "OZRIC, aside: Yes."),
        ("CEO: Tim", "C E O: Tim"),
        ("NAACP: yes", "N A A C P: yes"),
        ("FAQ\nAPI\nDNA", "F A Q. A P I. D N A"),
        ("The IRA met at MIT.", "The I R A met at M I T."),
    ],
)
def test_names_of_plays_are_words(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("© 2019 Ann Low", "copyright twenty nineteen Ann Low"),
        ("© Ann 2020", "copyright Ann twenty twenty"),
        ("Copyright © 2019 Ann. Text (c) 2021 Bob.",
         "Copyright twenty nineteen Ann. Text copyright twenty twenty-one Bob."),
    ],
)  # fmt: skip
def test_the_sign_of_copyright_is_read(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("5 mg·kg⁻¹·d⁻¹", "five milligrams per kilogram per day"),
        ("4 mg·mL⁻¹", "four milligrams per milliliter"),
        ("10 m·s⁻¹", "ten meters per second"),
        ("2 J·K⁻¹", "two joules per kelvin"),
        ("9.81 m s⁻², 20 µg·m⁻³",
         "nine point eight one meters per second squared, twenty micrograms per cubic meter"),
        ("25 W·m⁻²·K⁻¹, 5 s⁻¹, 3 N·m",
         "twenty-five watts per square meter per kelvin, five per second, three newton meters"),
        ("5 m·s^-1 and 5 m·s^{-1}", "five meters per second and five meters per second"),
    ],
)  # fmt: skip
def test_products_of_units_have_negative_powers(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("[b]Bold[/b] [url=http://x.org]link[/url]", "Bold link"),
        ("[i]So[/i] it is. [quote=Ann]Hello.[/quote] [size=3]big[/size]", "So it is. Hello. big"),
        ("See [img]http://x.org/a.png[/img] here.", "See here."),
        ("[list]\n[*]One\n[*]Two\n[/list]", "One. Two"),
        ("Then a[i] and [i]so[/i].", "Then a, i, and so."),
    ],
)
def test_marks_of_forums_are_no_words(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


def test_marks_of_speakers_are_left_out_with_a_warning() -> None:
    reading = read_text("[S1] I see [S2] you do. [S1] Hi! [Speaker 2]: No.")
    assert " ".join(reading.sentences) == "I see. you do. Hi! No."
    assert "[S1] [S2] [Speaker 2]:" in reading.warnings[0]


SRT = """1
00:00:01,000 --> 00:00:04,000
Hello there.

2
00:00:05,000 --> 00:00:06,500
{\\an8}I was going
to the store

3
00:00:07,000 --> 00:00:09,000
and then I left.
"""
VTT = """WEBVTT
Kind: captions

NOTE a remark
of two lines

intro
00:01.000 --> 00:04.000 align:start position:0%
<v Ann>Hello there.</v>

00:05.000 --> 00:06.000
Bye.
"""


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_subtitles_are_read_without_numbers_and_times(size: int) -> None:
    def spoken(text: str) -> str:
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        return " ".join(segment.text for passage in read_stream(pieces) for segment in passage.segments)

    assert spoken(SRT) == "Hello there. I was going to the store and then I left."
    assert spoken(SRT.replace("\n", "\r\n")) == spoken(SRT)
    assert spoken(VTT) == "Hello there. Bye."
    assert spoken("1\n\nIt rained.\n\n2\n\nIt stopped.\n\n3") == "one. It rained. two. It stopped. three"


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("---\ntitle: A\ntags: [a, b]\nlist:\n  - x\n---\n\nIt rained.", "It rained."),
        ('+++\ntitle = "A"\n+++\nIt rained.', "It rained."),
        ("---\nIt rained.\n---\nThen.", "It rained. Then."),
        ("---\n\nIt rained.\n\n---\n\nThen.", "It rained. Then."),
        ("---\ntitle: A\nIt rained.", "title: A. It rained."),
        ("It rained.\n\n---\nkey: value\n---\n\nThen.", "It rained. key: value. Then."),
    ],
)
def test_front_matter_is_no_text(written: str, spoken: str, size: int) -> None:
    pieces = [written[start : start + size] for start in range(0, len(written), size)]
    assert " ".join(segment.text for each in read_stream(pieces) for segment in each.segments if segment.text) == spoken


def test_front_matter_names_a_book(tmp_path: Path) -> None:
    path = tmp_path / "book.md"
    path.write_text('---\ntitle: "The Storm"\nauthor: Ann Low\n---\n\n# One\n\nIt rained.\n', encoding="utf-8")
    book = read_book(path)
    assert (book.title, book.author) == ("The Storm", "Ann Low")
    assert [chapter.text for chapter in book] == ["It rained."]


@pytest.mark.parametrize(
    ("line", "spoken"),
    [
        ("<v Bob>Hello there.", "Hello there."),
        ("<v.loud Ann Low>Go!</v>", "Go!"),
        ("<c.yellow.bg>It <00:01.500>rained.</c>", "It rained."),
        ("<lang en-GB>It fell.</lang>", "It fell."),
    ],
)
def test_tags_of_subtitles_are_no_words(line: str, spoken: str) -> None:
    assert normalize(f"WEBVTT\n\n00:01.000 --> 00:02.000 align:start\n{line}\n") == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [("She saw [2, 5] and [8\u201310] too.", "She saw too."), ("It rose [1] and [2].", "It rose.")],
)
def test_citations_joined_by_and_are_left_out(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


def test_times_that_are_no_symbols_stand_in_products_of_units() -> None:
    assert normalize("5 mg·kg⁻¹·day⁻¹") == "five milligrams per kilogram per day"
    assert normalize("9 kg·year⁻¹") == "nine kilograms per year"
