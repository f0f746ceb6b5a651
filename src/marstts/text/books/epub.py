"""EPUB files: the title, the author and the chapters of the XHTML documents in a zip file.

Upstream: a file.  Downstream: `books`.
Chapters follow the table of contents (the EPUB 3 navigation document or the EPUB 2 NCX). Documents that it does not
name continue the chapter before. Without one, every document of the spine is a chapter.
"""

from __future__ import annotations

import posixpath
import re
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import Enum
from html import unescape
from pathlib import Path
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from marstts.errors import DataError
from marstts.io.archives import CORRUPT, open_zip, read_part
from marstts.io.reading import printable_name, printable_text
from marstts.text.books.encodings import decode_document, without_declaration
from marstts.text.bounded_xml import Malformed, parse_xml
from marstts.text.mathml import MathReader
from marstts.text.tags import lowered, raised, without_tags
from marstts.text.xhtml import Tag, read_xhtml

MAX_FILE_BYTES = 1024 * 2**20
MAX_PART_BYTES = 12 * 2**20
MAX_TEXT_BYTES = 16 * 2**20
"""Bytes of one part, and of all parts that are read; the longest novels have 5 MB with all tags."""
MAX_XML_BYTES = 4 * 2**20
MAX_MARKS = 600_000
"""`<` in all documents: tags and comments."""
MAX_REFERENCES = 300_000
"""`&` in all documents: each may be a character reference, which takes longer than a letter."""
MAX_BLOCK_CHARACTERS = 4 * 2**20
MAX_SECONDS = 1.7
"""Processor time that a book may take; a megabyte takes 0.1 to 0.2 s."""
MAX_PARTS = 10_000
MAX_DIRECTORY_BYTES = 2 * 2**20
"""Bytes of the zip file's table of contents, which is read whole."""
MAX_TITLE_CHARACTERS = 500
MAX_DESCRIPTION_CHARACTERS = 4000
MAX_TABLES = 20
"""Tables within each other whose rows are read as rows."""

MAX_CELL_CHARACTERS = 120
"""Longer cells of a table are paragraphs; shorter ones are read with those of their row."""

MAX_TARGET = 200
"""Characters of the end of a link that may name a note."""
MAX_COMPARED = 4 * MAX_TITLE_CHARACTERS
"""Characters of a block that are compared with a title."""
CONTAINER = "META-INF/container.xml"
ENCRYPTION = "META-INF/encryption.xml"

_PICTURE_TYPES = ("image/jpeg", "image/png")
_DOCUMENT_TYPES = ("application/xhtml+xml", "text/html", "text/x-oeb1-document")
MAX_COVER_BYTES = 16 * 2**20

_BLOCKS = frozenset([
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr",
    "legend", "li", "main", "menu", "ol", "p", "pre", "section", "summary", "table", "td", "th", "tr", "ul",
])  # fmt: skip
_SILENT = frozenset(
    [
        "audio",
        "canvas",
        "del",
        "head",
        "iframe",
        "nav",
        "noscript",
        "rp",
        "rt",
        "script",
        "style",
        "svg",
        "title",
        "video",
    ]
)
_HEADINGS = frozenset(["h1", "h2", "h3"])
_EMPTY = frozenset(["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"])
"""Elements that have no end tag."""

_PAGE_NUMBERS = frozenset(
    ["pagebreak", "doc-pagebreak", "pagenum", "page-number", "pagenumber", "pageno", "page-break"]
)
_NOTE_MARKS = frozenset(["noteref", "doc-noteref", "footnote-ref", "footnoteref", "fnref", "footnote-reference"])
_NOTES = frozenset(
    [
        "footnote",
        "footnotes",
        "endnote",
        "endnotes",
        "rearnote",
        "rearnotes",
        "doc-footnote",
        "doc-endnote",
        "doc-endnotes",
    ]
)
_BACK_LINKS = frozenset(["backlink", "doc-backlink", "footnote-back", "footnote-backref"])
_HIDING_STYLE = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse))", re.IGNORECASE)
_RAISING_STYLE = re.compile(r"vertical-align\s*:\s*super", re.IGNORECASE)
_RAISED = frozenset(["sup", "super", "superscript"])
_DATE = re.compile(r"[12][0-9]{3}(?:-[0-9]{2}(?:-[0-9]{2})?)?(?![0-9])")
_YEAR = re.compile(r"(?<![0-9])(?:1[0-9]|20)[0-9]{2}(?![0-9])")
_FORMULA_CLASS = re.compile("math|formula|equation|latex", re.IGNORECASE)
_NOTE_TARGET = re.compile(r"#(?:.*(?:fn|note|foot)|[nr]?[_-]?[0-9])", re.IGNORECASE)
_MARK_OF_NOTE = re.compile(r"\s*[\[(]?(?:[0-9]{1,4}|[*\u2020\u2021\u00a7]{1,4}|[a-z]|\u21a9\ufe0e?|\u2191)[\])]?\s*")


