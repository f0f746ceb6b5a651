"""Short strings of which every match of a pattern holds one: a text without any of them is not searched.

None has a space inside, so the strings of a text are those of its tokens, and what a token sets is kept.

Upstream: parse trees of patterns.  Downstream: `prefilter`.
The places of a pattern and which may follow which form its position automaton (Glushkov, 1961). Every match passes one
place of each part that cannot be left out, so it holds one of the strings that lead through those places.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import product
from string import ascii_lowercase, ascii_uppercase
from typing import Any

MAX_GRAMS = 64
"""Larger groups of strings tell too little."""

MAX_LENGTH = 4
"""Longest strings; longer ones exclude hardly more."""

MAX_CLASSES = 5
"""Longest strings of classes."""

LONG_TOKEN = 32
"""Runs in longer tokens are cut."""

MAX_SET = 100
"""Ranges of more characters are not listed."""

MAX_COPIES = 3
"""A part that is repeated more often is a loop."""

_OTHER_DIGITS = "123456789"
_DIGITS = str.maketrans(_OTHER_DIGITS, "0" * 9)
_CLASSES = str.maketrans(ascii_lowercase + ascii_uppercase, "a" * 26 + "A" * 26)
IS_CLASSES = "\0"
"""First character of a string in which every small letter is a, and every capital A."""

_LONG_RUN = re.compile(rf"(.)\1{{{MAX_CLASSES},}}", re.DOTALL)

_ZERO_WIDTH = ("AT", "ASSERT_NOT")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_CLASS_WEIGHTS = {"a": 0.6, "A": 0.06, IS_CLASSES: 1.0}
_WEIGHTS = {" ": 0.15, "0": 0.12, ".": 0.03, ",": 0.03, "-": 0.01, "'": 0.01}
"""About how often a text holds a character, where digits are one."""

Characters = frozenset[str] | None
"""A set of characters; None is any character."""

Part = tuple[set[int], set[int], bool]
"""The places that a part of a pattern can start and end with, and whether it can be empty."""


def tokens_of(text: str) -> set[str]:
    """Tokens of `text`, which spaces separate; every digit is 0."""
    for digit in _OTHER_DIGITS:
        text = text.replace(digit, "0")  # `str.translate` takes thirty times as long on text that is not ASCII
    return set(text.split(" "))


def classes_of(text: str) -> str:
    """`text` with an a for every small letter and an A for every capital."""
    return text.translate(_CLASSES)


def within_spaces(token: str) -> str:
    """A token of `tokens_of` with the spaces around it; long runs of one character are cut, which loses no string."""
    if len(token) > LONG_TOKEN:
        token = _LONG_RUN.sub(lambda run: run[1] * MAX_CLASSES, token)
    return f" {token} "


def strings_of(text: str, heads: Collection[str], longest: int) -> set[str]:
    """All strings of one and two characters in `text`, and the longer ones that begin with one of `heads`."""
    pairs = [text[start : start + 2] for start in range(len(text) - 1)]
    starts = [start for start, pair in enumerate(pairs) if pair in heads]
    found = {*text, *pairs}
    for length in range(3, longest + 1):
        found.update([text[start : start + length] for start in starts])
    return found


def heads_of(strings: Iterable[str]) -> frozenset[str]:
    """The first two characters of the longer ones of `strings`."""
    return frozenset(string[:2] for string in strings if len(string) > 2)


def characters_of(kind: str, value: Any) -> Characters:
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


def without_digits(characters: Iterable[str]) -> frozenset[str]:
    """The characters as they are in grams: every digit is 0."""
    return frozenset(character.translate(_DIGITS) for character in characters)


def frequency(group: frozenset[str]) -> tuple[float, list[str]]:
    """Order of groups by about how often a text holds one of their strings."""
    total = 0.0
    for string in sorted(group):
        weight = 1.0
        weights = _CLASS_WEIGHTS | _WEIGHTS if string[0] == IS_CLASSES else _WEIGHTS
        for character in string:
            usual = 0.03 if character.islower() else 0.01 if character.isupper() else 0.004
            weight *= weights.get(character, usual)
        total += weight
    return round(total, 12), sorted(group)


def required_grams(nodes: Sequence[Any]) -> set[frozenset[str]]:
    """Groups of strings; every match, with what it looks at before and after, holds one string of each."""
    automaton = _Automaton(nodes)
    return {group for cut in automaton.cuts for group in automaton.groups(cut) if group}


class _Automaton:
    """The places of a pattern; what a match looks at before its start and after its end counts as part of it."""

    def __init__(self, nodes: Sequence[Any]) -> None:
        self.places: list[Characters] = []
        self.after: list[set[int]] = []
        self.cuts: set[frozenset[int]] = set()
        """Sets of places; every match passes one of each."""
        self.first, self.last, _ = self._read_sequence(list(nodes), True, True, True)
        self.classes = [
            None if place is None else frozenset(each.translate(_CLASSES) for each in place) for place in self.places
        ]
        self.before: list[set[int]] = [set() for _ in self.places]
        for place, following in enumerate(self.after):
            for each in following:
                self.before[each].add(place)

    def groups(self, cut: frozenset[int]) -> Iterator[frozenset[str]]:
        """The strings that begin in a cut, that end in it, and that begin one before it; empty: too many."""
        for length in range(2, MAX_CLASSES + 1):
            for num_before, num_after in {(0, length - 1), (length - 1, 0), (1, length - 2)}:
                if length <= MAX_LENGTH:
                    yield self._strings(cut, num_before, num_after, self.places)
                yield frozenset(IS_CLASSES + each for each in self._strings(cut, num_before, num_after, self.classes))

    def _strings(
        self, cut: frozenset[int], num_before: int, num_after: int, places: Sequence[Characters]
    ) -> frozenset[str]:
        paths: set[tuple[int, ...]] = {(place,) for place in cut}
        for _ in range(num_before):
            if any(path[0] in self.first for path in paths):
                return frozenset()
            paths = {(place, *path) for path in paths for place in self.before[path[0]]}
            if len(paths) > 8 * MAX_GRAMS:
                return frozenset()
        for _ in range(num_after):
            if any(path[-1] in self.last for path in paths):
                return frozenset()
            paths = {(*path, place) for path in paths for place in self.after[path[-1]]}
            if len(paths) > 8 * MAX_GRAMS:
                return frozenset()
        found: set[str] = set()
        for path in paths:
            sets = [places[place] for place in path]
            size = 1
            for characters in sets:
                size *= MAX_GRAMS + 1 if characters is None else len(characters)
            if size > MAX_GRAMS:
                return frozenset()
            found.update(map("".join, product(*(characters or () for characters in sets))))
            if len(found) > MAX_GRAMS or any(" " in gram[1:-1] for gram in found):
                return frozenset()
        return frozenset(found)

    def _read_sequence(self, nodes: list[Any], is_needed: bool, at_start: bool, at_end: bool) -> Part:
        """Add the places of a sequence; `at_start` and `at_end`: nothing of the pattern stands before or after it."""
        first: set[int] = set()
        last: set[int] = set()
        is_empty = True
        for index, (name, value) in enumerate(nodes):
            kind = str(name)
            ends = at_end and all(str(each) in _ZERO_WIDTH for each, _ in nodes[index + 1 :])
            starts = at_start and is_empty and not first
            if kind in _ZERO_WIDTH or (kind == "ASSERT" and not (starts if value[0] < 0 else ends)):
                continue
            firsts, lasts, may_be_empty = self._read_node(kind, value, is_needed, starts, ends)
            self._link(last, firsts)
            first |= firsts if is_empty else set()
            last = lasts | last if may_be_empty else lasts
            is_empty = is_empty and may_be_empty
            if is_needed and not may_be_empty:
                self.cuts |= {frozenset(each) for each in (firsts, lasts) if each}
        return first, last, is_empty

    def _read_node(self, kind: str, value: Any, is_needed: bool, at_start: bool, at_end: bool) -> Part:
        if kind == "ASSERT":
            return self._read_sequence(list(value[1]), is_needed, at_start and value[0] < 0, at_end and value[0] > 0)
        if kind == "SUBPATTERN" and not value[1]:
            return self._read_sequence(list(value[3]), is_needed, at_start, at_end)
        if kind == "BRANCH":
            parts = [self._read_sequence(list(branch), False, at_start, at_end) for branch in value[1]]
            firsts: set[int] = set().union(*(part[0] for part in parts))
            lasts: set[int] = set().union(*(part[1] for part in parts))
            return firsts, lasts, any(part[2] for part in parts)
        if kind in _REPEATS:
            least, most, inner = value
            return self._read_repeat(int(least), int(most), inner, is_needed, at_start, at_end)
        is_place = kind in ("LITERAL", "NOT_LITERAL", "IN", "ANY")
        characters = characters_of(kind, value)
        place = len(self.places)
        self.places.append(None if characters is None else without_digits(characters))
        self.after.append(set() if is_place else {place})  # anything else may be any string
        return {place}, {place}, not is_place

    def _read_repeat(self, least: int, most: int, inner: Any, is_needed: bool, at_start: bool, at_end: bool) -> Part:
        once = most == 1
        copies = 1 if once else min(least + (most > least), MAX_COPIES) or 1
        first: set[int] = set()
        last: set[int] = set()
        lasts: set[int] = set()
        firsts: set[int] = set()
        is_empty = True
        for copy in range(copies):
            needed = is_needed and copy < least
            firsts, lasts, may_be_empty = self._read_sequence(list(inner), needed, at_start and once, at_end and once)
            may_be_empty = may_be_empty or copy >= least
            self._link(last, firsts)
            first |= firsts if is_empty else set()
            last = lasts | last if may_be_empty else lasts
            is_empty = is_empty and may_be_empty
        if most > copies:
            self._link(lasts, firsts)
        return first, last, is_empty

    def _link(self, before: set[int], after: set[int]) -> None:
        for place in before:
            self.after[place] |= after
