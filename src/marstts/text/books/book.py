"""Books: an EPUB or a plain-text file in, its chapters with titles out.

Upstream: a file.  Downstream: `reading`, chapter by chapter; the command that writes an audio file for each chapter.
An EPUB is a zip file of XHTML (https://www.w3.org/TR/epub-33). Nothing is unpacked to disk, every part is read up to a
bound, and XML that declares entities is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from marstts.errors import DataError
from marstts.io.reading import printable_name, read_regular_file, utf16_of, whole_units
from marstts.text.books.epub import EpubContent, Notes, is_epub, read_epub
from marstts.text.books.formats import refuse_binary_formats, refuse_other_formats
from marstts.text.front_matter import without_front_matter

MAX_FILE_BYTES = 16 * 2**20
MAX_LINES = 600_000
"""Bytes and lines of a text file."""
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"

_NUMBER_WORD = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    "|eighteen"
    "|nineteen|twenty|thirty|forty|fifty|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|last"
)
_HEADING = re.compile(
    rf"\s*(?:(?:chapter|part|book|canto|letter|act|volume|stave)\s+(?:[ivxlc]{{1,8}}|[0-9]{{1,3}}|the\s+\w{{1,12}}"
    rf"|(?:{_NUMBER_WORD})(?:[ -](?:{_NUMBER_WORD}))?)\b[.:\u2014 -]{{0,3}}.{{0,80}}"
    r"|(?:prologue|epilogue|preface|introduction|foreword|afterword|appendix|dedication"
    r"|acknowledge?ments)\b[.:]?.{0,60})\s*",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]")
_MARKDOWN_HEADING = re.compile(r"#{1,2}[ \t]+(?P<title>\S.{0,120}?)[ \t]*#*\s*")
_STATED = re.compile(r"\s*(?:(?:Title|Author): .{1,200}(?:\n\s*|$))+")
"""Title and author at the beginning of a text, which are no words of its first chapter."""

_GUTENBERG_START = re.compile(r"^\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG.{0,200}$", re.MULTILINE)
_GUTENBERG_END = re.compile(
    r"^(?:\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG|End of (?:the )?Project Gutenberg)", re.MULTILINE
)


@dataclass(frozen=True)
class Chapter:
    """One chapter of a book."""

    number: int
    """Counts from 1, in the order of the book."""

    title: str
    text: str
    """Paragraphs with blank lines between; the title is no part of it."""

    is_titled: bool = True
    """Whether the book states the title; False where it is made up from its number or the file's name."""

    @property
    def spoken(self) -> str:
        """The text with its title as a heading, if the book states one."""
        return f"# {self.title}\n\n{self.text}" if self.is_titled else self.text


@dataclass(frozen=True)
class Book:
    """A book and its metadata."""

    title: str
    author: str
    language: str
    """Code such as `en`; empty where the file names none."""

    chapters: tuple[Chapter, ...]

    authors: tuple[str, ...] = ()
    """All authors; `author` joins them."""

    cover: bytes = field(default=b"", repr=False)
    """The picture of the cover, JPEG or PNG; empty where there is none."""

    warnings: tuple[str, ...] = ()
    """What of the book cannot be spoken."""

    description: str = ""
    date: str = ""
    """When it was published, a year or an ISO date; empty where the file does not state it."""

    def __iter__(self) -> Iterator[Chapter]:
        return iter(self.chapters)


def read_book(path: Path | str, notes: Notes = Notes.IN_PLACE) -> Book:
    """The book in an EPUB or text file; a text without chapter headings is one chapter.

    notes: where the notes of an EPUB are read.

    Raises DataError where the file cannot be read, is too large, is protected, or holds no words.
    """
    path = Path(path)
    if is_epub(path):
        content = read_epub(path, notes)
        parts = [(title, text) for title, text in content.chapters if _has_words(text) or _has_words(title)]
        about = (content.title or path.stem, ", ".join(content.authors), content.language)
        num_texts = sum(_has_words(text) for _, text in parts)
        found = Book(
            *about, _number(parts), content.authors, content.cover, _warnings(content, num_texts),
            content.description, content.date,
        )  # fmt: skip
    else:
        text = _decode(path)
        refuse_other_formats(text, printable_name(path), DataError)
        if sum(map(text.count, _LINE_ENDS)) > MAX_LINES:
            raise DataError(f"{printable_name(path)}: expected a book of at most {MAX_LINES} lines; give a part of it")
        found = book_of_text(text, path.stem)
    if not found.chapters:
        problem = "; ".join(["there are no words in it", *found.warnings])
        raise DataError(f"{printable_name(path)}: expected a book, but {problem}")
    return found


