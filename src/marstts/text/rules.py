"""Rules: a name, a pattern and a function from its match to words; the trace records what each rule read.

Upstream: the modules of rules.  Downstream: `normalize`, which applies them to one block of text after another.
Every pattern starts only where a run of its characters starts, and repeats only what is bounded or cannot match twice.
So the time is linear in the text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property

from marstts.text.prefilter import Prefilter, class_of, pairs_of, prefilter_of

Reader = Callable[[re.Match[str]], str | None]
"""Function from a match to the text that replaces it; None leaves the text as it is."""

_LETTERS = re.compile("[A-Za-z]+")
_REFERENCE = re.compile(r"\\g<([A-Za-z_]+)>|\\([0-9])")


@dataclass(frozen=True)
class Step:
    """One reading: the rule, the text it matched, and what it put there."""

    rule: str
    written: str
    read: str


@dataclass
class Trace:
    """Record of the rules applied to a text, and of characters without a reading."""

    steps: list[Step] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def record(self, rule: str, written: str, read: str) -> None:
        """Add a step, unless nothing changed."""
        if written.strip() != read.strip():
            self.steps.append(Step(rule, written.strip(), read.strip()))

    def leave_out(self, characters: str) -> None:
        """Add characters that have no reading."""
        self.left_out.append(characters)


@dataclass(frozen=True, eq=False)
class Rule:
    """One written form and how it is read."""

    name: str
    source: str
    """The pattern of the written form."""

    read: Reader
    words: frozenset[str] = frozenset()
    """Runs of letters of which the text must hold one; empty: any text will do."""

    parted: bool = True
    """Whether the words are kept apart from letters and digits that touch the match: MP3s -> MP three s."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled when it is first tried."""
        return re.compile(self.source)

    @cached_property
    def prefilter(self) -> Prefilter:
        """Facts that hold for every match."""
        return prefilter_of(self.source, with_words=not self.words)

    @cached_property
    def scanner(self) -> re.Pattern[str]:
        """Pattern of the first character of every match; `re` finds it faster than what begins with a lookbehind."""
        first = self.prefilter.first
        if first is None:
            return self.pattern
        try:
            return re.compile(f"{class_of(first)}(?<=(?={self.source})(?s:.))")
        except re.error:  # a lookbehind may not refer to groups within it
            return self.pattern

    @cached_property
    def needs(self) -> frozenset[frozenset[str]]:
        """Groups of characters, of pairs and of words; a text without one of a group has no match."""
        found = self.prefilter
        return frozenset((*found.required, *found.pairs, *found.words, *((self.words,) if self.words else ())))

    def apply(self, text: str, trace: Trace) -> tuple[str, str]:
        """`text` with every match read, and the words with their neighbors; the same text where nothing changes."""
        start = self.scanner.search(text)
        if start is None:
            return text, ""
        parts: list[str] = []
        added: list[str] = []
        end = 0
        for match in self.matches(text, start.start()):
            words = self.read(match)
            if words is None or words == match[0]:
                continue
            trace.record(self.name, match[0], words)
            words = _apart(words, match) if self.parted else words
            parts += (text[end : match.start()], words)
            end = match.end()
            added.append(text[max(match.start() - 1, 0) : match.start()] + words + text[end : end + 1])
        return ("".join(parts) + text[end:], "\n".join(added)) if parts else (text, "")

    def matches(self, text: str, start: int = 0) -> Iterator[re.Match[str]]:
        """Matches as `finditer` gives them, from `start` on."""
        if self.scanner is self.pattern:
            yield from self.pattern.finditer(text, start)
            return
        end = start
        for found in self.scanner.finditer(text, start):
            position = found.start()
            if position >= end and (match := self.pattern.match(text, position)) is not None:
                end = match.end()
                yield match


def _apart(words: str, match: re.Match[str]) -> str:
    text, start, end = match.string, match.start(), match.end()
    before = " " if start > 0 and text[start - 1].isalnum() and words[:1] != " " else ""
    after = " " if end < len(text) and text[end].isalnum() and words[-1:] != " " else ""
    return before + words + after


def rule(name: str, pattern: str, read: Reader | str, *, words: Iterable[str] = (), parted: bool = True) -> Rule:
    """A rule from its pattern's source; a `read` that is a string may refer to groups: `\\\\1`.

    `words` are forms of which one must occur; the first run of letters of each is what is looked for.
    """
    reader = _expander(read) if isinstance(read, str) else read
    runs = frozenset(run[0] for word in words if (run := _LETTERS.search(word)))
    return Rule(name, pattern, reader, runs, parted)


def _expander(template: str) -> Reader:
    """The reader of a template with groups; `re` would parse the template again for every match."""
    if "\\" not in template:
        return lambda match: template
    parts = _REFERENCE.split(template)  # text, name, number, text, ...

    def read(match: re.Match[str]) -> str:
        return "".join(
            (part or "") if place % 3 == 0 else (match[part if place % 3 == 1 else int(part)] or "") if part else ""
            for place, part in enumerate(parts)
        )

    return read


@dataclass(frozen=True)
class Plan:
    """Rules in order, each with the bits of the groups that it needs, and the bits that a member sets."""

    steps: tuple[tuple[int, Rule], ...]
    bits: dict[str, int]

    def held(self, members: Iterable[str]) -> int:
        """The bits of all groups that hold one of `members`."""
        held, bits = 0, self.bits
        for member in members:
            if member in bits:
                held |= bits[member]
        return held


@cache
def plan_of(rules: tuple[Rule, ...]) -> Plan:
    """The plan of rules: every group that one of them needs gets a bit."""
    groups = {group: 1 << number for number, group in enumerate(frozenset().union(*(each.needs for each in rules)))}
    bits: dict[str, int] = defaultdict(int)
    for group, bit in groups.items():
        for member in group:
            bits[member] |= bit
    return Plan(tuple((sum(groups[group] for group in each.needs), each) for each in rules), dict(bits))


def apply_all(rules: tuple[Rule, ...], text: str, trace: Trace) -> str:
    """`text` after every rule in order; a rule is tried where the text holds all that it needs."""
    plan = plan_of(rules)
    held = plan.held(members_of(text))
    for needed, each in plan.steps:
        if needed & held == needed:
            text, added = each.apply(text, trace)
            if added:
                held |= plan.held(members_of(added))  # what the text lost may stay: that costs a search at most
    return text


def members_of(text: str) -> frozenset[str]:
    """Characters, pairs of their classes and runs of letters of a text."""
    return frozenset(text).union(_LETTERS.findall(text), pairs_of(text))
