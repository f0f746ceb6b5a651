"""First characters and required characters of patterns: rules are tried only where they can match.

Upstream: the patterns of `rules`.  Downstream: `rules`, which skips texts and positions.
Deviation: reads the parse trees of `re`, whose module is private. Where they cannot be read, nothing is skipped.
The facts of our rules are kept in `data/prefilters.json` (`python tools/text_prefilters.py`): to analyze all of them
takes as long as all imports.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from marstts.text.prefilter_grams import MAX_SET, Characters, characters_of, frequency, required_grams, without_digits
from marstts.text.prefilter_tokens import token_parts
from marstts.text.prefilter_words import required_words

_MODULE = "re._parser" if sys.version_info >= (3, 11) else "sre_parse"
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_ZERO_WIDTH = ("AT", "ASSERT", "ASSERT_NOT")

_PROSE_MARKS = frozenset(" .,-'\"")

MAX_GROUPS = 3
"""More groups of a kind exclude hardly more."""


@dataclass(frozen=True)
class Prefilter:
    """Facts that hold for every match of a pattern."""

    first: Characters
    """The characters a match can start with."""

    grams: tuple[frozenset[str], ...]
    """Groups of short strings in which every digit is 0; a text without one of a group has no match."""

    words: tuple[frozenset[str], ...]
    """Groups of words; a text without one of a group has no match."""

    parts: tuple[tuple[frozenset[str], str], ...] = ()
    """Patterns of which a token must hold a match, each with strings of which such a token holds one."""


def prefilter_of(source: str, with_words: bool = True) -> Prefilter:
    """Facts that `analyze` finds, from `data/prefilters.json` where the pattern is listed, which is quicker."""
    stored = _stored().get(key_of(source, with_words))
    return analyze(source, with_words) if stored is None else from_json(stored)


def key_of(source: str, with_words: bool) -> str:
    """The name of a pattern in the file."""
    return hashlib.sha256(f"{with_words} {source}".encode()).hexdigest()[:20]


def to_json(found: Prefilter) -> list[Any]:
    """The facts as lists of strings."""
    first = None if found.first is None else "".join(sorted(found.first))
    grams, words = ([sorted(group) for group in groups] for groups in (found.grams, found.words))
    return [first, grams, words, [[sorted(strings), source] for strings, source in found.parts]]


def from_json(stored: list[Any]) -> Prefilter:
    """The facts that `to_json` gave."""
    first, *groups, stored_parts = stored
    grams, words = (tuple(frozenset(group) for group in each) for each in groups)
    parts = tuple((frozenset(strings), source) for strings, source in stored_parts)
    return Prefilter(None if first is None else frozenset(first), grams, words, parts)


@cache
def _stored() -> dict[str, list[Any]]:
    path = files("marstts.text.rules").joinpath("data", "prefilters.json")
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def analyze(source: str, with_words: bool = True) -> Prefilter:
    """Facts that hold for every match of the pattern `source`; words take the longest to find."""
    try:
        parse = importlib.import_module(_MODULE).parse
        nodes = list(parse(source))
        first, is_nullable = _first(nodes)
        groups = required_grams(nodes) | {without_digits(group) for group in _required(nodes)}
        words = sorted(required_words(nodes), key=lambda group: (len(group), sorted(group))) if with_words else []
        grams = sorted(groups, key=frequency)[:MAX_GROUPS]
        parts = token_parts(nodes, parse)
        return Prefilter(None if is_nullable else first, tuple(grams), tuple(words[: MAX_GROUPS - 1]), parts)
    except (ImportError, AttributeError, TypeError, ValueError):
        return Prefilter(None, (), ())


def _first(nodes: Sequence[Any]) -> tuple[Characters, bool]:
    """The characters that a sequence can start with, and whether it can be empty."""
    found: frozenset[str] = frozenset()
    for kind, value in nodes:
        characters, is_nullable = _first_of(str(kind), value)
        if characters is None:
            return None, False
        found |= characters
        if not is_nullable:
            return (found, False) if len(found) <= MAX_SET else (None, False)
    return found, True


def _first_of(kind: str, value: Any) -> tuple[Characters, bool]:
    if kind in _ZERO_WIDTH:
        return frozenset(), True
    if kind == "SUBPATTERN":
        return (None, False) if value[1] else _first(value[3])
    if kind in _REPEATS:
        characters, is_nullable = _first(value[2])
        return characters, is_nullable or value[0] == 0
    if kind == "BRANCH":
        parts = [_first(branch) for branch in value[1]]
        if any(characters is None for characters, _ in parts):
            return None, False
        return frozenset().union(*(characters or () for characters, _ in parts)), any(empty for _, empty in parts)
    return characters_of(kind, value), False


def _required(nodes: Sequence[Any]) -> tuple[frozenset[str], ...]:
    """Groups of which every match, and what it looks at, holds one character; the rarest first."""
    found: set[frozenset[str]] = set()
    for kind, value in nodes:
        if str(kind) == "ASSERT":
            found.update(_required(value[1]))
        elif str(kind) == "SUBPATTERN" and not value[1]:
            found.update(_required(value[3]))
        elif str(kind) in _REPEATS and value[0] > 0:
            found.update(_required(value[2]))
        elif str(kind) == "BRANCH":
            found.update(_required_by_all(value[1]))
        elif (characters := characters_of(str(kind), value)) is not None and len(characters) <= MAX_SET:
            found.add(characters)
    return tuple(sorted(found, key=_frequency))


def _frequency(group: frozenset[str]) -> tuple[int, str]:
    """Order of groups by how often a text holds them: letters are frequent, marks are seldom."""
    weight = sum(10 if character.isalnum() else 5 if character in _PROSE_MARKS else 1 for character in group)
    return weight, min(group)


def _required_by_all(branches: Sequence[Any]) -> set[frozenset[str]]:
    """Groups for all branches: those of one that contain a group of each other one, else the rarest of each."""
    groups = [_required(branch) for branch in branches]
    if not all(groups):
        return set()
    shared = {
        group for found in groups for group in found if all(any(each <= group for each in others) for others in groups)
    }
    union = frozenset().union(*(group[0] for group in groups))
    return shared or ({union} if len(union) <= MAX_SET else set())


def class_of(characters: frozenset[str]) -> str:
    """The pattern of one of `characters`."""
    return f"[{''.join(map(re.escape, sorted(characters)))}]"
