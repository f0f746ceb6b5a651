"""Rules: a name, a pattern and a function from its match to words; the trace records what each rule read.

Upstream: the modules of rules.  Downstream: `normalize`, which applies them to one block of text after another.
Every pattern starts only where a run of its characters starts, and repeats only what is bounded or cannot match twice.
So the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from marstts.text.rules.needed import EXACT, LENGTH, SHAPE, Needed, StringsOfRules, needed_strings

MAX_SEARCHED_AGAIN = 200
"""Characters of texts in which all strings are searched again after a rule changed them; in longer ones the new
parts alone are searched, and strings that are gone count as found."""

_BESIDE = LENGTH - 1
"""Characters beside a part with which it may make a string."""

Reader = Callable[[re.Match[str]], str | None]
"""Function from a match to the text that replaces it; None leaves the text as it is."""

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
        written, read = written.strip(), read.strip()
        if written != read:
            self.steps.append(Step(rule, written, read))

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
    parted: bool = True
    """Whether the words are kept apart from letters and digits that touch the match: MP3s -> MP three s."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled when it is first tried."""
        return re.compile(self.source)

    @cached_property
    def needed(self) -> Needed:
        """Sets of strings of each of which a text that the pattern matches has one at least."""
        return needed_strings(self.source)

    def apply(self, text: str, trace: Trace) -> tuple[str, str]:
        """`text` with every match read, and what is new in it: the words, each with the characters beside it."""
        first = self.pattern.search(text)
        if first is None:
            return text, ""
        parts: list[str] = []
        new: list[str] = []
        place = 0
        for match in self.pattern.finditer(text, first.start()):
            words = self.read(match)
            if words is None or words == match[0]:
                continue
            trace.record(self.name, match[0], words)
            words = _apart(words, match) if self.parted else words
            kept = text[place : match.start()]
            parts += (kept, words)
            new += (kept if len(kept) <= 2 * _BESIDE else f"{kept[:_BESIDE]} {kept[-_BESIDE:]}", words)
            place = match.end()
        if not parts:
            return text, ""
        new.append(text[place : place + _BESIDE])
        parts.append(text[place:])
        return "".join(parts), "".join(new)


def _apart(words: str, match: re.Match[str]) -> str:
    text, start, end = match.string, match.start(), match.end()
    before = " " if start > 0 and text[start - 1].isalnum() and words[:1] != " " else ""
    after = " " if end < len(text) and text[end].isalnum() and words[-1:] != " " else ""
    return before + words + after


def rule(name: str, pattern: str, read: Reader | str, *, parted: bool = True) -> Rule:
    """A rule from its pattern's source; a `read` that is a string may refer to groups: `\\1`."""
    return Rule(name, pattern, _expander(read) if isinstance(read, str) else read, parted)


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


class RuleList:
    """Rules in the order in which they are applied; those of which a text lacks what they need are not tried."""

    def __init__(self, *stages: Iterable[Rule]) -> None:
        """`stages`: rules between which something else may happen to a text."""
        groups = [tuple(stage) for stage in stages]
        ends = [0, *accumulate(map(len, groups))]
        self.rules = tuple(chain.from_iterable(groups))
        self._stages = [(1 << end) - (1 << start) for start, end in pairwise(ends)]  # bits as of `StringsOfRules`

    @cached_property
    def _strings(self) -> StringsOfRules:
        return StringsOfRules([each.needed.exact for each in self.rules], EXACT)

    @cached_property
    def _shapes(self) -> StringsOfRules:
        return StringsOfRules([each.needed.shape for each in self.rules], SHAPE)

    def _rules_for(self, text: str) -> int:
        """The bits of the rules that may match; a long text has almost every shape."""
        rules = self._strings.rules_for(text)
        return rules & self._shapes.rules_for(text) if rules and len(text) <= MAX_SEARCHED_AGAIN else rules

    def may_apply(self, text: str) -> bool:
        """Whether the pattern of one of the rules matches in `text`."""
        waiting = self._rules_for(text)
        return waiting != 0 and any(self.rules[index].pattern.search(text) for index in _bits_set(waiting))

    def apply(self, text: str, trace: Trace, stage: int = 0) -> str:
        """`text` after every rule of a stage in order."""
        strings, rules_of_stage = self._strings, self._stages[stage]
        waiting = self._rules_for(text) & rules_of_stage
        found: int | None = None  # in a long text, once it was changed
        while waiting:
            lowest = waiting & -waiting
            changed, new = self.rules[lowest.bit_length() - 1].apply(text, trace)
            waiting ^= lowest
            if changed is text:
                continue
            if len(changed) > MAX_SEARCHED_AGAIN:
                found = (strings.found(text) if found is None else found) | strings.found(new)
                waiting = strings.rules_of(found)
            else:
                found, waiting = None, self._rules_for(changed)
            text = changed
            waiting &= rules_of_stage & -(lowest << 1)  # the rules that are still to come
        return text


def _bits_set(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def apply_all(rules: Iterable[Rule], text: str, trace: Trace) -> str:
    """`text` after every rule in order."""
    return RuleList(rules).apply(text, trace)
