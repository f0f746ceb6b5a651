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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

from marstts.text.prefilter_words import required_words

MAX_SET = 100
"""Larger sets of characters tell too little."""

_MODULE = "re._parser" if sys.version_info >= (3, 11) else "sre_parse"
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_ZERO_WIDTH = ("AT", "ASSERT", "ASSERT_NOT")

_PROSE_MARKS = frozenset(" .,-'\"")

MAX_PAIRS = 40
"""Larger groups of pairs tell too little."""

CLASSES = str.maketrans(
    "0123456789" + "abcdefghijklmnopqrstuvwxyz" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0" * 10 + "a" * 26 + "A" * 26
)

Characters = frozenset[str] | None
"""A set of characters; None is any character."""


@dataclass(frozen=True)
class Prefilter:
    """Facts that hold for every match of a pattern."""

    first: Characters
    """The characters a match can start with."""

    required: tuple[frozenset[str], ...]
    """Groups of characters; a text without one of a group has no match."""

    pairs: tuple[frozenset[str], ...]
    """Groups of pairs of classes (`pairs_of`) that stand side by side; a text without one of a group has no match."""

    words: tuple[frozenset[str], ...]
    """Groups of words; a text without one of a group has no match."""


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
    characters = ["".join(sorted(group)) for group in found.required]
    pairs, words = ([sorted(group) for group in groups] for groups in (found.pairs, found.words))
    return [first, characters, pairs, words]


def from_json(stored: list[Any]) -> Prefilter:
    """The facts that `to_json` gave."""
    first, *groups = stored
    characters, pairs, words = (tuple(frozenset(group) for group in each) for each in groups)
    return Prefilter(None if first is None else frozenset(first), characters, pairs, words)


@cache
def _stored() -> dict[str, list[Any]]:
    path = files("marstts.text").joinpath("data", "prefilters.json")
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def analyze(source: str, with_words: bool = True) -> Prefilter:
    """Facts that hold for every match of the pattern `source`; words take the longest to find."""
    try:
        tree = importlib.import_module(_MODULE).parse(source)
        nodes = list(tree)
        first, is_nullable = _first(nodes)
        words = required_words(nodes) if with_words else ()
        return Prefilter(None if is_nullable else first, _required(nodes), _pairs(nodes), words)
    except (ImportError, AttributeError, TypeError, ValueError):
        return Prefilter(None, (), (), ())


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
    return _single(kind, value), False


def _single(kind: str, value: Any) -> Characters:
    """The characters that one place of a pattern matches."""
    if kind == "LITERAL":
        return frozenset({chr(value)})
    if kind != "IN":
        return None
    found: set[str] = set()
    for part, content in value:
        if str(part) == "LITERAL":
            found.add(chr(content))
        elif str(part) == "RANGE" and content[1] - content[0] < MAX_SET:
            found.update(map(chr, range(content[0], content[1] + 1)))
        else:
            return None
    return frozenset(found)


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
        elif (characters := _single(str(kind), value)) is not None and len(characters) < 53:
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
    return shared or ({union} if len(union) < 53 else set())


def _pairs(nodes: Sequence[Any]) -> tuple[frozenset[str], ...]:
    """Groups of pairs of classes, one for each two places of a pattern that always stand side by side."""
    places = [None if place is None else "".join(sorted(place)).translate(CLASSES) for place in _places(nodes)]
    groups = {
        frozenset(first + second for first in before for second in after)
        for before, after in pairwise(places)
        if before is not None and after is not None and len(set(before)) * len(set(after)) <= MAX_PAIRS
    }
    return tuple(sorted(groups, key=lambda group: (len(group), min(group))))


def _places(nodes: Sequence[Any]) -> Iterator[Characters]:
    """Characters that each place of a pattern matches; None parts places that do not always stand side by side."""
    for kind, value in nodes:
        name = str(kind)
        if name == "SUBPATTERN" and not value[1]:
            yield from _places(value[3])
        elif name == "ASSERT":
            inner = list(_places(value[1]))
            yield from [None, *inner] if value[0] < 0 else [*inner, None]
        elif name in _REPEATS and value[0] > 0:
            inner = list(_places(value[2]))
            yield from inner if len(inner) == 1 else [*inner, None, *inner[-1:]]
        elif name not in _ZERO_WIDTH:
            yield _single(name, value)


def pairs_of(text: str) -> frozenset[str]:
    """The pairs of classes of neighboring characters: digits, small letters, capitals, and every other character."""
    classes = text.translate(CLASSES)
    for run in ("0000", "aaaa", "000", "aaa"):  # shorter runs hold the same pairs
        classes = classes.replace(run, run[:2])
    return frozenset(map("".join, set(pairwise(classes))))


def class_of(characters: frozenset[str]) -> str:
    """The pattern of one of `characters`."""
    return f"[{''.join(map(re.escape, sorted(characters)))}]"
