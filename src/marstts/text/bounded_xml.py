"""XML that others wrote, as a tree of bounded size: no declarations of the document's own, few elements, flat.

Upstream: the text of a document.  Downstream: `ssml`, `books.epub`.
A few declarations within a document (entities, default values of attributes) unfold to any size; no document that is
read here needs them.
"""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

MAX_ELEMENTS = 100_000
MAX_ATTRIBUTES = 300_000
MAX_DEPTH = 1_000

Malformed = (ParseError, DefusedXmlException, ValueError, LookupError)
"""Exceptions of `parse_xml` for documents that it refuses."""


class DeclarationError(ValueError):
    """The document declares entities, or attributes and their values."""


class _BoundedBuilder(TreeBuilder):
    """A tree with a bound on what it holds."""

    def __init__(self, max_elements: int) -> None:
        super().__init__()
        self._elements, self._attributes, self._depth, self._max = 0, 0, 0, max_elements

    def start(self, tag: str, attrs: dict[str, str], /) -> Any:
        self._elements += 1
        self._attributes += len(attrs)
        self._depth += 1
        if self._elements > self._max or self._attributes > MAX_ATTRIBUTES or self._depth > MAX_DEPTH:
            raise ValueError(f"more than {self._max} elements, or too many attributes or levels")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


def parse_xml(text: str, max_elements: int = MAX_ELEMENTS) -> Element:
    """The root of an XML document; an exception of `Malformed` where it is none, declares anything, or is too large."""

    def refuse_declarations(name: str, system: str | None, public: str | None, has_subset: int) -> None:
        if has_subset:
            raise DeclarationError("it declares entities or attributes of its own")

    parser = DefusedXMLParser(target=_BoundedBuilder(max_elements), forbid_dtd=False)
    parser.parser.StartDoctypeDeclHandler = refuse_declarations
    parser.feed(text.encode("utf-8", "replace").decode("utf-8"))  # a text, whose encoding none can name
    root = parser.close()
    assert isinstance(root, Element)
    return root