class Notes(str, Enum):
    """Where footnotes and endnotes are read. Their marks in the text never are."""

    IN_PLACE = "in-place"
    """Where they stand in the book."""
    AT_END = "at-end"
    """After the other text of their chapter."""
    LEFT_OUT = "left-out"


@dataclass(frozen=True)
class EpubContent:
    """Content of an EPUB."""

    title: str
    language: str
    chapters: tuple[tuple[str, str], ...]
    """Title and text of each."""

    authors: tuple[str, ...] = ()
    cover: bytes = field(default=b"", repr=False)
    """JPEG or PNG; empty where there is none."""

    num_pictures: int = 0
    """Documents that hold pictures and no words."""

    num_lost: int = 0
    """Documents that the book names and does not hold."""

    num_aside: int = 0
    """Documents with words outside of the reading order that the table of contents does not name either."""

    num_formulas: int = 0
    """Formulas that cannot be read."""

    description: str = ""
    date: str = ""
    """When it was published: a year, or an ISO date."""


@dataclass
class _Section:
    """The text between two places that the table of contents names."""

    title: str | None
    blocks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Notes that are read after the blocks."""


def is_epub(path: Path) -> bool:
    """Whether the file is an EPUB: a zip file with a container document; raises DataError where it is too large."""
    try:
        with _open_archive(path) as archive:
            return CONTAINER in archive.namelist()
    except CORRUPT:
        return False


def is_epub_file(path: Path) -> bool:
    """Whether the path is an EPUB; False where it cannot be read."""
    try:
        return path.is_file() and is_epub(path)
    except (OSError, ValueError):
        return False


def read_epub(path: Path, notes: Notes = Notes.IN_PLACE) -> EpubContent:
    """The content of an EPUB; raises DataError where it is corrupt, too large or protected."""
    try:
        with _open_archive(path) as archive:
            return _Package(path, archive, notes).read()
    except CORRUPT as error:
        problem = printable_text(str(error), 200)
        raise DataError(f"{printable_name(path)}: expected an EPUB, but it is corrupt: {problem}") from error


def _open_archive(path: Path) -> AbstractContextManager[zipfile.ZipFile]:
    """The open zip file; raises DataError where its directory is so large that it could fill the memory."""
    return open_zip(path, MAX_FILE_BYTES, MAX_DIRECTORY_BYTES, DataError)


class _Costs:
    """What a book has cost until now; DataError where that is more than any book needs."""

    def __init__(self, name: str) -> None:
        self.name, self.started = name, time.thread_time()
        self.num_bytes = self.num_pieces = self.num_marks = self.num_references = 0

    def check_time(self) -> None:
        """Compare the time."""
        if time.thread_time() - self.started > MAX_SECONDS:
            raise DataError(
                f"{self.name}: the book takes more than {MAX_SECONDS:g} s to read; give it in smaller files"
            )

    def tokens(self, document: str) -> Iterator[Tag | str]:
        """Tags and text of a document, counted."""
        self.num_references += document.count("&")
        self.num_marks += document.count("<")
        if self.num_references > MAX_REFERENCES or self.num_marks > MAX_MARKS:
            raise DataError(
                f"{self.name}: the book has {self.num_marks} tags and {self.num_references} character references; at "
                f"most {MAX_MARKS} and {MAX_REFERENCES} can be read; divide it"
            )
        for piece in read_xhtml(document):
            self.num_pieces += 1
            if self.num_pieces % 32 == 0:
                self.check_time()
            if isinstance(piece, str) and len(piece) > MAX_BLOCK_CHARACTERS:
                raise DataError(f"{self.name}: a paragraph of the book has more than {MAX_BLOCK_CHARACTERS} characters")
            yield piece


class _Package:
    """An open EPUB."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, notes: Notes) -> None:
        self.notes = notes
        self.num_pictures = self.num_lost = self.num_aside = self.num_formulas = 0
        self.name = printable_name(path)
        self.archive = archive
        self.costs = _Costs(self.name)
        names = archive.namelist()
        if len(names) > MAX_PARTS:
            raise DataError(f"{self.name}: an EPUB of {len(names)} parts; at most {MAX_PARTS} can be read")
        self.names = frozenset(names)

    def read(self) -> EpubContent:
        """The content of the book, in the order of its spine."""
        rootfile = next(_named(self.xml(CONTAINER), "rootfile"), None)
        package_path = unquote(rootfile.get("full-path", "")) if rootfile is not None else ""
        package = self.xml(package_path)
        folder = posixpath.dirname(package_path)
        items = {item.get("id", ""): item for item in _named(package, "item")}
        navigation = {
            _join(folder, each.get("href", ""))
            for each in items.values()
            if "nav" in each.get("properties", "").split()
        }
        contents = self.contents(items.values(), folder)
        spine = self.with_others(self.spine(package, items, folder), items.values(), folder, list(contents), navigation)
        self.refuse_protected(list(spine))
        sections = [
            section
            for name, is_linear in spine.items()
            if name not in navigation
            for section in self.sections(name, contents.get(name), is_linear)
        ]
        return EpubContent(
            title=_text_of(package, "title"),
            language=_text_of(package, "language"),
            chapters=tuple(_merge(sections, bool(contents))),
            authors=_authors(package),
            cover=self.cover(package, items, folder),
            num_pictures=self.num_pictures,
            num_lost=self.num_lost,
            num_aside=self.num_aside,
            num_formulas=self.num_formulas,
            description=_plain(_text_of(package, "description", MAX_DESCRIPTION_CHARACTERS)),
            date=_date(package),
        )

    def spine(self, package: Element, items: dict[str, Element], folder: str) -> dict[str, bool]:
        """The documents in the order in which they are read, and whether they belong to the reading order.

        The order is that of the spine, else that of the list of parts. Items that are `linear="no"` do not belong to
        it, unless all are.
        """
        stated = list(_named(package, "itemref"))
        found = [(items[ref.get("idref", "")], ref.get("linear", "yes") != "no") for ref in stated
                 if ref.get("idref", "") in items]  # fmt: skip
        if not found:
            found = [(item, True) for item in items.values() if item.get("media-type") in _DOCUMENT_TYPES]
        order: dict[str, bool] = {}
        for item, is_linear in found:
            name = _join(folder, item.get("href", ""))
            order[name] = order.get(name, False) or is_linear
        known = {name: is_linear for name, is_linear in order.items() if name in self.names}
        self.num_lost = max(0, len(stated) - len(found)) + len(order) - len(known)
        return known if any(known.values()) else dict.fromkeys(known, True)

    def with_others(
        self,
        spine: dict[str, bool],
        items: Iterable[Element],
        folder: str,
        contents: list[str],
        navigation: set[str],
    ) -> dict[str, bool]:
        """The spine with the documents that it lacks: where the contents name them, else outside of the order."""
        documents = (_join(folder, each.get("href", "")) for each in items if each.get("media-type") in _DOCUMENT_TYPES)
        others = dict.fromkeys(
            name for name in documents if name in self.names and name not in spine and name not in navigation
        )
        before: dict[str, list[str]] = {}
        at_end: list[str] = []
        ahead = at_end
        for name in reversed(contents):
            if name in spine:
                ahead = before.setdefault(name, [])
            elif name in others:
                ahead.append(name)
        named = [each for name in spine for each in (*reversed(before.get(name, [])), name)] + at_end[::-1]
        in_contents = frozenset(contents)
        rest = [name for name in others if name not in in_contents]
        return {name: spine.get(name, False) for name in (*named, *rest)}

    def cover(self, package: Element, items: dict[str, Element], folder: str) -> bytes:
        """The picture of the cover; empty where none is named, or where it cannot be read."""
        named = [meta.get("content", "") for meta in _named(package, "meta") if meta.get("name") == "cover"]
        found = [item for item in items.values() if "cover-image" in item.get("properties", "").split()]
        found += [items[each] for each in named if each in items]
        for item in found:
            name = _join(folder, item.get("href", ""))
            if item.get("media-type") in _PICTURE_TYPES and name in self.names:
                content = bytes(read_part(self.archive, self.archive.getinfo(name), MAX_COVER_BYTES))
                return content if len(content) <= MAX_COVER_BYTES else b""
        return b""

    def part(self, name: str) -> bytes:
        """The bytes of a part, up to a bound."""
        if name not in self.names:
            raise DataError(f"{self.name}: expected an EPUB, but its part {name[:80]!r} is missing")
        if self.archive.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"{self.name}: expected an EPUB, but its part {name[:80]!r} is compressed in another way")
        self.costs.check_time()
        content = bytes(read_part(self.archive, self.archive.getinfo(name), MAX_PART_BYTES))
        self.costs.num_bytes += len(content)
        if len(content) > MAX_PART_BYTES or self.costs.num_bytes > MAX_TEXT_BYTES:
            raise DataError(f"{self.name}: the part {name[:80]!r} of the EPUB is too large to be a text")
        return content

    def xml(self, name: str) -> Element:
        """The root of an XML part; raises DataError where it is malformed, too large, or declares anything."""
        content = self.part(name)
        try:
            if len(content) > MAX_XML_BYTES:
                raise ValueError(f"more than {MAX_XML_BYTES} bytes")
            return parse_xml(without_declaration(decode_document(content)))
        except Malformed as error:
            raise DataError(f"{self.name}: the part {name[:80]!r} of the EPUB is malformed: {error}") from error

    def refuse_protected(self, spine: list[str]) -> None:
        """Raise DataError where a document of the book is encrypted."""
        if ENCRYPTION not in self.names:
            return
        encrypted = {unquote(each.get("URI", "")) for each in _named(self.xml(ENCRYPTION), "CipherReference")}
        if encrypted & set(spine):
            raise DataError(f"{self.name}: the book is encrypted (DRM); give a file without protection")

    def contents(self, items: Iterable[Element], folder: str) -> dict[str, dict[str, str]]:
        """The table of contents: document -> place in it ("" is its start) -> title.

        An entry of a part and one of its first chapter may name the same place; its title is that of both. The NCX is
        read where there is no navigation document.
        """
        found: dict[bool, dict[str, dict[str, str]]] = {True: {}, False: {}}
        for item in items:
            name = _join(folder, item.get("href", ""))
            if name not in self.names:
                continue
            if is_navigation := "nav" in item.get("properties", "").split():
                entries = _navigation_entries(self.costs.tokens(decode_document(self.part(name))))
            elif item.get("media-type") == "application/x-dtbncx+xml":
                entries = [_ncx_entry(point) for point in _named(self.xml(name), "navPoint")]
            else:
                continue
            for target, title in entries:
                document, _, place = target.partition("#")
                if title and document:
                    places = found[is_navigation].setdefault(_join(posixpath.dirname(name), document), {})
                    places[place] = _joined(places.get(place, ""), title)
        return found[True] or found[False]

    def sections(self, name: str, places: dict[str, str] | None, is_linear: bool) -> list[_Section]:
        """The sections of one document; `places`: identifier -> title from the table of contents, if it is named there.

        A document that is neither there nor in the reading order is left out, and counted where it has words.
        """
        reader = _DocumentReader(places or {}, self.notes)
        sections = reader.read(self.costs.tokens(decode_document(self.part(name))))
        has_words = any(section.blocks or section.notes for section in sections)
        if places is None and not is_linear:
            self.num_aside += any(any(map(str.isalnum, block)) for each in sections for block in each.blocks)
            return []
        self.num_pictures += reader.has_pictures and not has_words
        self.num_formulas += reader.num_formulas
        return sections


