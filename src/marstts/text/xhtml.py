"""Tags and text of an XHTML document, in time that is linear in its length, whatever it holds.

Upstream: the text of a document that others wrote.  Downstream: `epub` and `tags`.
Python's `html.parser` takes quadratic time for unclosed tags and comments (minutes for a megabyte). Here, what is never
closed ends the document, and a `<` that begins no tag is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from itertools import islice

_TAG = re.compile(
    r"<(?P<end>/?)(?P<name>[A-Za-z][^\s<>/\"']{0,60})(?P<rest>[^<>\"']*+(?:(?:\"[^\"<]*+\"|'[^'<]*+')[^<>\"']*+)*+)>"
)
"""No alternative begins like another, and none passes the next `<`: a failed attempt costs what it has read, and no
memory."""

_ATTRIBUTE = re.compile(r"([^\s=\"'/<>]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'<>]+)))?")
_SKIPPED = (("<!--", "-->"), ("<?", "?>"), ("<!", ">"))
MAX_ATTRIBUTES = 100
MAX_VALUE_CHARACTERS = 1000
"""Attributes of a tag that are read, and characters of each value: none that is used here has more."""

_RAW = frozenset({"script", "style"})
"""Elements whose content is no markup."""


@dataclass(frozen=True)
class Tag:
    """The start or the end of an element; `<a/>` is both."""

    name: str
    starts: bool
    ends: bool
    attributes: dict[str, str] = field(default_factory=dict)


def read_xhtml(document: str) -> Iterator[Tag | str]:
    """Tags and pieces of text, in their order; character references are read."""
    place = 0
    while place < len(document):
        opening = document.find("<", place)
        if opening < 0:
            yield unescape(document[place:])
            return
        if opening > place:
            yield unescape(document[place:opening])
        place = opening
        if document.startswith("<![CDATA[", place):
            end = document.find("]]>", place)
            yield document[place + 9 : end if end >= 0 else len(document)]
            place = end + 3 if end >= 0 else len(document)
        elif skipped := next((closing for begin, closing in _SKIPPED if document.startswith(begin, place)), None):
            place = _after(document, skipped, place + 2)
        elif match := _TAG.match(document, place):
            tag = _tag(match)
            yield tag
            place = match.end()
            if tag.starts and not tag.ends and tag.name in _RAW:
                closing = re.compile(f"</{tag.name}", re.IGNORECASE).search(document, place)
                place = closing.start() if closing else len(document)
        else:
            yield "<"
            place += 1


def _after(document: str, closing: str, place: int) -> int:
    end = document.find(closing, place)
    return end + len(closing) if end >= 0 else len(document)


def _tag(match: re.Match[str]) -> Tag:
    if match["end"]:
        return Tag(match["name"].lower(), starts=False, ends=True)
    rest = match["rest"].rstrip()
    found = {}
    for attribute in islice(_ATTRIBUTE.finditer(rest), MAX_ATTRIBUTES):
        name, double, single, bare = attribute.groups("")
        if len(name) <= MAX_VALUE_CHARACTERS:
            found[name.lower()] = unescape((double or single or bare)[:MAX_VALUE_CHARACTERS])
    return Tag(match["name"].lower(), starts=True, ends=rest.endswith("/"), attributes=found)
