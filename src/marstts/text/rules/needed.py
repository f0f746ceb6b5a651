"""Characters that a match of a pattern must hold: a rule need not be tried on a text without them.

Upstream: `engine`, which asks before it tries a rule.  A text of short lines tries some hundred rules on each line, and
most of them need a digit or a sign that is not there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

MAX_SET = 2048
"""Larger sets of characters exclude hardly any text."""

NUM_SETS = 3
"""Sets that are kept of a pattern, the smallest first."""

_OTHER_CASES = {"s": "\u017f", "k": "\u212a", "i": "\u0130\u0131"}
"""Characters that a letter also matches where case is ignored."""


def needed_characters(source: str) -> tuple[frozenset[str], ...]:
    """Sets of characters; every match, with what stands around it, has one character of each at least.

    They follow from the parsed pattern. Where this Python offers no parser there are none, and every rule is tried.
    """
    try:
        tree = import_module("re._parser").parse(source)
    except ImportError:
        return ()
    ignores_case = bool(tree.state.flags & re.IGNORECASE) or re.search(r"\(\?[aLmsux]*i", source) is not None
    found = sorted(set(_of_sequence(tree, ignores_case)), key=len)
    return tuple(found[:NUM_SETS])


def _of_sequence(parts: Iterable[tuple[Any, Any]], ignores_case: bool) -> list[frozenset[str]]:
    return [needed for part in parts for needed in _of_part(str(part[0]), part[1], ignores_case)]


def _of_part(kind: str, value: Any, ignores_case: bool) -> list[frozenset[str]]:
    match kind:
        case "LITERAL":
            return _as_set([chr(value)], ignores_case)
        case "IN":
            return _as_set(_members(value), ignores_case)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _of_sequence(value[2], ignores_case) if value[0] else []
        case "SUBPATTERN":
            return _of_sequence(value[3], ignores_case)
        case "ATOMIC_GROUP":
            return _of_sequence(value, ignores_case)
        case "ASSERT":
            return _of_sequence(value[1], ignores_case)
        case "BRANCH":
            return _of_branches([_of_sequence(branch, ignores_case) for branch in value[1]])
    return []


def _of_branches(branches: list[list[frozenset[str]]]) -> list[frozenset[str]]:
    """One character of any branch; nothing where a branch needs nothing."""
    if not all(branches):
        return []
    return [frozenset().union(*(min(needed, key=len) for needed in branches))]


def _members(items: list[tuple[Any, Any]]) -> list[str] | None:
    """The characters of a set; None where they are too many."""
    members: list[str] = []
    for kind, value in items:
        match str(kind):
            case "LITERAL":
                members.append(chr(value))
            case "RANGE" if value[1] - value[0] < MAX_SET:
                members += map(chr, range(value[0], value[1] + 1))
            case "CATEGORY" if str(value) == "CATEGORY_DIGIT":
                members += _digits()
            case _:
                return None
    return members


def _as_set(members: list[str] | None, ignores_case: bool) -> list[frozenset[str]]:
    if members is None:
        return []
    if ignores_case:
        if not all(character.isascii() for character in members):
            return []
        members = [
            case
            for character in members
            for case in (character.lower() + character.upper() + _OTHER_CASES.get(character.lower(), ""))
        ]
    return [frozenset(members)]


@cache
def _digits() -> tuple[str, ...]:
    return tuple(character for character in map(chr, range(sys.maxunicode + 1)) if character.isdecimal())