def _joined(outer: str, inner: str) -> str:
    """The title of a part and that of its first chapter in one."""
    if not outer or _letters(inner).startswith(_letters(outer)):
        return inner
    if _letters(outer).endswith(_letters(inner)) and " " in inner:
        return outer
    mark = "" if outer[-1] in ".:;!?\u2014" else ":"
    return f"{outer}{mark} {inner}"[:MAX_TITLE_CHARACTERS]


def _merge(sections: list[_Section], has_contents: bool) -> list[tuple[str, str]]:
    """Chapters of sections: one that the contents do not name continues the chapter before it."""
    chapters: list[_Section] = []
    for section in sections:
        if chapters and has_contents and section.title is None:
            chapters[-1].blocks += section.blocks
            chapters[-1].notes += section.notes
        else:
            chapters.append(replace(section, title=section.title or _first_heading(section)))
    return [
        (title, "\n\n".join([*_without_title(chapter.blocks, title), *chapter.notes]))
        for chapter in chapters
        if (title := chapter.title or "") or chapter.blocks or chapter.notes
    ]


def _first_heading(section: _Section) -> str:
    first = section.blocks[0] if section.blocks else ""
    return first.lstrip("# ") if first.startswith("# ") else ""


def _without_title(blocks: list[str], title: str) -> list[str]:
    """The blocks without those at the start that only repeat the title, whole or in parts: "Chapter 1", "The Sea"."""
    whole, said, start = _letters(title), "", 0
    words = [_letters(word) for word in title.split()]
    for number, block in enumerate(blocks[:6]):
        plain, spoken = _letters(block), [_letters(word) for word in block.lstrip("# ").split()]
        is_end = block.startswith("# ") and bool(plain) and spoken == words[len(words) - len(spoken) :]
        if plain == whole or is_end:
            said, start = whole, number + 1
        elif whole.startswith(said + plain) and (block.startswith("# ") or said + plain == whole):
            said, start = said + plain, number + 1
        else:
            break
    first = next((number for number, block in enumerate(blocks) if not block.startswith("# ")), len(blocks))
    return [
        each for number, each in enumerate(blocks) if number >= start and (number >= first or _letters(each) != whole)
    ]


