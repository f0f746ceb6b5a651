"""EPUB files: the title, the author and the chapters of the XHTML documents in a zip file.

Upstream: a file.  Downstream: `books`.
Chapters follow the table of contents (the EPUB 3 navigation document or the EPUB 2 NCX). Documents that it does not
name continue the chapter before. Without one, every document of the spine is a chapter.
"""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from marstts.errors import DataError

MAX_FILE_BYTES = 1024 * 2**20
MAX_PART_BYTES = 16 * 2**20
MAX_TEXT_BYTES = 128 * 2**20
MAX_PARTS = 10_000
CONTAINER = "META-INF/container.xml"
ENCRYPTION = "META-INF/encryption.xml"

_BLOCKS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "dd",
        "div",
        "dl",
        "dt",
        "figcaption",
        "figure",
        "footer",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "li",
        "main",
        "ol",
        "p",
        "pre",
        "section",
        "table",
        "td",
        "th",
        "tr",
        "ul",
    ]
)
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
    """Whether the file is an EPUB: a zip file with a container document."""
    if not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return CONTAINER in archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return False


def is_epub_file(path: Path) -> bool:
    """Whether the path is an EPUB; False where it cannot be read."""
    try:
        return path.is_file() and is_epub(path)
    except OSError:
        return False


def read_epub(path: Path) -> EpubContent:
    """The content of an EPUB; raises DataError where it is corrupt, too large or protected."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise DataError(f"{path}: an EPUB of more than {MAX_FILE_BYTES // 2**20} MB cannot be read")
    try:
        with zipfile.ZipFile(path) as archive:
            return _Package(path, archive).read()
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
        raise DataError(f"{path}: expected an EPUB, but it is corrupt: {error}") from error


class _Package:
    """An open EPUB."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self.archive = archive
        self.bytes_read = 0
        names = archive.namelist()
        if len(names) > MAX_PARTS:
            raise DataError(f"{path}: an EPUB of {len(names)} parts; at most {MAX_PARTS} can be read")
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
            raise DataError(f"{self.path}: expected an EPUB, but its part {name[:80]!r} is missing")
        with self.archive.open(name) as file:
            content = file.read(MAX_PART_BYTES + 1)
        self.bytes_read += len(content)
        if len(content) > MAX_PART_BYTES or self.bytes_read > MAX_TEXT_BYTES:
            raise DataError(f"{self.path}: the part {name[:80]!r} of the EPUB is too large to be a text")
        return content

    def xml(self, name: str) -> Element:
        try:
            return fromstring(self.part(name), forbid_dtd=False)
        except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
            raise DataError(f"{self.path}: the part {name[:80]!r} of the EPUB is malformed: {error}") from error

    def refuse_protected(self, spine: list[str]) -> None:
        """Raise DataError where a document of the book is encrypted."""
        if ENCRYPTION not in self.names:
            return
        encrypted = {unquote(each.get("URI", "")) for each in _named(self.xml(ENCRYPTION), "CipherReference")}
        if encrypted & set(spine):
            raise DataError(f"{self.path}: the book is encrypted (DRM); give a file without protection")

    def contents(self, items: Iterable[Element], folder: str) -> dict[str, dict[str, str]]:
        """The table of contents: document -> place in it ("" is its start) -> title."""
        found: dict[str, dict[str, str]] = {}
        for item in items:
            name = _join(folder, item.get("href", ""))
            if name not in self.names:
                continue
            if "nav" in item.get("properties", "").split():
                entries = _Navigation.entries(_decode(self.part(name)))
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
        reader = _DocumentReader(places)
        reader.feed(_decode(self.part(name)))
        reader.close()
        return reader.finish()


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


class _DocumentReader(HTMLParser):
    """Collects the text of an XHTML document, block by block, in sections that begin at named places."""

    def __init__(self, places: dict[str, str]) -> None:
        super().__init__(convert_charrefs=True)
        self.places = places
        self.done = [_Section(places.get(""))]
        self.words: list[str] = []
        self.silent = 0
        self.heading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        place = attributes.get("id") or (attributes.get("name") if tag == "a" else None)
        if tag in _BLOCKS:
            self.end_block()
        if place and place in self.places:
            self.end_block()
            self.done.append(_Section(self.places[place]))
        if (
            tag in _SILENT
            or "noteref" in (attributes.get("epub:type") or "")
            or (self.silent and tag not in ("br", "img", "hr", "meta", "link", "input", "col"))
        ):
            self.silent += 1
        if tag == "br":
            self.words.append("\n")
        self.heading = self.heading or tag in _HEADINGS

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        silent = self.silent
        self.handle_starttag(tag, attrs)
        self.silent = silent

    def handle_endtag(self, tag: str) -> None:
        if self.silent:
            self.silent -= 1
            return
        if tag in _BLOCKS:
            self.end_block()

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.words.append(" ".join(data.split("\n")) if data.strip() else " ")

    def end_block(self) -> None:
        lines = [" ".join(line.split()) for line in "".join(self.words).split("\n")]
        text = "\n".join(line for line in lines if line)
        if text:
            self.done[-1].blocks.append(f"# {' '.join(text.split())}" if self.heading else text)
        self.words, self.heading = [], False

    def finish(self) -> list[_Section]:
        self.end_block()
        return [section for section in self.done if section.blocks or section.title]


class _Navigation(HTMLParser):
    """Collects the links of the `toc` part of a navigation document."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, str]] = []
        self.depth = 0
        self.target: str | None = None
        self.title = ""

    @classmethod
    def entries(cls, document: str) -> list[tuple[str, str]]:
        reader = cls()
        reader.feed(document)
        reader.close()
        return reader.found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "nav":
            self.depth += 1 if self.depth or (attributes.get("epub:type") or "toc") == "toc" else 0
        if tag == "a" and self.depth:
            self.target, self.title = unquote(attributes.get("href") or ""), ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self.target is not None:
            self.found.append((self.target, " ".join(self.title.split())))
            self.target = None
        if tag == "nav" and self.depth:
            self.depth -= 1

    def handle_data(self, data: str) -> None:
        if self.target is not None:
            self.title += data


def _ncx_entry(point: Element) -> tuple[str, str]:
    content = next(_named(point, "content"), None)
    label = next(_named(point, "text"), None)
    target = unquote(content.get("src", "")) if content is not None else ""
    return target, " ".join((label.text or "").split()) if label is not None else ""


def _named(element: Element, name: str) -> Iterator[Element]:
    """Every element below with this name, whatever its namespace."""
    return (each for each in element.iter() if str(each.tag).rpartition("}")[2] == name)


def _text_of(package: Element, name: str) -> str:
    found = next(_named(package, name), None)
    return " ".join("".join(found.itertext()).split())[:500] if found is not None else ""


def _join(folder: str, href: str) -> str:
    return posixpath.normpath(posixpath.join(folder, unquote(href.partition("#")[0])))


def _decode(content: bytes) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", "replace")
    return content.decode("utf-8-sig", "replace")
