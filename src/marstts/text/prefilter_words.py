"""Words of which every match of a pattern holds one: a text without any of them is not searched.

Upstream: parse trees of patterns.  Downstream: `prefilter`.
A word is a run of letters with no letter next to it, as `rules.members_of` finds them in a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from string import ascii_letters
from typing import Any

MAX_WORDS = 400
"""Larger languages tell too little."""

_LETTERS = frozenset(ascii_letters)
_CATEGORIES = {"CATEGORY_DIGIT": "0123456789", "CATEGORY_SPACE": " ", "CATEGORY_WORD": ascii_letters}
"""Characters of each category, as far as letters are concerned."""

_RUN = re.compile("[A-Za-z]+")
_ZERO_WIDTH = ("AT", "ASSERT", "ASSERT_NOT")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")

Language = frozenset[str] | None
"""All strings that a part of a pattern matches; None: too many to list."""


def required_words(nodes: Sequence[Any]) -> tuple[frozenset[str], ...]:
    """Groups of words; every match, with its context, holds one of each."""
    nodes = list(flat_nodes(nodes))
    groups: list[frozenset[str]] = []
    start = 0
    while start < len(nodes):
        language, end = _longest_language(nodes, start)
        if language is None:
            groups += _required_within(str(nodes[start][0]), nodes[start][1])
            start += 1
        else:
            group = _words_of(language, _is_closed_before(nodes, start), _is_closed_after(nodes, end))
            groups += [group] if group else []
            start = end
    return tuple(groups)


def flat_nodes(nodes: Sequence[Any]) -> Iterator[Any]:
    """The nodes with those of groups in place of the groups."""
    for kind, value in nodes:
        if str(kind) == "SUBPATTERN" and not value[1] and not value[2]:
            yield from flat_nodes(value[3])
        else:
            yield kind, value


def _required_within(kind: str, value: Any) -> tuple[frozenset[str], ...]:
    """The groups of a part of a pattern that has too many strings."""
    if kind == "ASSERT":
        return required_words(value[1])
    if kind in _REPEATS and value[0] > 0:
        return required_words(value[2])
    if kind == "BRANCH":
        found = [required_words(branch) for branch in value[1]]
        return (frozenset().union(*(groups[0] for groups in found)),) if all(found) else ()
    return ()


def _longest_language(nodes: Sequence[Any], start: int) -> tuple[Language, int]:
    """The language of the nodes from `start` on, as far as it can be listed, and where that ends."""
    language: frozenset[str] = frozenset({""})
    for end in range(start, len(nodes)):
        kind = str(nodes[end][0])
        part = None if kind in _ZERO_WIDTH else _language_of(kind, nodes[end][1])
        joined = None if part is None else _joined(language, part)
        if joined is None:
            return (None, end) if end == start else (language, end)
        language = joined
    return language, len(nodes)


def _joined(first: frozenset[str], second: frozenset[str]) -> Language:
    if len(first) * len(second) > MAX_WORDS:
        return None
    return frozenset(before + after for before in first for after in second)


def _language(nodes: Sequence[Any]) -> Language:
    language: Language = frozenset({""})
    for kind, value in nodes:
        part = frozenset({""}) if str(kind) in _ZERO_WIDTH else _language_of(str(kind), value)
        language = None if part is None or language is None else _joined(language, part)
    return language


def _language_of(kind: str, value: Any) -> Language:
    if kind == "LITERAL":
        return frozenset({chr(value)})
    if kind == "IN" and len(value) <= 4 and all(str(part) == "LITERAL" for part, _ in value):
        return frozenset(chr(code) for _, code in value)
    if kind == "SUBPATTERN" and not value[1]:
        return _language(value[3])
    if kind == "BRANCH":
        parts = [_language(branch) for branch in value[1]]
        union = None if any(part is None for part in parts) else frozenset().union(*(part or () for part in parts))
        return union if union is not None and len(union) <= MAX_WORDS else None
    if kind in _REPEATS and value[1] == 1:
        part = _language(value[2])
        return None if part is None else part | {""}
    return None


def _words_of(language: frozenset[str], closed_before: bool, closed_after: bool) -> frozenset[str]:
    """A word of each string, the longest that no letter outside of the string can continue; empty if one has none."""
    words = set()
    for string in language:
        runs = [
            run[0]
            for run in _RUN.finditer(string)
            if (run.start() > 0 or closed_before) and (run.end() < len(string) or closed_after)
        ]
        if not runs:
            return frozenset()
        words.add(max(runs, key=len))
    return frozenset(words)


def _is_closed_before(nodes: Sequence[Any], start: int) -> bool:
    """Whether no letter can stand before `nodes[start]`."""
    for kind, value in reversed(nodes[:start]):
        name = str(kind)
        if name == "AT" and str(value) in ("AT_BEGINNING", "AT_BOUNDARY"):
            return True
        if name == "ASSERT_NOT" and value[0] < 0 and _refuses_letters(value[1]):
            return True
        if name == "ASSERT" and value[0] < 0:
            return _has_no_letter(list(value[1]), -1)
        if name not in _ZERO_WIDTH:
            return _has_no_letter([(kind, value)], -1)
    return False


def _is_closed_after(nodes: Sequence[Any], end: int) -> bool:
    """Whether no letter can stand at `nodes[end]`."""
    for kind, value in nodes[end:]:
        name = str(kind)
        if name == "AT" and str(value) in ("AT_END", "AT_BOUNDARY"):
            return True
        if name == "ASSERT_NOT" and value[0] > 0 and _refuses_letters(value[1]):
            return True
        if name == "ASSERT" and value[0] > 0:
            return _has_no_letter(list(value[1]), 0)
        if name not in _ZERO_WIDTH:
            return _has_no_letter([(kind, value)], 0)
    return False


def _refuses_letters(nodes: Sequence[Any]) -> bool:
    """Whether a negative assertion with this content refuses every letter."""
    if len(nodes) != 1:
        return False
    kind, value = nodes[0]
    if str(kind) == "BRANCH":
        return any(_refuses_letters(branch) for branch in value[1])
    characters = _characters(value) if str(kind) == "IN" else None
    return characters is not None and characters >= _LETTERS


def _has_no_letter(nodes: Sequence[Any], edge: int) -> bool:
    """Whether the node at the `edge` of a sequence, 0 or -1, matches a character that is no letter, or an end."""
    if not nodes:
        return False
    kind, value = nodes[edge]
    if str(kind) == "LITERAL":
        return chr(value) not in _LETTERS
    if str(kind) == "BRANCH":
        return all(_has_no_letter(list(branch), edge) for branch in value[1])
    if str(kind) == "SUBPATTERN":
        return _has_no_letter(list(value[3]), edge)
    if str(kind) in _REPEATS:
        return value[0] > 0 and _has_no_letter(list(value[2]), edge)
    if str(kind) == "AT":
        return str(value) in ("AT_BEGINNING", "AT_END")
    characters = _characters(value) if str(kind) == "IN" else None
    return characters is not None and not characters & _LETTERS


def _characters(parts: Sequence[Any]) -> frozenset[str] | None:
    """ASCII characters of a set; None where they are not listed."""
    found: set[str] = set()
    for part, content in parts:
        name = str(part)
        if name == "LITERAL":
            found.add(chr(content))
        elif name == "RANGE":
            found.update(chr(code) for code in range(content[0], min(content[1], 127) + 1))
        elif name == "CATEGORY" and str(content) in _CATEGORIES:
            found.update(_CATEGORIES[str(content)])
        else:
            return None
    return frozenset(found)
