"""Style sheets of books, as far as speech needs them: which elements are hidden, and which are raised.

Upstream: the documents and CSS files of an EPUB.  Downstream: `epub`.
Selectors of one element are read: a name, classes, an identifier. Rules for other media, and selectors that depend on
other elements, are passed over. A later rule wins over an earlier one with the same selector.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from marstts.text.books.xhtml import Tag

HIDDEN = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse))", re.IGNORECASE)
RAISED = re.compile(r"vertical-align\s*:\s*(?:super|text-top)", re.IGNORECASE)

_STYLE_ELEMENT = re.compile(r"<style\b[^<>]*>([^<]*(?:<(?!/style)[^<]*)*)", re.IGNORECASE)
_LINK = re.compile(r"<link\b([^<>]{1,1000})>", re.IGNORECASE)
_HREF = re.compile(r"\bhref\s*=\s*[\"']([^\"']{1,500})[\"']", re.IGNORECASE)
_COMMENT = re.compile(r"/\*[^*]*(?:\*(?!/)[^*]*)*(?:\*/|\Z)|<!--|-->")
_BRACKET = re.compile("[{}]")
_SELECTOR = re.compile(r"(?P<name>\*|[a-z][a-z0-9]*)?(?P<marks>(?:[.#][\w-]+)*)", re.IGNORECASE)
_SHOWN, _ALIGNED = (re.compile(rf"(?:{each})\s*:", re.IGNORECASE) for each in ("display|visibility", "vertical-align"))

MAX_SELECTORS = 500
"""Of each property; every element is compared with all."""


@dataclass
class Styles:
    """The selectors that hide or raise an element: name (empty: any), and classes and identifier with their marks."""

    hidden: dict[tuple[str, frozenset[str]], bool] = field(default_factory=dict)
    raised: dict[tuple[str, frozenset[str]], bool] = field(default_factory=dict)

    def read(self, sheet: str) -> None:
        """Add the rules of a style sheet, in time that is linear in its length."""
        sheet, place = _COMMENT.sub(" ", sheet), 0
        while (opening := sheet.find("{", place)) >= 0:
            selectors = sheet[place:opening].rpartition(";")[2]
            bracket = _BRACKET.search(sheet, opening + 1)
            place = len(sheet) if bracket is None else bracket.end()
            if bracket is not None and bracket[0] == "{":  # a rule of rules, such as that of another medium
                place = _end_of_block(sheet, place)
                continue
            for selector in selectors.strip("} \t\r\n").split(","):
                self._add(selector.strip(), sheet[opening + 1 : place])

    def _add(self, selector: str, style: str) -> None:
        found = _SELECTOR.fullmatch(selector)
        if found is None or not selector or selector.lower() in ("*", "html", "body"):
            return
        name = "" if found["name"] in (None, "*") else found["name"].lower()
        key = name, frozenset(re.findall(r"[.#][\w-]+", found["marks"]))
        for known, is_stated, stated in ((self.hidden, _SHOWN, HIDDEN), (self.raised, _ALIGNED, RAISED)):
            if is_stated.search(style) and len(known) < MAX_SELECTORS:
                known.pop(key, None)  # the last one stands last
                known[key] = stated.search(style) is not None

    def hides(self, tag: Tag) -> bool:
        """Whether an element is hidden."""
        return _applies(self.hidden, tag, HIDDEN)

    def raises(self, tag: Tag) -> bool:
        """Whether an element is raised."""
        return _applies(self.raised, tag, RAISED)


def sheets_in(document: str) -> tuple[list[str], list[str]]:
    """The style sheets within an XHTML document, and the addresses of others."""
    head = document[: document.lower().find("<body")] if "<body" in document.lower() else document
    links = [each for each in _LINK.findall(head) if "stylesheet" in each.lower() and "alternate" not in each.lower()]
    addresses = [found[1] for each in links if (found := _HREF.search(each)) is not None]
    return _STYLE_ELEMENT.findall(head), addresses


def _applies(known: dict[tuple[str, frozenset[str]], bool], tag: Tag, stated: re.Pattern[str]) -> bool:
    """Whether a property holds for an element, by its own style or the most specific selector."""
    own = tag.attributes.get("style", "")
    if stated.search(own):
        return True
    if not known:
        return False
    marks = frozenset(_marks_of(tag))
    fitting = [
        (len(need), name != "", place, holds)
        for place, ((name, need), holds) in enumerate(known.items())
        if name in ("", tag.name) and need <= marks
    ]
    return max(fitting)[-1] if fitting else False


def _marks_of(tag: Tag) -> Iterable[str]:
    yield from (f".{each}" for each in tag.attributes.get("class", "").split())
    if identifier := tag.attributes.get("id"):
        yield f"#{identifier}"


def _end_of_block(sheet: str, place: int) -> int:
    """The place behind the bracket that closes two open blocks."""
    depth = 2
    for bracket in _BRACKET.finditer(sheet, place):
        depth += 1 if bracket[0] == "{" else -1
        if not depth:
            return bracket.end()
    return len(sheet)
