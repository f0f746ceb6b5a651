"""Short strings that a match of a pattern must hold: a rule need not be tried on a text without them.

Upstream: `engine`, which asks before it tries a rule.  A text tries some hundred rules on each block, and most of them
need a word, a digit or a sign that is not there.  Digits of all scripts count as `0`, white space as a space.
A pattern also needs strings of the shape of a text, in which all small letters are one character, and all capitals
another: few strings stand for all that two or three sets of letters match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from importlib import import_module
from itertools import product
from math import inf
from operator import add, or_
from string import ascii_letters, ascii_lowercase, ascii_uppercase
from typing import Any, NamedTuple

MAX_SET = 256
"""Larger sets of strings exclude hardly any text."""

NUM_SETS = 4
"""Sets that are kept of a pattern and of its shape, those that the fewest texts have."""

LENGTH, SHAPE_LENGTH = 3, 5
"""Characters of the longest of the strings, and of those of shapes."""

MAX_SHORT = 40
"""Characters of texts that are remembered with all their digits as one, such as lines of numbers."""

MAX_LONE = 20
"""Characters of texts in which it takes longer to search the shape of a new word than to try a few rules more."""

MAX_SEARCHED = 16
"""Characters of words of which the shape is searched at once; that of a longer one when it comes again."""

NUM_JOINED = 8
"""Words of a group of a long text (`places`); a match of fewer spaces stands within a group and the next, and one of
none within a group."""

NUM_RECENT = 64
"""Texts that are remembered as they are: one that no rule changes is asked about several times in a row."""

MAX_REPEATED = 10_000
"""Repetitions from which on a pattern counts as unbounded."""

NUM_SHORT = 2048
NUM_WORDS = 8192

_UNKNOWN = frozenset(("",))
"""The ends of a text of which nothing is known."""

_WITHOUT_SPACE = frozenset(("CATEGORY_WORD", "CATEGORY_DIGIT", "CATEGORY_NOT_SPACE"))
"""Classes of characters that hold no white space."""

_OTHER_CASES = {"s": "\u017f", "k": "\u212a", "i": "\u0130\u0131"}
"""Characters that a letter also matches where case is ignored."""


class Alphabet(NamedTuple):
    """How strings are searched."""

    folded: Mapping[int, str]
    """Characters and what stands for them, for `str.translate`."""

    length: int
    """Characters of the longest string."""


class Needed(NamedTuple):
    """What a text must have for a pattern to match: one string at least of each set."""

    exact: tuple[frozenset[str], ...]
    """Sets of strings of the text, with digits and white space as one character each."""

    shape: tuple[frozenset[str], ...]
    """Sets of strings of its shape, in which small letters and capitals are one character each as well."""

    spaces: float
    """White space at most in a match, in what must stand beside it and in what must not follow."""


def needed_strings(source: str) -> Needed:
    """Sets of strings; every match, with what stands around it, has one of each within a word or beside it.

    They follow from the parsed pattern. Where this Python offers no parser there are none, and every rule is tried.
    """
    try:
        tree = import_module("re._parser").parse(source)
    except ImportError:
        return Needed((), (), inf)
    ignores_case = bool(tree.state.flags & re.IGNORECASE) or re.search(r"\(\?[aLmsux]*i", source) is not None
    exact, shape = (_rarest_sets(_Needs(ignores_case, each).of(tree, _UNKNOWN)[0]) for each in (EXACT, SHAPE))
    return Needed(exact, shape, _num_spaces(tree))


def _rarest_sets(found: Iterable[frozenset[str]]) -> tuple[frozenset[str], ...]:
    kept: list[frozenset[str]] = []
    for strings in sorted(set(found), key=_frequency):
        if _frequency(strings) < 50.0 and not any(_is_like(strings, other) for other in kept):
            kept.append(strings)
    return tuple(kept[:NUM_SETS])


class StringsOfRules:
    """Which of several rules a text can match, by the strings that each of them needs."""

    def __init__(self, needs: Sequence[Needed]) -> None:
        """`needs`: what each rule needs."""
        self._size = len(needs)
        self._every = (1 << self._size) - 1
        self.far = sum(1 << index for index, each in enumerate(needs) if each.spaces >= NUM_JOINED)
        """The bits of the rules that may match more words than those that are searched together."""
        self._near = sum(1 << index for index, each in enumerate(needs) if each.spaces == 0)
        self._wide = self._every ^ self._near
        self._exact: dict[str, int] = {}
        self._shapes: dict[str, int] = {}
        self._shape_place = NUM_SETS * self._size
        self._always = self._enter(self._exact, [each.exact for each in needs])
        self._always |= self._enter(self._shapes, [each.shape for each in needs]) << self._shape_place
        self._every_shape = reduce(or_, self._shapes.values(), 0) << self._shape_place | self._always
        self._characters = frozenset("".join(self._exact) + "".join(self._shapes) + ascii_letters) - {" "}
        self._of_word = _Remembered(self._bits_of, NUM_WORDS)
        self._of_shape = _Remembered(self._bits_of_shape, NUM_SHORT)
        self._seen_once: set[str] = set()
        self._of_short: Callable[[str], int] = lru_cache(maxsize=NUM_SHORT)(self._of_text)
        self.rules_for: Callable[[str], int] = lru_cache(maxsize=NUM_RECENT)(self._rules_for)
        """A number whose bit N is set unless a text lacks what rule N needs."""

    def _enter(self, bits: dict[str, int], needs: Sequence[Sequence[frozenset[str]]]) -> int:
        """Enter the bits of every string; returns those of the sets that are not needed."""
        always = 0
        for index, sets in enumerate(needs):
            for place in range(NUM_SETS):
                bit = 1 << (place * self._size + index)
                if place >= len(sets):
                    always |= bit
                    continue
                for string in sets[place]:
                    assert string.strip(), "every text has spaces"
                    bits[string] = bits.get(string, 0) | bit
        return always

    def _rules_for(self, text: str) -> int:
        text = text.translate(EXACT.folded)
        return self._of_short(text) if len(text) <= MAX_SHORT else self._of_text(text)

    def _of_text(self, text: str) -> int:
        words = text.split(" ")
        return self.rules_of(self.found(words) if len(text) > MAX_LONE else self._found_in_few(words))

    def _found_in_few(self, words: Iterable[str]) -> int:
        """The same as `found` of a short text; a word with a new shape, as noise has, counts as one of every shape."""
        found, new = 0, []
        for word in words:
            if word not in self._of_word and self._is_new_shape(word.translate(SHAPE.folded)):
                new.append(word)
            else:
                found |= self._of_word[word]
        return found | self.found_within(" ".join(new)) if new else found

    def found(self, words: Iterable[str]) -> int:
        """A number that stands for the strings in words of a folded text; `|` joins those of two texts."""
        return reduce(or_, map(self._of_word.__getitem__, words))

    def found_within(self, text: str) -> int:
        """The same of a folded text of which all shapes count as found, as in long words."""
        return _joined_bits(self._exact, f" {text} ", LENGTH) | self._every_shape

    def rules_of(self, found: int) -> int:
        """The rules of which every set was found: the bits that all of `2 * NUM_SETS` numbers have, side by side."""
        num_sets = 2 * NUM_SETS
        while num_sets > 1:
            num_sets //= 2
            found &= found >> (num_sets * self._size)
        return found & self._every

    def rules_beginning(self, group: int, following: int) -> int:
        """The rules that may match from one group of words on, by what was found in it and in the next."""
        return (self.rules_of(group) & self._near) | (self.rules_of(group | following) & self._wide)

    def num_groups(self, index: int) -> int:
        """Groups of words in which a match of a rule stands that is not `far`."""
        return 1 if self._near >> index & 1 else 2

    def _bits_of(self, word: str) -> int:
        if self._characters.isdisjoint(word):  # letters of other scripts, of which a text may have thousands
            return self._always
        if len(word) > MAX_SHORT:
            return self.found_within(word)
        shape = word.translate(SHAPE.folded)
        if len(word) > MAX_SEARCHED and self._is_new_shape(shape):
            return self.found_within(word)
        return _joined_bits(self._exact, f" {word} ", LENGTH) | self._of_shape[shape]

    def _bits_of_shape(self, word: str) -> int:
        return _joined_bits(self._shapes, f" {word} ", SHAPE_LENGTH) << self._shape_place | self._always

    def _is_new_shape(self, shape: str) -> bool:
        """Whether a shape was neither searched nor asked about before."""
        if shape in self._of_shape or shape in self._seen_once:
            return False
        if len(self._seen_once) >= NUM_WORDS:
            self._seen_once.clear()
        self._seen_once.add(shape)
        return True


class _Remembered(dict[str, int]):
    """The bits of the last words: those of another are computed when it is looked up."""

    def __init__(self, compute: Callable[[str], int], most: int) -> None:
        self._compute, self._most = compute, most

    def __missing__(self, word: str) -> int:
        if len(self) >= self._most:
            self.clear()
        bits = self[word] = self._compute(word)
        return bits


def _joined_bits(bits: Mapping[str, int], text: str, longest: int) -> int:
    """The bits of all strings of up to `longest` characters in a text."""
    runs = list(text)
    strings = set(runs)
    for start in range(1, longest):
        runs = list(map(add, runs, text[start:]))
        strings.update(runs)
    return reduce(or_, filter(None, map(bits.get, strings)), 0)


class _Needs:
    """Walks over a parsed pattern: the sets that its parts need, and with which characters what it matched ends."""

    def __init__(self, ignores_case: bool, alphabet: Alphabet) -> None:
        self._ignores_case = ignores_case
        self._folded, self._length = alphabet

    def of(self, parts: Iterable[tuple[Any, Any]], ends: frozenset[str]) -> tuple[list[frozenset[str]], frozenset[str]]:
        """The sets of a sequence that follows one of `ends`, and its own ends, as far as they are known."""
        needed: list[frozenset[str]] = []
        run = ""
        for kind, value in (*parts, ("END", None)):
            if str(kind) == "LITERAL":
                run += chr(value)
                continue
            if run:
                found, ends = self._of_run(run, ends)
                needed += found
                run = ""
            if kind != "END":
                found, ends = self._of_part(str(kind), value, ends)
                needed += found
        return needed, ends

    def _of_run(self, run: str, ends: frozenset[str]) -> tuple[list[frozenset[str]], frozenset[str]]:
        """The same of a run of characters: a long one needs no look at what it follows."""
        if len(run) >= self._length and not self._ignores_case:
            run = run.translate(self._folded)
            strings = {_rarest(run[start : start + self._length]) for start in range(len(run) - self._length + 1)}
            return [frozenset((min(sorted(strings), key=_weight),))], frozenset((run[1 - self._length :],))
        needed: list[frozenset[str]] = []
        for character in run:
            found, ends = self._of_characters([character], ends)
            needed += found
        return needed, ends

    def _of_part(self, kind: str, value: Any, ends: frozenset[str]) -> tuple[list[frozenset[str]], frozenset[str]]:
        match kind:
            case "IN":
                return self._of_characters(_members(value), ends)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, item = value
                return self._of_repeat(least, most, item, ends)
            case "SUBPATTERN":
                return self.of(value[3], ends)
            case "ATOMIC_GROUP":
                return self.of(value, ends)
            case "ASSERT":
                is_behind = value[0] < 0
                needed, inner = self.of(value[1], _UNKNOWN if is_behind else ends)
                return needed, inner if is_behind and ends == _UNKNOWN else ends
            case "ASSERT_NOT" | "AT":
                return [], ends
            case "BRANCH":
                return self._of_branches([self.of(branch, ends) for branch in value[1]])
        return [], _UNKNOWN

    def _of_repeat(
        self, least: int, most: int, item: Any, ends: frozenset[str]
    ) -> tuple[list[frozenset[str]], frozenset[str]]:
        needed: list[frozenset[str]] = []
        after = ends
        for _ in range(min(least, self._length)):
            found, after = self.of(item, after)
            needed += found
        if least == most <= self._length:
            return needed, after
        if most == 1:
            return needed, _bounded(ends | self.of(item, ends)[1])
        last = self.of(item, _UNKNOWN)[1]
        return needed, _bounded(last if least else ends | last)

    def _of_branches(
        self, branches: list[tuple[list[frozenset[str]], frozenset[str]]]
    ) -> tuple[list[frozenset[str]], frozenset[str]]:
        """One string of any branch; nothing where a branch needs nothing."""
        ends = _bounded(frozenset().union(*(after for _, after in branches)))
        if not all(needed for needed, _ in branches):
            return [], ends
        strings = frozenset[str]().union(*(min(needed, key=_frequency) for needed, _ in branches))
        return [strings] if len(strings) <= MAX_SET else [], ends

    def _of_characters(
        self, members: list[str] | None, ends: frozenset[str]
    ) -> tuple[list[frozenset[str]], frozenset[str]]:
        if members is None or (self._ignores_case and not all(map(str.isascii, members))):
            return [], _UNKNOWN
        if self._ignores_case:
            members = [
                case
                for character in members
                for case in (character.lower() + character.upper() + _OTHER_CASES.get(character.lower(), ""))
            ]
        return _joined(ends, "".join(members).translate(self._folded), self._length)


@lru_cache(maxsize=4096)
def _joined(ends: frozenset[str], characters: str, length: int) -> tuple[list[frozenset[str]], frozenset[str]]:
    """The strings of one of `ends` and one of `characters`; rules repeat the same sets again and again."""
    different = set(characters)
    if len(ends) * len(different) > MAX_SET:
        ends = _UNKNOWN
    if len(different) > MAX_SET:
        return [], _UNKNOWN
    joined = frozenset(map("".join, product(ends, different)))
    return [frozenset(map(_rarest, joined))], _bounded(frozenset(each[1 - length :] for each in joined))


def _bounded(ends: frozenset[str]) -> frozenset[str]:
    """Not too many ends, and none where one of them is unknown."""
    if "" in ends:
        return _UNKNOWN
    if len(ends) > MAX_SET // 4:
        ends = frozenset(each[-1:] for each in ends)
    return ends if len(ends) <= MAX_SET // 4 else _UNKNOWN


def _rarest(joined: str) -> str:
    """The string within `joined` that the fewest texts have; a space stands at its beginning or end only."""
    if " " not in joined:
        return joined
    words = joined.split(" ")
    parts = (f"{' ' * (place > 0)}{word}{' ' * (place + 1 < len(words))}" for place, word in enumerate(words) if word)
    return min(parts, key=_weight, default=" ")


@lru_cache(maxsize=4096)
def _frequency(strings: frozenset[str]) -> float:
    return sum(map(_weight, strings))


@lru_cache(maxsize=4096)
def _weight(string: str) -> float:
    """About how many of a hundred places of a text have the string."""
    weight = 100.0
    for character in string:
        weight *= _WEIGHTS.get(character, 0.01 if character.isupper() else 0.002)
    return 100.0 if string == " " else weight


_SMALL, _CAPITAL = "\ue000", "\ue001"
"""What stands for the letters of ASCII in a shape; characters for private use, which no text has."""

_WEIGHTS = {
    _SMALL: 0.6, _CAPITAL: 0.05,
    " ": 0.2, "0": 0.1, ".": 0.02, ",": 0.02, "-": 0.01, ":": 0.01, "'": 0.01,
    **dict.fromkeys("etaoinsrhl", 0.07), **dict.fromkeys("bcdfgjkmpquvwxyz", 0.02),
}  # fmt: skip


def _is_like(strings: frozenset[str], other: frozenset[str]) -> bool:
    """Whether a text with one of the strings is likely to have one of the others: "Chap" and "hapt"."""
    if len(strings) != len(other):
        return False
    pairs = zip(sorted(strings, key=_weight), sorted(other, key=_weight), strict=True)
    return all(one in two or two in one for one, two in pairs)


def _num_spaces(parts: Iterable[tuple[Any, Any]]) -> float:
    """White space in the longest match of a parsed pattern, and in what is looked at beside it."""
    return sum(_num_spaces_of(str(kind), value) for kind, value in parts)


def _num_spaces_of(kind: str, value: Any) -> float:
    match kind:
        case "LITERAL":
            return int(chr(value).isspace())
        case "IN":
            return int(_may_be_space(value))
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            _, most, item = value
            spaces = _num_spaces(item)
            return spaces * (inf if most >= MAX_REPEATED else most) if spaces else 0
        case "SUBPATTERN":
            return _num_spaces(value[3])
        case "ATOMIC_GROUP":
            return _num_spaces(value)
        case "ASSERT":
            return _num_spaces(value[1])
        case "ASSERT_NOT":
            return 0 if value[0] < 0 else _num_spaces(value[1])
        case "BRANCH":
            return max(map(_num_spaces, value[1]))
        case "AT":
            return 0
        case "NOT_LITERAL" | "ANY":
            return 1
    return inf


def _may_be_space(items: list[tuple[Any, Any]]) -> bool:
    """Whether a set may match white space."""
    categories = {str(value) for kind, value in items if str(kind) == "CATEGORY"}
    if str(items[0][0]) == "NEGATE":
        return "CATEGORY_SPACE" not in categories
    others = [item for item in items if str(item[0]) != "CATEGORY"]
    members = _members(others)
    return not categories <= _WITHOUT_SPACE or members is None or any(map(str.isspace, members))


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
                members.append("0")
            case "CATEGORY" if str(value) == "CATEGORY_SPACE":
                members.append(" ")
            case _:
                return None
    return members


class _OneOfAKind(dict[int, str]):
    """Digits as `0`, white space as a space, computed when first used."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        self[code] = " " if character.isspace() else "0" if character.isdecimal() else character
        return self[code]


_AS_ONE = _OneOfAKind()
_SHAPE = _OneOfAKind({
    **{ord(letter): _SMALL for letter in ascii_lowercase},
    **{ord(letter): _CAPITAL for letter in ascii_uppercase},
})  # fmt: skip

EXACT, SHAPE = Alphabet(_AS_ONE, LENGTH), Alphabet(_SHAPE, SHAPE_LENGTH)