def _warnings(content: EpubContent, num_texts: int) -> tuple[str, ...]:
    """What cannot be spoken: where most of a book is pictures (a cover and some plates are in many), or parts miss."""
    found = []
    if content.num_pictures > num_texts:
        pages = f"{_count(content.num_pictures, 'page')} of pictures without words, which cannot be spoken"
        found.append(pages if num_texts else f"{pages}; nothing else is in the book")
    if content.num_lost:
        found.append(f"the book names {_count(content.num_lost, 'part')} that the file does not hold")
    if content.num_aside:
        found.append(
            f"left out {_count(content.num_aside, 'part')} that the book keeps outside of its reading order and its "
            "table of contents"
        )
    if content.num_formulas:
        found.append(f"left out {_count(content.num_formulas, 'formula')} without content that can be read")
    return tuple(found)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"


def book_of_text(text: str, name: str) -> Book:
    """The book in a plain text; `name` is its title where the text states none."""
    text, matter = without_front_matter(text)
    stated_title = matter.get("title", "") or _stated(text, "Title")
    author = matter.get("author", "") or _stated(text, "Author")
    title = stated_title or name
    if start := _GUTENBERG_START.search(text):
        text = text[start.end() :]
    elif stated := _STATED.match(text):
        text = text[stated.end() :]
    if end := _GUTENBERG_END.search(text):
        text = text[: end.start()]
    chapters = (
        Chapter(number, heading or title, part, is_titled=bool(heading or stated_title))
        for number, (heading, part) in enumerate(_cut_chapters(text), 1)
    )
    return Book(title, author, "", tuple(chapters))


def _cut_chapters(text: str) -> Iterator[tuple[str, str]]:
    """Titles and texts; what stands before the first heading has no title. A heading stands alone between blank lines.

    One without words behind it, such as a line of a table of contents, is passed over; words never are.
    """
    title = ""
    lines: list[str] = []
    blank_before = True
    rows = text.splitlines()
    for index, line in enumerate(rows):
        blank_after = index + 1 >= len(rows) or not rows[index + 1].strip()
        heading = _heading_of(line) if blank_before and len(line) < 140 else None
        if heading is not None and (blank_after or line.startswith("#")):
            yield from _chapter(title, lines)
            title, lines = heading, []
        else:
            lines.append(line)
        blank_before = not line.strip()
    yield from _chapter(title, lines)


def _heading_of(line: str) -> str | None:
    if markdown := _MARKDOWN_HEADING.fullmatch(line):
        return markdown["title"]
    return " ".join(line.split()) if _HEADING.fullmatch(line) else None


def _chapter(title: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    text = "\n".join(lines).strip()
    if _has_words(text):
        yield title, text


def _number(parts: list[tuple[str, str]]) -> tuple[Chapter, ...]:
    return tuple(
        Chapter(number, title.strip() or f"Part {number}", text, is_titled=bool(title.strip()))
        for number, (title, text) in enumerate(parts, 1)
    )


def _stated(text: str, field: str) -> str:
    match = re.search(rf"^{field}: (.{{1,200}})$", text[:4000], re.MULTILINE)
    return match[1].strip() if match else ""


def _has_words(text: str) -> bool:
    return _WORD.search(text) is not None


def _decode(path: Path) -> str:
    """The text of a file in UTF-8 or UTF-16; other bytes are taken as Windows-1252, as old books are."""
    content = read_regular_file(path, MAX_FILE_BYTES, DataError)
    refuse_binary_formats(content, printable_name(path), DataError)
    if (encoding := utf16_of(content)) is not None:
        return whole_units(content).decode(encoding, "replace").removeprefix("\ufeff")
    if b"\0" in content[:4096]:
        raise DataError(f"{printable_name(path)}: expected an EPUB or a text file, but it holds bytes that are no text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")
