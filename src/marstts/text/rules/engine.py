"""Rules: a name, a pattern and a function from its match to words; the trace records what each rule read.

Upstream: the modules of rules.  Downstream: `normalize`, which applies them to one block of text after another.
Every pattern starts only where a run of its characters starts, and repeats only what is bounded or cannot match twice.
So the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from marstts.text.rules.needed import LENGTH, NUM_RECENT, Needed, StringsOfRules, needed_strings
from marstts.text.rules.places import Change, Places

MAX_UNDIVIDED = 200
"""Characters of the longest text in which a rule is tried as a whole."""

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

    def apply(self, text: str, trace: Trace, first: int = 0) -> Change | None:
        """`text` with every match from `first` on read; None where nothing changes."""
        parts: list[str] = []
        new: list[str] = []
        start = place = 0
        for match in self.pattern.finditer(text, first):
            words = self.read(match)
            if words is None or words == match[0]:
                continue
            trace.record(self.name, match[0], words)
            if not parts:
                start = match.start()
            words = _apart(words, match) if self.parted else words
            kept = text[place : match.start()]
            parts += (kept, words)
            new += (kept if len(kept) <= 2 * _BESIDE else f"{kept[:_BESIDE]} {kept[-_BESIDE:]}", words)
            place = match.end()
        if not parts:
            return None
        new.append(text[place : place + _BESIDE])
        parts.append(text[place:])
        return Change("".join(parts), start, place, "".join(new))


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
        return StringsOfRules([each.needed for each in self.rules])

    @cached_property
    def _places(self) -> Callable[[str], Places]:
        return lru_cache(maxsize=NUM_RECENT)(partial(Places, self._strings))

    def may_apply(self, text: str) -> bool:
        """Whether the pattern of one of the rules may match in `text`: false only if none does."""
        if len(text) > MAX_UNDIVIDED:
            places = self._places(text)
            found = (places.first_match(each, self.rules[each].pattern, text) for each in _bits_set(places.rules))
            return any(first is not None for first in found)
        waiting = self._strings.rules_for(text)
        return waiting != 0 and any(self.rules[index].pattern.search(text) for index in _bits_set(waiting))

    def apply(self, text: str, trace: Trace, stage: int = 0) -> str:
        """`text` after every rule of a stage in order."""
        if len(text) > MAX_UNDIVIDED:
            return self._apply_in_places(text, trace, stage)
        rules_of_stage = self._stages[stage]
        waiting = self._strings.rules_for(text) & rules_of_stage
        while waiting:
            lowest = waiting & -waiting
            rule = self.rules[lowest.bit_length() - 1]
            waiting ^= lowest
            first = rule.pattern.search(text)
            if first is None:
                continue
            changed = rule.apply(text, trace, first.start())
            if changed is not None:
                text = changed.text
                waiting = self._strings.rules_for(text) & rules_of_stage & -(lowest << 1)  # those still to come
        return text

    def _apply_in_places(self, text: str, trace: Trace, stage: int) -> str:
        """The same for a long text."""
        rules_of_stage = self._stages[stage]
        places = self._places(text)
        waiting = places.rules & rules_of_stage
        while waiting:
            lowest = waiting & -waiting
            index = lowest.bit_length() - 1
            rule = self.rules[index]
            waiting ^= lowest
            first = places.first_match(index, rule.pattern, text)
            if first is None:
                continue
            changed = rule.apply(text, trace, first)
            if changed is not None:
                places = places.changed(changed, len(changed.text) - len(text))
                text = changed.text
                waiting = places.rules & rules_of_stage & -(lowest << 1)
        return text


def _bits_set(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def apply_all(rules: Iterable[Rule], text: str, trace: Trace) -> str:
    """`text` after every rule in order."""
    return RuleList(rules).apply(text, trace)