def _letters(text: str) -> str:
    """The letters and digits of a text, in small letters."""
    return "".join(filter(str.isalnum, text[:MAX_COMPARED].casefold()))


@dataclass
class _Row:
    """A row of a table."""

    table: int
    """Number of tables that it lies in."""

    cells: list[list[str]] = field(default_factory=list)
    """Blocks of each."""

    def take(self) -> list[str]:
        """The blocks of the row, which is empty then: a sentence of its cells where these are short."""
        filled = [cell for cell in self.cells if cell]
        self.cells = [[] for _ in self.cells[-1:]]
        texts = [cell[0] for cell in filled if len(cell) == 1]
        are_short = all(len(text) <= MAX_CELL_CHARACTERS and "\n" not in text for text in texts)
        if len(filled) < 2 or len(texts) < len(filled) or not are_short or any(text[:2] == "# " for text in texts):
            return [block for cell in filled for block in cell]
        *before, last = texts
        sentence = " ".join([*(text if text[-1] in "?!" else text.rstrip(".,;:") + "," for text in before), last])
        return [sentence if sentence[-1] in ".?!:" else sentence.rstrip(",;") + "."]


class _DocumentReader:
    """Collects the text of an XHTML document, block by block, in sections that begin at named places."""

    def __init__(self, places: dict[str, str], notes: Notes) -> None:
        self.places = places
        self.notes = notes
        self.done = [_Section(places.get(""))]
        self.has_pictures = False
        self.words: list[str] = []
        self.heading = False
        self.silent = 0  # elements open within one that is not read, itself included
        self.note = 0  # likewise of a note
        self.mark: tuple[str, bool] | None = None  # element of raised text or of a link, and whether it is sure a note
        self.depth = 0  # of elements with its name within it
        self.raised: list[str] = []  # its text
        self.math: MathReader | None = None
        self.num_formulas = 0  # that cannot be read
        self.has_case = False  # whether a case of the last `epub:switch` was read, so that its default is not
        self.lowered: list[str] | None = None  # text of an element below the line
        self.is_apart = False  # whether a letter that follows does not belong to the word before
        self.rows: list[_Row] = []  # of tables within each other
        self.num_tables = 0

    def read(self, pieces: Iterable[Tag | str]) -> list[_Section]:
        """The sections of a document's tags and texts that have text or a title."""
        for found in pieces:
            if self.math is not None and self.is_in_math(found):
                continue
            if isinstance(found, str):
                self.handle_text(found)
                continue
            is_empty = found.ends or found.name in _EMPTY
            if found.starts:
                self.handle_start(found, is_empty)
            if found.ends and not found.starts:
                self.handle_end(found.name)
        self.end_math()
        self.end_mark()
        self.end_block()
        while self.rows:
            self.end_rows()
            self.num_tables -= 1
        return [section for section in self.done if section.blocks or section.notes or section.title]

    def is_in_math(self, found: Tag | str) -> bool:
        """Whether a tag or a text belongs to the open formula, and is read with it; one that was not closed ends."""
        assert self.math is not None
        is_outside = isinstance(found, Tag) and found.name in _BLOCKS and not self.math.is_in_annotation
        if is_outside or self.math.feed(found):
            self.end_math()
        return not is_outside

    def end_math(self) -> None:
        """Read the open formula."""
        if self.math is None:
            return
        words, self.math = self.math.words(), None
        self.num_formulas += not words
        self.is_apart = True
        self.handle_text(words)
        self.is_apart = True

    def handle_start(self, tag: Tag, is_empty: bool) -> None:
        """Begin an element; `is_empty`: it has no end tag."""
        place = tag.attributes.get("id") or (tag.attributes.get("name") if tag.name == "a" else None)
        if tag.name in _BLOCKS:
            self.end_mark()
            self.end_block()
        if place and place in self.places:
            self.end_mark()
            self.end_block()
            for row in self.rows:
                self.give(row.take())
            self.done.append(_Section(self.places[place]))
        self.has_pictures = self.has_pictures or tag.name in ("img", "svg", "image")
        if tag.name == "img" and not self.silent:
            self.handle_picture(tag)
        if tag.name == "br":
            self.words.append("\n")
        if tag.name == "hr" and not self.silent:
            self.done[-1].blocks.append("* * *")
        self.heading = self.heading or tag.name in _HEADINGS
        kinds = self.kinds(tag) if tag.attributes else frozenset()
        if tag.name.rpartition(":")[2] == "math" and not self.silent and self.is_read(tag, kinds):
            self.math = MathReader(tag)
            if is_empty:
                self.end_math()
            return
        if is_empty:
            return
        if tag.name == "epub:switch":
            self.has_case = False
        is_other = tag.name == "epub:case" and not tag.attributes.get("required-namespace", "").endswith("MathML")
        is_spare = tag.name in ("epub:case", "epub:default") and self.has_case
        self.has_case = self.has_case or (tag.name == "epub:case" and not is_other)
        if self.silent or is_other or is_spare or not self.is_read(tag, kinds):
            self.silent += 1
        elif self.note or kinds & _NOTES:
            self.end_block() if not self.note else None
            self.note += 1
            if self.notes is Notes.LEFT_OUT:
                self.silent, self.note = 1, 0
        if self.silent:
            return
        if tag.name == "table":
            self.num_tables += 1
        if tag.name == "tr":
            self.end_rows()  # one without an end tag
            if len(self.rows) < MAX_TABLES:
                self.rows.append(_Row(self.num_tables))
        if tag.name in ("td", "th") and self.rows:
            self.rows[-1].cells.append([])
        if tag.name == "sub" and self.mark is None:
            self.lowered = []
        if self.mark is not None:
            self.depth += tag.name == self.mark[0]
            is_raised_link = tag.name == "a" or (self.mark[0] == "a" and tag.name in _RAISED)
            self.mark = (self.mark[0], self.mark[1] or is_raised_link)
        elif tag.name in _RAISED or (tag.name == "a" and "href" in tag.attributes) or kinds & _RAISED:
            is_link_to_note = (
                tag.name == "a" and _NOTE_TARGET.search(tag.attributes.get("href", "")[-MAX_TARGET:]) is not None
            )
            self.mark, self.depth, self.raised = (tag.name, is_link_to_note), 1, []

    def handle_picture(self, tag: Tag) -> None:
        """Read the text of a picture that stands for text: an initial letter, or a formula."""
        text = " ".join(tag.attributes.get("alt", "").split())
        is_formula = "\\" in text or _FORMULA_CLASS.search(tag.attributes.get("class", "")) is not None
        if tag.attributes.get("role") == "math" or is_formula:
            self.num_formulas += not text
            self.is_apart = True
            self.handle_text(f"${text}$" if "\\" in text and "$" not in text else text)
            self.is_apart = True
        elif len(text) == 1 and text.isalpha() and not "".join(self.words).strip():
            self.handle_text(text)

    def is_read(self, tag: Tag, kinds: frozenset[str]) -> bool:
        """Whether what an element holds is speech."""
        attributes = tag.attributes
        if not attributes:
            return tag.name not in _SILENT
        is_hidden = (
            "hidden" in attributes
            or attributes.get("aria-hidden") == "true"
            or _HIDING_STYLE.search(attributes.get("style", "")) is not None
        )
        return not (
            tag.name in _SILENT or is_hidden
            or (tag.name in ("a", "sup") and kinds & _NOTES) or kinds & (_PAGE_NUMBERS | _NOTE_MARKS | _BACK_LINKS)
        )  # fmt: skip

    def handle_end(self, name: str) -> None:
        """End an element, and the block or the mark that it is."""
        if self.silent:
            self.silent -= 1
            return
        if self.mark is not None and name == self.mark[0]:
            self.depth -= 1
            if not self.depth:
                self.end_mark()
        if name == "sub":
            self.end_lowered()
        if name in _BLOCKS:
            self.end_mark()
            self.end_block()
        if name in ("tr", "table"):
            self.end_rows()
        if name == "table" and self.num_tables:
            self.num_tables -= 1
        if self.note:
            self.note -= 1

    def end_mark(self) -> None:
        """Read what is raised or linked: a power, the end of a rank, words; nothing for the mark of a note."""
        if self.mark is None:
            return
        (name, is_note), text = self.mark, "".join(self.raised)
        self.mark = None
        if name == "a":
            self.words.append("" if (is_note or self.note) and _MARK_OF_NOTE.fullmatch(text) else text)
        else:
            self.words.append("" if is_note else raised("".join(self.words[-3:]), text))

    def end_lowered(self) -> None:
        """Read what is below the line: a number belongs to the word, letters are apart from it."""
        if self.lowered is None:
            return
        text, self.lowered = "".join(self.lowered), None
        said = lowered("".join(self.words[-3:]), text)
        self.words.append(said)
        self.is_apart = said.startswith(" ")

    def handle_text(self, text: str) -> None:
        """Add text that is read; its line ends are spaces."""
        if self.silent or not text:
            return
        text = " ".join(text.split("\n")) if text.strip() else " "
        target = self.raised if self.mark is not None else self.words if self.lowered is None else self.lowered
        if self.is_apart and text[0].isalnum() and target and target[-1][-1:].isalnum():
            text = " " + text
        self.is_apart = False
        target.append(text)

    def end_block(self) -> None:
        """Give the text since the last block to the section, as a heading where it is one, or to the row of a table."""
        self.end_lowered()
        lines = [" ".join(line.split()) for line in "".join(self.words).split("\n")]
        text = "\n".join(line for line in lines if line)
        if text:
            block = f"# {' '.join(text.split())}" if self.heading else text
            if self.rows and self.rows[-1].cells:
                self.rows[-1].cells[-1].append(block)
            else:
                self.give([block])
        self.words, self.heading, self.is_apart = [], False, False

    def give(self, blocks: list[str]) -> None:
        """Add blocks to the section, or to its notes."""
        section = self.done[-1]
        (section.notes if self.note and self.notes is Notes.AT_END else section.blocks).extend(blocks)

    def end_rows(self) -> None:
        """Give the cells of the innermost table's row to the section, or to the cell that the table lies in."""
        while self.rows and self.rows[-1].table >= self.num_tables:
            blocks = self.rows.pop().take()
            if self.rows and self.rows[-1].cells:
                self.rows[-1].cells[-1] += blocks
            else:
                self.give(blocks)

    def kinds(self, tag: Tag) -> frozenset[str]:
        """What an element says that it is: words of its type, role and class."""
        stated = " ".join(tag.attributes.get(name, "") for name in ("epub:type", "role", "class")).lower()
        kinds = frozenset(stated.replace(":", " ").split())  # z3998:noteref
        return kinds | {"super"} if _RAISING_STYLE.search(tag.attributes.get("style", "")) else kinds


