"""EPUB files: the title, the author and the chapters of the XHTML documents in a zip file.

Upstream: a file.  Downstream: `books`.
Chapters follow the table of contents (the EPUB 3 navigation document or the EPUB 2 NCX). Documents that it does not
name continue the chapter before. Without one, every document of the spine is a chapter.
"""

from __future__ import annotations

import os
import posixpath
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from marstts.errors import DataError
from marstts.io.file_errors import printable_name, printable_text
from marstts.io.reading import open_regular
from marstts.text.books.xhtml import Tag, read_xhtml

MAX_FILE_BYTES = 1024 * 2**20
MAX_PART_BYTES = 16 * 2**20
MAX_TEXT_BYTES = 32 * 2**20
MAX_PARTS = 10_000
MAX_DIRECTORY_BYTES = 8 * 2**20
"""Bytes of the zip file's table of contents, which is read whole."""
MAX_TITLE_CHARACTERS = 500
CONTAINER = "META-INF/container.xml"
_END_BYTES = 20 + 22 + 2**16
"""The last record of a zip file with its longest comment, and the record before it of a ZIP64 file."""
_CORRUPT = (
    zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, NotImplementedError, ValueError, struct.error,
    LookupError, OverflowError,
)  # fmt: skip
"""Exceptions that `zipfile` raises for corrupt files."""
ENCRYPTION = "META-INF/encryption.xml"

_BLOCKS = frozenset([
    "address", "article", "aside", "blockquote", "body", "dd", "div", "dl", "dt", "figcaption", "figure",
    "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main",
    "ol", "p", "pre", "section", "table", "td", "th", "tr", "ul",
])  # fmt: skip
_SILENT = frozenset(["head", "script", "style", "title", "nav", "svg", "math", "rt", "rp"])
_HEADINGS = frozenset(["h1", "h2", "h3"])


@dataclass(frozen=True)
class EpubContent:
    """Content of an EPUB."""

    title: str
    author: str
    language: str
    chapters: tuple[tuple[str, str], ...]
    """Title and text of each."""


@dataclass
class _Section:
    """The text between two places that the table of contents names."""

    title: str | None
    blocks: list[str] = field(default_factory=list)


def is_epub(path: Path) -> bool:
    """Whether the file is an EPUB: a zip file with a container document; raises DataError where it is too large."""
    try:
        with _open_archive(path) as archive:
            return CONTAINER in archive.namelist()
    except _CORRUPT:
        return False


def is_epub_file(path: Path) -> bool:
    """Whether the path is an EPUB; False where it cannot be read."""
    try:
        return path.is_file() and is_epub(path)
    except (OSError, ValueError):
        return False


def read_epub(path: Path) -> EpubContent:
    """The content of an EPUB; raises DataError where it is corrupt, too large or protected."""
    try:
        with _open_archive(path) as archive:
            return _Package(path, archive).read()
    except _CORRUPT as error:
        problem = printable_text(str(error), 200)
        raise DataError(f"{printable_name(path)}: expected an EPUB, but it is corrupt: {problem}") from error


@contextmanager
def _open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """The open zip file; raises DataError where its directory is so large that it could fill the memory."""
    with open_regular(path, MAX_FILE_BYTES, DataError) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _END_BYTES))
        tail = file.read()
        end = tail.rfind(b"PK\5\6")
        if end < 0 or len(tail) < end + 22:
            raise zipfile.BadZipFile("it is no zip file")
        size = int.from_bytes(tail[end + 12 : end + 16], "little")
        if size > MAX_DIRECTORY_BYTES or tail[max(0, end - 20) : end].startswith(b"PK\6\7"):
            raise DataError(f"{printable_name(path)}: a zip file with too many parts for an EPUB")
        with zipfile.ZipFile(file) as archive:
            yield archive


