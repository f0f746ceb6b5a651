"""Rules: a name, a pattern and a function from its match to words; the trace records what each rule read.

Upstream: the modules of rules.  Downstream: `normalize`, which applies them to one block of text after another.
Every pattern starts only where a run of its characters starts, and repeats only what is bounded or cannot match twice.
So the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple

from marstts.text.prefilter import MAX_GROUPS, Prefilter, class_of, prefilter_of
from marstts.text.prefilter_grams import (
    IS_CLASSES,
    MAX_CLASSES,
    MAX_LENGTH,
    classes_of,
    heads_of,
    strings_of,
    tokens_of,
    within_spaces,
)
from marstts.text.prefilter_tokens import MAX_PARTS

Reader = Callable[[re.Match[str]], str | None]
"""Function from a match to the text that replaces it; None leaves the text as it is."""

MAX_CHANGES = 20
"""More changes of one rule are not looked at one by one: the whole text is."""

LONGEST_TOKEN = 48
"""Longer tokens are not kept, and a part of a pattern is not searched in them: they may hold it."""

MAX_TOKENS = 8192
"""Tokens whose bits are kept."""

_LETTERS = re.compile("[A-Za-z]+")
_REFERENCE = re.compile(r"\\g<([A-Za-z_]+)>|\\([0-9])")


class Step(NamedTuple):
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

    def apply(self, text: str, trace: Trace) -> tuple[str, str]:
        """`text` with every match read, and the words with their neighbors; the same text where nothing changes."""
        start = self.scanner.search(text)
        if start is None:
            return text, ""
        parts: list[str] = []
        places: list[tuple[int, int]] = []
        end, length = 0, 0
        for match in self.matches(text, start.start()):
            words = self.read(match)
            if words is None or words == match[0]:
                continue
            trace.record(self.name, match[0], words)
            words = _apart(words, match) if self.parted else words
            first = length + match.start() - end
            length = first + len(words)
            parts += (text[end : match.start()], words)
            end = match.end()
            places.append((first, length))
        if not parts:
            return text, ""
        text = "".join(parts) + text[end:]
        if len(places) > MAX_CHANGES:
            return text, text
        return text, " ".join(_around(text, *place) for place in places)

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


def _around(text: str, start: int, end: int) -> str:
    """The new words in a text with the rest of the tokens that they touch, as far as tokens are searched."""
    first = text.rfind(" ", max(start - LONGEST_TOKEN, 0), start)
    last = text.find(" ", end, end + LONGEST_TOKEN)
    first = max(start - LONGEST_TOKEN, 0) if first < 0 else first
    return text[first : end + LONGEST_TOKEN if last < 0 else last]


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
    """Rules in order, and which of their groups a string or a word belongs to."""

    rules: tuple[Rule, ...]
    grams: dict[str, int]
    """Bits of strings: group G of rule R has bit G * number of rules + R."""

    words: dict[str, int]
    """Bits of runs of letters, whose groups come after those of strings."""

    free: int
    """Bits of the groups that rules lack."""

    classes: dict[str, int]
    """Bits of strings of classes, without the mark before them."""

    parts: tuple[str, ...]
    """Patterns of parts, of which a token must hold a match; empty where a rule has none. Part P of rule R has place
    P * number of rules + R; its bit is that far behind those of words, and its strings set one that is behind those."""

    known: dict[str, int] = field(default_factory=dict)
    """Bits of tokens that were met."""

    @cached_property
    def _heads(self) -> frozenset[str]:
        return heads_of(self.grams)

    @cached_property
    def _class_heads(self) -> frozenset[str]:
        return heads_of(self.classes)

    def held(self, text: str) -> int:
        """The bits that the tokens of `text` set."""
        held, known = 0, self.known
        for token in tokens_of(text):
            bits = known.get(token)
            held |= self._bits_of(token) if bits is None else bits
        return held

    def _bits_of(self, token: str) -> int:
        bits = 0
        text = within_spaces(token)
        for gram in self.grams.keys() & strings_of(text, self._heads, MAX_LENGTH):
            bits |= self.grams[gram]
        for gram in self.classes.keys() & strings_of(classes_of(text), self._class_heads, MAX_CLASSES):
            bits |= self.classes[gram]
        for word in self.words.keys() & _LETTERS.findall(token):
            bits |= self.words[word]
        bits = self._with_parts(bits, token)
        if len(self.known) >= MAX_TOKENS:
            self.known.clear()
        if len(token) <= LONGEST_TOKEN:
            self.known[token] = bits
        return bits

    def _with_parts(self, bits: int, token: str) -> int:
        """The bits with those of the parts that a token holds, of all whose strings it holds."""
        num_groups_bits, num_parts = 2 * MAX_GROUPS * len(self.rules), len(self.parts)
        waiting = bits >> num_groups_bits + num_parts
        bits &= (1 << num_groups_bits) - 1
        text, is_long = f" {token} ", len(token) > LONGEST_TOKEN
        while waiting:
            place = (waiting & -waiting).bit_length() - 1
            waiting ^= 1 << place
            if is_long or _part(self.parts[place]).search(text) is not None:
                bits |= 1 << num_groups_bits + place
        return bits

    def may_match(self, held: int) -> int:
        """The bits of the rules all of whose groups have a member in a text."""
        held |= self.free
        found = (1 << len(self.rules)) - 1
        for group in range(2 * MAX_GROUPS + MAX_PARTS):
            found &= held >> group * len(self.rules)
        return found


@cache
def _part(source: str) -> re.Pattern[str]:
    return re.compile(source)


@cache
def plan_of(rules: tuple[Rule, ...]) -> Plan:
    """The plan of rules: each of their groups gets a bit."""
    grams: dict[str, int] = {}
    words: dict[str, int] = {}
    parts = [""] * MAX_PARTS * len(rules)
    num_bits = 2 * MAX_GROUPS * len(rules) + len(parts)
    free = (1 << num_bits) - 1
    for place, each in enumerate(rules):
        given = (each.words,) if each.words else ()
        kinds = ((grams, each.prefilter.grams), (words, (*each.prefilter.words, *given)))
        for first, (bits, groups) in zip((0, MAX_GROUPS), kinds, strict=True):
            for number, group in enumerate(groups, first):
                bit = 1 << number * len(rules) + place
                free ^= bit
                for member in group:
                    bits[member] = bits.get(member, 0) | bit
        for number, (group, source) in enumerate(each.prefilter.parts):
            part = number * len(rules) + place
            parts[part] = source
            free ^= 1 << num_bits - len(parts) + part
            for member in group:
                grams[member] = grams.get(member, 0) | 1 << num_bits + part
    classes = {gram[1:]: grams.pop(gram) for gram in [*grams] if gram[0] == IS_CLASSES}
    return Plan(rules, grams, words, free, classes, tuple(parts))


def apply_all(rules: tuple[Rule, ...], text: str, trace: Trace) -> str:
    """`text` after every rule in order; a rule is tried where the text holds all that it needs."""
    plan = plan_of(rules)
    held = plan.held(text)
    waiting = plan.may_match(held)
    while waiting:
        place = (waiting & -waiting).bit_length() - 1
        waiting ^= 1 << place
        text, added = plan.rules[place].apply(text, trace)
        if added and (more := held | plan.held(added)) != held:  # what the text lost may stay: that costs a search
            held = more
            waiting = plan.may_match(held) >> place + 1 << place + 1
    return text