def _authors(package: Element) -> tuple[str, ...]:
    """The names of the authors; those whose role is another are none, unless all are."""
    creators = [(each, " ".join("".join(each.itertext()).split())[:500]) for each in _named(package, "creator")]
    roles = {
        meta.get("refines", "").lstrip("#"): (meta.text or "").strip()
        for meta in _named(package, "meta")
        if meta.get("property") == "role"
    }

    def role_of(creator: Element) -> str:
        own = next((value for name, value in creator.items() if name.rpartition("}")[2] == "role"), "")
        return own or roles.get(creator.get("id", ""), "") or "aut"

    authors = [name for creator, name in creators if name and role_of(creator) == "aut"]
    return tuple(dict.fromkeys(authors or [name for _, name in creators if name]))


def _navigation_entries(pieces: Iterable[Tag | str]) -> list[tuple[str, str]]:
    """The links of the `toc` part of a navigation document: target and title.

    The title of a part that is no link stands before that of its first chapter.
    """
    entries: list[tuple[str, str]] = []
    depth = 0
    target: str | None = None
    title: list[str] = []
    label: list[str] | None = None  # text of an item before its link
    part = ""
    for found in pieces:
        if isinstance(found, str):
            if target is not None:
                title.append(found)
            elif label is not None:
                label.append(found)
            continue
        if found.starts and found.name == "nav":
            depth += 1 if depth or found.attributes.get("epub:type", "toc") == "toc" else 0
        if found.starts and found.name == "li" and depth:
            label = []
        if found.starts and found.name in ("ol", "ul") and label is not None:
            part, label = _joined(part, " ".join("".join(label).split())[:MAX_TITLE_CHARACTERS]), None
        if found.starts and found.name == "a" and depth:
            target, title, label = unquote(found.attributes.get("href", "")), [], None
        if found.ends and found.name == "a" and target is not None:
            entries.append((target, _joined(part, " ".join("".join(title).split())[:MAX_TITLE_CHARACTERS])))
            target, part = None, ""
        if found.ends and found.name == "nav" and depth:
            depth -= 1
    return entries