class _Package:
    """An open EPUB."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.name = printable_name(path)
        self.archive = archive
        self.bytes_read = 0
        names = archive.namelist()
        if len(names) > MAX_PARTS:
            raise DataError(f"{self.name}: an EPUB of {len(names)} parts; at most {MAX_PARTS} can be read")
        self.names = frozenset(names)

    def read(self) -> EpubContent:
        rootfile = next(_named(self.xml(CONTAINER), "rootfile"), None)
        package_path = unquote(rootfile.get("full-path", "")) if rootfile is not None else ""
        package = self.xml(package_path)
        folder = posixpath.dirname(package_path)
        items = {item.get("id", ""): item for item in _named(package, "item")}
        spine = [
            _join(folder, items[ref.get("idref", "")].get("href", ""))
            for ref in _named(package, "itemref")
            if ref.get("idref", "") in items and ref.get("linear", "yes") != "no"
        ]
        spine = [name for name in dict.fromkeys(spine) if name in self.names]
        self.refuse_protected(spine)
        navigation = {
            _join(folder, each.get("href", ""))
            for each in items.values()
            if "nav" in each.get("properties", "").split()
        }
        contents = self.contents(items.values(), folder)
        sections = [
            section
            for name in spine
            if name not in navigation
            for section in self.sections(name, contents.get(name, {}))
        ]
        return EpubContent(
            title=_text_of(package, "title"),
            author=_text_of(package, "creator"),
            language=_text_of(package, "language"),
            chapters=tuple(_merge(sections, bool(contents))),
        )

    def part(self, name: str) -> bytes:
        """The bytes of a part, up to a bound."""
        if name not in self.names:
            raise DataError(f"{self.name}: expected an EPUB, but its part {name[:80]!r} is missing")
        if self.archive.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"{self.name}: expected an EPUB, but its part {name[:80]!r} is compressed in another way")
        with self.archive.open(name) as file:
            content = file.read(MAX_PART_BYTES + 1)
        self.bytes_read += len(content)
        if len(content) > MAX_PART_BYTES or self.bytes_read > MAX_TEXT_BYTES:
            raise DataError(f"{self.name}: the part {name[:80]!r} of the EPUB is too large to be a text")
        return content

    def xml(self, name: str) -> Element:
        try:
            return fromstring(self.part(name), forbid_dtd=False)
        except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
            raise DataError(f"{self.name}: the part {name[:80]!r} of the EPUB is malformed: {error}") from error

    def refuse_protected(self, spine: list[str]) -> None:
        """Raise DataError where a document of the book is encrypted."""
        if ENCRYPTION not in self.names:
            return
        encrypted = {unquote(each.get("URI", "")) for each in _named(self.xml(ENCRYPTION), "CipherReference")}
        if encrypted & set(spine):
            raise DataError(f"{self.name}: the book is encrypted (DRM); give a file without protection")

    def contents(self, items: Iterable[Element], folder: str) -> dict[str, dict[str, str]]:
        """The table of contents: document -> place in it ("" is its start) -> title."""
        found: dict[str, dict[str, str]] = {}
        for item in items:
            name = _join(folder, item.get("href", ""))
            if name not in self.names:
                continue
            if "nav" in item.get("properties", "").split():
                entries = _navigation_entries(_decode(self.part(name)))
            elif item.get("media-type") == "application/x-dtbncx+xml" and not found:
                entries = [_ncx_entry(point) for point in _named(self.xml(name), "navPoint")]
            else:
                continue
            for target, title in entries:
                document, _, place = target.partition("#")
                if title and document:
                    found.setdefault(_join(posixpath.dirname(name), document), {}).setdefault(place, title)
        return found

    def sections(self, name: str, places: dict[str, str]) -> list[_Section]:
        return _DocumentReader(places).read(_decode(self.part(name)))


def _merge(sections: list[_Section], has_contents: bool) -> list[tuple[str, str]]:
    """Chapters of sections: one that the contents do not name continues the chapter before it."""
    chapters: list[tuple[str, list[str]]] = []
    for section in sections:
        if chapters and has_contents and section.title is None:
            chapters[-1][1].extend(section.blocks)
        elif section.blocks or section.title:
            chapters.append((section.title or _first_heading(section), section.blocks))
    return [(title, "\n\n".join(_without_title(blocks, title))) for title, blocks in chapters]


def _first_heading(section: _Section) -> str:
    first = section.blocks[0] if section.blocks else ""
    return first.lstrip("# ") if first.startswith("# ") else ""


def _without_title(blocks: list[str], title: str) -> list[str]:
    """The blocks without a first one that only repeats the title."""
    plain = [block.removeprefix("# ") for block in blocks]
    return plain[1:] if plain and plain[0].casefold() == title.casefold() else plain


class _DocumentReader:
    """Collects the text of an XHTML document, block by block, in sections that begin at named places."""

    def __init__(self, places: dict[str, str]) -> None:
        self.places = places
        self.done = [_Section(places.get(""))]
        self.words: list[str] = []
        self.silent = 0
        self.heading = False

    def read(self, document: str) -> list[_Section]:
        """The sections of the document that have text or a title."""
        for found in read_xhtml(document):
            if isinstance(found, str):
                self.handle_text(found)
            elif found.starts:
                silent = self.silent
                self.handle_start(found)
                self.silent = silent if found.ends else self.silent
            else:
                self.handle_end(found.name)
        self.end_block()
        return [section for section in self.done if section.blocks or section.title]

    def handle_start(self, tag: Tag) -> None:
        place = tag.attributes.get("id") or (tag.attributes.get("name") if tag.name == "a" else None)
        if tag.name in _BLOCKS:
            self.end_block()
        if place and place in self.places:
            self.end_block()
            self.done.append(_Section(self.places[place]))
        if (
            tag.name in _SILENT
            or "noteref" in tag.attributes.get("epub:type", "")
            or (self.silent and tag.name not in ("br", "img", "hr", "meta", "link", "input", "col"))
        ):
            self.silent += 1
        if tag.name == "br":
            self.words.append("\n")
        self.heading = self.heading or tag.name in _HEADINGS

    def handle_end(self, name: str) -> None:
        if self.silent:
            self.silent -= 1
            return
        if name in _BLOCKS:
            self.end_block()

    def handle_text(self, text: str) -> None:
        if not self.silent:
            self.words.append(" ".join(text.split("\n")) if text.strip() else " ")

    def end_block(self) -> None:
        lines = [" ".join(line.split()) for line in "".join(self.words).split("\n")]
        text = "\n".join(line for line in lines if line)
        if text:
            self.done[-1].blocks.append(f"# {' '.join(text.split())}" if self.heading else text)
        self.words, self.heading = [], False


def _navigation_entries(document: str) -> list[tuple[str, str]]:
    """The links of the `toc` part of a navigation document: target and title."""
    entries: list[tuple[str, str]] = []
    depth = 0
    target: str | None = None
    title: list[str] = []
    for found in read_xhtml(document):
        if isinstance(found, str):
            if target is not None:
                title.append(found)
            continue
        if found.starts and found.name == "nav":
            depth += 1 if depth or found.attributes.get("epub:type", "toc") == "toc" else 0
        if found.starts and found.name == "a" and depth:
            target, title = unquote(found.attributes.get("href", "")), []
        if found.ends and found.name == "a" and target is not None:
            entries.append((target, " ".join("".join(title).split())[:MAX_TITLE_CHARACTERS]))
            target = None
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


def _text_of(package: Element, name: str) -> str:
    found = next(_named(package, name), None)
    return " ".join("".join(found.itertext()).split())[:500] if found is not None else ""


def _join(folder: str, href: str) -> str:
    return posixpath.normpath(posixpath.join(folder, unquote(href.partition("#")[0])))


def _decode(content: bytes) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", "replace")
    return content.decode("utf-8-sig", "replace")
