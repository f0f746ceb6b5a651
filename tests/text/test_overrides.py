"""`[word]{pronunciation}`, and what only looks like it: formulas, code, Pandoc's spans."""

from __future__ import annotations

from pathlib import Path

import pytest

from marstts.text.books.book import read_book
from marstts.text.normalize import normalize
from marstts.text.phones import readable
from marstts.text.reading import read_text


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        (r"The root \sqrt[4]{16} is 2.", "The fourth root of sixteen is two."),
        (r"Then \sqrt[n]{x} grows.", "Then nth root of x grows."),
        ("Use a[1]{2} here.", "Use a, one, two, here."),
        ("[1]{2} and [3]{4}.", "one, two, and, three, four."),
        ("Take arr[0]{1} out.", "Take arr, zero, one, out."),
        ("Then dict[key]{value} fails.", "Then dict, key, value, fails."),
        ("A [this]{ return x; } block.", "A, this, return x; block."),
        ("[Mary]{.underline} left.", "Mary left."),
        ("[Ann]{.smallcaps} spoke.", "Ann spoke."),
        ('[Bonjour]{lang=fr} and [Max]{#id .a key="v w"} left.', "Bonjour and Max left."),
        ("Say [GIF]{Q QQ1} now.", "Say GIF now."),
        ("Say [GIF]{/§/} now.", "Say GIF now."),
    ],
)
def test_what_is_no_pronunciation_is_text_with_a_warning(written: str, spoken: str) -> None:
    reading = read_text(written)
    assert " ".join(reading.sentences) == spoken == normalize(written)
    assert sum("no pronunciation" in warning for warning in reading.warnings) == 1


def test_a_warning_shows_what_was_read_as_text_once() -> None:
    (warning,) = read_text("[a1]{2} and [a1]{2} and [Mary]{.x}.").warnings
    assert warning == "read as text what is no pronunciation: [a1]{2} [Mary]{.x}"
    assert "…" in read_text(" ".join(f"[{number}]{{{number}}}" for number in range(20))).warnings[0]


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("[Nguyen]{win} and '[GIF]{J IH1 F}'.", "win and 'GIF'."),
        ("[Nguyen]{win}'s [GIF]{JH IH1 F}.", "win's {JH IH1 F}."),
        ("[2]{too} and [&]{and} (no [1984]{nineteen eighty four}).", "too and and, no nineteen eighty four."),
        ("[Dr. Li]{Doctor Lee} and [Siobhan]{/\u0283\u026av\u0254\u02d0n/}.", "Doctor Lee and {SH IH1 V AO0 N}."),
    ],
)
def test_pronunciations_are_read(written: str, spoken: str) -> None:
    assert readable(" ".join(read_text(written).sentences)) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("A [link](http://x.org){.external} here.", "A link here."),
        ("![A pier](a.png){width=50%} It rained.", "A pier It rained."),
        ("Run `make`{.bash} now.", "Run 'make' now."),
        ("# The Storm {#sec:storm .unnumbered}\n\nIt rained.", "The Storm. It rained."),
        ("::: {.note}\nIt rained.\n:::\n\nIt stopped.", "It rained. It stopped."),
    ],
)
def test_attributes_of_pandoc_are_no_words(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


def test_no_chapter_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "book.md"
    path.write_text("# One\n\nThe root \\sqrt[3]{8} is [1]{2}.\n\n# Two\n\nIt rained.\n", encoding="utf-8")
    chapters = [read_text(chapter.text).sentences for chapter in read_book(path)]
    assert [sentences[-1] for sentences in chapters] == ["The cube root of eight is, one, two.", "It rained."]