def _ncx_entry(point: Element) -> tuple[str, str]:
    """Target and title of an entry, from its own children: entries may lie in one another."""
    content = next((each for each in point if _name_of(each) == "content"), None)
    labels = [each for each in point if _name_of(each) == "navLabel"]
    label = next((each for one in labels for each in one if _name_of(each) == "text"), None)
    target = unquote(content.get("src", "")) if content is not None else ""
    title = " ".join((label.text or "").split()) if label is not None else ""
    return target, title[:MAX_TITLE_CHARACTERS]


def _named(element: Element, name: str) -> Iterator[Element]:
    """Every element below with this name, whatever its namespace."""
    return (each for each in element.iter() if _name_of(each) == name)


def _name_of(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _text_of(package: Element, name: str, most: int = 500) -> str:
    found = next(_named(package, name), None)
    return " ".join("".join(found.itertext()).split())[:most] if found is not None else ""


def _plain(text: str) -> str:
    """A description without the tags of HTML that many have."""
    return " ".join("".join(without_tags([unescape(text)])).replace("# ", " ").split())


def _date(package: Element) -> str:
    """When the book was published; empty where it is not stated. Some programs write the year 101 for that."""
    dates = list(_named(package, "date"))
    event = {each: next((value for name, value in each.items() if name.endswith("event")), "") for each in dates}
    ordered = sorted(dates, key=lambda each: event[each] not in ("publication", "original-publication", ""))
    texts = ["".join(each.itertext()).strip()[:100] for each in ordered if event[each] != "modification"]
    found = [match for pattern in (_DATE.match, _YEAR.search) for text in texts if (match := pattern(text)) is not None]
    return found[0][0] if found else ""


def _join(folder: str, href: str) -> str:
    return posixpath.normpath(posixpath.join(folder, unquote(href.partition("#")[0])))
