"""Parts of a pattern that lie within one token: a text none of whose tokens holds such a part has no match.

Upstream: parse trees of patterns.  Downstream: `prefilter`.
What cannot match a space lies between two spaces, so it is searched in tokens, and what is found in a token is kept.
The pattern of a part is at most as strict as the part: every digit of a token is 0, and what a look around sees behind
a space is not asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from string import digits
from typing import Any

from marstts.text.prefilter_grams import frequency, required_grams
from marstts.text.prefilter_words import flat_nodes

MAX_PARTS = 2
"""More parts of a pattern exclude hardly more."""

MAX_PATTERN = 2000
"""Longer patterns of parts take too long to compile."""

_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_ZERO_WIDTH = ("AT", "ASSERT", "ASSERT_NOT")
_ENDLESS = 1_000_000
_EDGES = {"AT_BEGINNING": r"(?<=\s)", "AT_END": r"(?=\s)", "AT_BOUNDARY": r"\b"}
_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s", "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W",
}  # fmt: skip
_WITH_DIGITS = ("CATEGORY_DIGIT", "CATEGORY_NOT_SPACE", "CATEGORY_WORD")


class _NoPatternError(Exception):
    """A part holds what no pattern of a token can say."""


def token_parts(nodes: Sequence[Any], parse: Callable[[str], Sequence[Any]]) -> tuple[tuple[frozenset[str], str], ...]:
    """The parts that say most: strings of which a token must hold one, and the pattern to search it for.

    `parse` gives the nodes of a pattern: the strings are those of the part as it is searched, not of what lies behind.
    """
    found: list[tuple[tuple[float, list[str]], frozenset[str], str]] = []
    for part in _parts(nodes):
        try:
            source = _source(part)
            re.compile(source)
        except (_NoPatternError, re.error):
            continue
        groups = sorted(required_grams(list(parse(source))), key=frequency)
        if groups and len(source) <= MAX_PATTERN:
            found.append((frequency(groups[0]), groups[0], source))
    return tuple((group, source) for _, group, source in sorted(found, key=lambda each: each[0])[:MAX_PARTS])


def _parts(nodes: Sequence[Any]) -> Iterator[list[Any]]:
    """The parts between whatever may match a space; a space that must be there is looked for."""
    part: list[Any] = []
    for node in flat_nodes(nodes):
        if not _may_be_space([node]):
            part.append(node)
            continue
        is_space = str(node[0]) == "LITERAL"
        yield [*part, ("ASSERT", (1, [node]))] if is_space else part
        part = [("ASSERT", (-1, [node]))] if is_space else []
    yield part


def _may_be_space(nodes: Sequence[Any]) -> bool:
    """Whether the nodes can match a space; what they look at does not count."""
    return any(_is_space(str(kind), value) for kind, value in nodes)


def _is_space(kind: str, value: Any) -> bool:
    if kind in _ZERO_WIDTH:
        return False
    if kind == "LITERAL":
        return bool(value == ord(" "))
    if kind == "IN":
        return re.match(_set(value), " ") is not None
    if kind == "BRANCH":
        return any(_may_be_space(branch) for branch in value[1])
    if kind == "SUBPATTERN":
        return _may_be_space(value[3])
    return _may_be_space(value[2]) if kind in _REPEATS else True


def _source(nodes: Sequence[Any]) -> str:
    return "".join(_source_of(str(kind), value) for kind, value in nodes)


def _source_of(kind: str, value: Any) -> str:
    if kind == "LITERAL":
        return re.escape("0" if chr(value) in digits else chr(value))
    if kind == "IN":
        return _set(value)
    if kind == "BRANCH":
        return f"(?:{'|'.join(map(_source, value[1]))})"
    if kind == "SUBPATTERN" and not value[1] and not value[2]:
        return f"(?:{_source(value[3])})"
    if kind in _REPEATS:
        least, most, inner = int(value[0]), int(value[1]), value[2]
        return f"(?:{_source(inner)}){{{least},{'' if most > _ENDLESS else most}}}"
    if kind == "AT" and str(value) in _EDGES:
        return _EDGES[str(value)]
    if kind == "ASSERT":
        return _look(value[0] > 0, list(value[1]))
    if kind == "ASSERT_NOT":
        return _refusal(value[0] > 0, list(value[1]))
    raise _NoPatternError


def _set(items: Sequence[Any]) -> str:
    """The pattern of a set of characters, where every digit is 0; a set that lacks a digit may hold 0 too."""
    is_negated = any(str(name) == "NEGATE" for name, _ in items)
    members = ""
    for name, value in items:
        if str(name) == "LITERAL" and chr(value) not in digits:
            members += re.escape(chr(value))
        elif str(name) == "RANGE" and not (chr(value[0]) in digits and chr(value[1]) in digits):
            members += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
        elif str(name) == "CATEGORY":
            members += _CATEGORIES[str(value)]
    found = _digits_of(items)
    if found and (not is_negated or found == set(digits)):
        members += "0"
    if not members:
        return "(?s:.)" if is_negated else "(?!)"
    return f"[{'^' if is_negated else ''}{members}]"


def _digits_of(items: Sequence[Any]) -> set[str]:
    found: set[str] = set()
    for name, value in items:
        if str(name) == "LITERAL":
            found |= {chr(value)} & set(digits)
        elif str(name) == "RANGE":
            found |= {digit for digit in digits if value[0] <= ord(digit) <= value[1]}
        elif str(name) == "CATEGORY" and str(value) in _WITH_DIGITS:
            found |= set(digits)
    return found


def _look(is_ahead: bool, nodes: list[Any]) -> str:
    """Pattern of what must stand before or after, up to the first space; empty where no pattern can say so."""
    source = f"(?{'=' if is_ahead else '<='}{_up_to_space(nodes, is_ahead)})"
    try:
        re.compile(source)
    except re.error:  # a look behind whose branches are of different lengths
        return ""
    return source


def _up_to_space(nodes: Sequence[Any], is_ahead: bool) -> str:
    found: list[str] = []
    for kind, value in nodes if is_ahead else reversed(nodes):
        name = str(kind)
        if not _may_be_space([(kind, value)]):
            found.append(_source_of(name, value))
            continue
        if name in ("LITERAL", "IN"):
            found.append(_source_of(name, value))
        elif name == "BRANCH":
            found.append(f"(?:{'|'.join(_up_to_space(branch, is_ahead) for branch in value[1])})")
        break
    return "".join(found if is_ahead else reversed(found))


def _refusal(is_ahead: bool, nodes: list[Any]) -> str:
    """Pattern of what must not stand before or after; empty unless one set without spaces says so."""
    if len(nodes) != 1 or str(nodes[0][0]) not in ("LITERAL", "IN"):
        return ""
    name, value = str(nodes[0][0]), nodes[0][1]
    items = [("LITERAL", value)] if name == "LITERAL" else value
    if _is_space(name, value) or _digits_of(items) not in (set(), set(digits)) or str(items[0][0]) == "NEGATE":
        return ""
    return f"(?{'!' if is_ahead else '<!'}{_set(items)})"
