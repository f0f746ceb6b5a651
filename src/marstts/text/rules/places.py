"""Places of a long text in which a rule may match: groups of words that stand together.

Upstream: `engine`.  Downstream: `needed`, which tells which rules may match in some words.
A text of a thousand characters has nearly everything that a rule needs, but seldom side by side. So the strings are
looked for in one group of words and the next, and a rule is tried in these alone. Where a rule changed a text, only
the groups around the change are searched again.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import reduce
from operator import or_
from re import Pattern
from typing import NamedTuple

from marstts.text.rules.needed import EXACT, NUM_JOINED, StringsOfRules

MAX_WORD = 8
"""Characters of a word on average from which on it takes too long to search a group again when it changes: then the
new parts alone are searched, and strings that are gone count as found."""


class Change(NamedTuple):
    """A text after a rule, and from where to where the text before it was changed."""

    text: str
    start: int
    end: int
    new: str
    """What is new in it: the words, each with the characters beside it."""


class Places:
    """The groups of words of a text, and which rules may match from each on.

    A group has `NUM_JOINED` words, up to twice as many where words remain, and fewer if the text has.
    """

    def __init__(self, strings: StringsOfRules, text: str) -> None:
        self._strings = strings
        self._starts, self._found, self._rules = [0], [0], [0]
        self._search(text, 0, 1, 0)

    @property
    def rules(self) -> int:
        """A number whose bit N is set where rule N may match in the text."""
        everywhere = self._strings.rules_of(reduce(or_, self._found))
        return reduce(or_, self._rules) | (everywhere & self._strings.far)

    def first_match(self, index: int, pattern: Pattern[str], text: str) -> int | None:
        """Position before which a pattern matches nowhere; None if it matches nowhere at all.

        `index`: of its rule, of which `rules` has the bit.
        """
        bit = 1 << index
        if self._strings.far & bit:
            found = pattern.search(text)
            return None if found is None else found.start()
        groups = [group for group, rules in enumerate(self._rules) if rules & bit]
        starts, num_groups, num_searched = self._starts, len(self._starts), self._strings.num_groups(index)
        for place, group in enumerate(groups):
            if place == 0 or group > groups[place - 1] + 1:
                start = starts[group]
            if place + 1 == len(groups) or groups[place + 1] > group + 1:
                end = starts[group + num_searched] if group + num_searched < num_groups else len(text)
                if (found := pattern.search(text, start, end)) is not None:
                    return found.start()
        return None

    def changed(self, change: Change, num_more: int) -> Places:
        """The places of the text of a change, which has `num_more` characters more than the one before."""
        other = object.__new__(Places)  # much faster than `copy`
        other._strings, other._starts = self._strings, self._starts[:]
        other._found, other._rules = self._found[:], self._rules[:]
        other._take(change, num_more)
        return other

    def _take(self, change: Change, num_more: int) -> None:
        text, starts, found = change.text, self._starts, self._found
        first, last = bisect_right(starts, change.start) - 1, bisect_right(starts, change.end)
        start, num_groups = starts[first], len(starts)
        starts[last:] = [place + num_more for place in starts[last:]]
        while last < num_groups and text.count(" ", start, starts[last]) < NUM_JOINED:
            last += 1  # too few words remain for a group
        end = starts[last] if last < num_groups else len(text)
        if end - start > MAX_WORD * (1 + text.count(" ", start, end)):
            new = self._strings.found_within(change.new.translate(EXACT.folded))
            self._put(first, last, [start], [reduce(or_, found[first:last], new)])
        else:
            self._search(text, first, last, start)

    def _search(self, text: str, first: int, last: int, start: int) -> None:
        """Divide the text from `start` on into groups, in the place of those from `first` up to `last`."""
        end = self._starts[last] - 1 if last < len(self._starts) else len(text)
        words = text[start:end].translate(EXACT.folded).split(" ")
        num_groups = max(len(words) // NUM_JOINED, 1)
        starts, found = [], []
        for group in range(num_groups):
            members = words[group * NUM_JOINED : (group + 1) * NUM_JOINED if group + 1 < num_groups else len(words)]
            starts.append(start)
            found.append(self._strings.found(members))
            start += sum(map(len, members)) + len(members)
        self._put(first, last, starts, found)

    def _put(self, first: int, last: int, starts: list[int], found: list[int]) -> None:
        """Put groups in the place of those from `first` up to `last`."""
        self._starts[first:last] = starts
        self._found[first:last] = found
        groups, before = self._found, max(first - 1, 0)
        behind = min(first + len(starts), len(groups))
        self._rules[before:last] = [
            self._strings.rules_beginning(groups[place], groups[min(place + 1, len(groups) - 1)])
            for place in range(before, behind)
        ]
