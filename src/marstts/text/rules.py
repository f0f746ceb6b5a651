"""Rules: a name, a pattern and a function from its match to words; the trace records what each rule read.

Upstream: the modules of rules.  Downstream: `normalize`, which applies them to one block of text after another.
Every pattern starts only where a run of its characters starts, and repeats only what is bounded or cannot match twice.
So the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

Reader = Callable[[re.Match[str]], str | None]
"""Function from a match to the text that replaces it; None leaves the text as it is."""

_LETTERS = re.compile("[A-Za-z]+")

DIGIT = "0123456789"
SMALL = "abcdefghijklmnopqrstuvwxyz"
CAPITAL = SMALL.upper()
"""Values of `needs`: any digit, any small letter, any capital."""


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


@dataclass(frozen=True)
class Rule:
    """One written form and how it is read."""

    name: str
    source: str
    """The pattern of the written form."""

    read: Reader
    needs: tuple[frozenset[str], ...] = ()
    """Groups of characters; the rule is tried only where the text holds one of each."""

    words: frozenset[str] = frozenset()
    """Runs of letters of which the text must hold one; empty: any text will do."""

    parted: bool = True
    """Whether the words are kept apart from letters and digits that touch the match: MP3s -> MP three s."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled when it is first tried."""
        return re.compile(self.source)

    def apply(self, text: str, trace: Trace) -> str:
        """`text` with every match read."""

        def replace(match: re.Match[str]) -> str:
            words = self.read(match)
            if words is None or words == match[0]:
                return match[0]
            trace.record(self.name, match[0], words)
            return _apart(words, match) if self.parted else words

        return self.pattern.sub(replace, text)


def _apart(words: str, match: re.Match[str]) -> str:
    text, start, end = match.string, match.start(), match.end()
    before = " " if start > 0 and text[start - 1].isalnum() and words[:1] != " " else ""
    after = " " if end < len(text) and text[end].isalnum() and words[-1:] != " " else ""
    return before + words + after


def rule(
    name: str, pattern: str, read: Reader | str, *, needs: str = "", words: Iterable[str] = (), parted: bool = True
) -> Rule:
    """A rule from its pattern's source; a `read` that is a string may refer to groups: `\\\\1`.

    `needs` holds groups of characters with spaces between: "$£ 0123456789" asks for one of each. `words` are forms of
    which one must occur; the first run of letters of each is what is looked for.
    """
    reader = (lambda match: match.expand(read)) if isinstance(read, str) else read
    runs = frozenset(run[0] for word in words if (run := _LETTERS.search(word)))
    return Rule(name, pattern, reader, tuple(map(frozenset, needs.split())), runs, parted)


def apply_all(rules: Sequence[Rule], text: str, trace: Trace) -> str:
    """`text` after every rule in order."""
    characters: set[str] | None = None
    runs: set[str] | None = None
    for each in rules:
        if characters is None:
            characters = set(text)
        for group in each.needs:
            if group.isdisjoint(characters):
                break
        else:
            if each.words:
                if runs is None:
                    runs = set(_LETTERS.findall(text))
                if each.words.isdisjoint(runs):
                    continue
            read = each.apply(text, trace)
            if read is not text:
                text, characters, runs = read, None, None
    return text
