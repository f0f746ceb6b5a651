"""Words divided at line ends, as in texts of PDF files: "govern-" and "ment" are one word, "well-" and "made" are two.

Upstream: lines of a text.  Downstream: `blocks`, which joins them.  The hyphen goes where the joined word is known or a
part is no word; it stays where both parts are words.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from marstts.text.rules.tables import word_list, words

_BEFORE = re.compile(
    r"(?P<whole>(?:[A-Za-z\u00c0-\u024f'\u2019]+-)*)(?P<first>[A-Za-z\u00c0-\u024f]+)"
    r"(?P<mark>[-\u2010\u00ac\u00ad])[ \t]*\Z"
)
_HYPHENS = ("-", "\u2010", "\u00ac", "\u00ad")
_AFTER = re.compile(r"\s*(?P<second>[a-z\u00df-\u024f]+)")
_SHORT_SECOND = frozenset(("in", "up", "on", "by", "to", "do", "go", "it", "so", "me"))
"""Words of two letters that end a compound; others are endings: "-al", "-ed"."""

_KEEPING = frozenset(("self", "well", "half", "quasi", "vice", "much", "ever", "ill"))
_ENDINGS = (
    ("ing", ("", "e")),
    ("ied", ("y",)),
    ("ies", ("y",)),
    ("ed", ("", "e")),
    ("es", ("",)),
    ("s", ("",)),
    ("ly", ("",)),
)


def is_divided(passage: str, line: str) -> bool:
    """Whether the word at the end of `passage` goes on at the beginning of `line`, without the hyphen between."""
    if not passage[-60:].rstrip(" \t").endswith(_HYPHENS):
        return False
    before, after = _BEFORE.search(passage[-60:]), _AFTER.match(line)
    if before is None or after is None:
        return False
    if before["mark"] in "\u00ac\u00ad":
        return True
    return not before["whole"] and _is_one(before["first"].lower(), after["second"])


def without_hyphen(passage: str) -> str:
    """`passage` without the hyphen at its end."""
    return passage.rstrip(" \t")[:-1]


@lru_cache(maxsize=1024)
def _is_one(first: str, second: str) -> bool:
    if len(first) < 2 or first in _KEEPING:
        return False
    if first + second in _joined():
        return True
    is_compound = _is_word(first) and _is_word(second) and (len(second) > 2 or second in _SHORT_SECOND)
    return not is_compound


def _is_word(word: str) -> bool:
    if word in words() or word in _long():
        return True
    stems = (word[: -len(end)] + back for end, backs in _ENDINGS if word.endswith(end) for back in backs)
    return any(len(stem) > 2 and (stem in words() or stem in _long()) for stem in stems)


@cache
def _joined() -> frozenset[str]:
    return word_list("joined_words")


@cache
def _long() -> frozenset[str]:
    return word_list("long_words")
