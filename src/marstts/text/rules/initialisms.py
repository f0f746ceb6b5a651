"""Capitals: which are said letter by letter ("D N A"), and which are a word ("NASA", "WAIT").

Upstream: text whose symbols are read.  Downstream: `punctuation`.
The lists in `data/initialisms.toml` decide first, then the word list; the rest is a word if it can be pronounced.
"""

from __future__ import annotations

import re

from marstts.text.rules.engine import Trace
from marstts.text.rules.tables import word_set, words

_CAPITALS = re.compile(r"(?<![A-Za-z'])(?P<letters>[A-Z]{2,6})(?P<plural>'?s)?(?![A-Za-z]|'[a-ce-rt-z])")
_CONTRACTED = re.compile("'(?:S|D|LL|RE|VE)(?![A-Za-z])")
"""Endings of a word in capitals, "IT'S"; the possessive of an initialism has a small "s"."""

_SMALL = re.compile("[a-z]")
_PRONOUNCEABLE = re.compile(
    "(?:[BCDFGHJKLMNPRSTVWZ]{1,2}|SCH|STR|TH|SH|CH|QU)?(?:[AEIOU]{1,2}[BCDFGKLMNPRSTVXZ]{1,2}){1,3}[AEIOY]?"
)
_CONSONANT_VOWEL = re.compile("[BCDFGHJKLMNPRSTVWZ]?(?:[AEIOU][BCDFGHJKLMNPRSTVWZ]){1,3}[AEIOUY]?")


_SPELLED, _AMBIGUOUS = word_set("initialisms", "spelled"), word_set("initialisms", "ambiguous")
_AS_WORDS = word_set("initialisms", "words") | word_set("initialisms", "interjections")
_LISTED = _SPELLED | _AS_WORDS


def spell_initialisms(text: str, trace: Trace) -> str:
    """Capitals that are no word, letter by letter: "BBC" -> "B B C", "DVDs" -> "D V D's"."""
    found = [match["letters"] for match in _CAPITALS.finditer(text)]
    if not found:
        return text
    shouted = is_shouted(text, found)

    def read(match: re.Match[str]) -> str:
        is_contraction = _CONTRACTED.match(text, match.end()) is not None and match["letters"] in _AMBIGUOUS
        if is_contraction or is_word(match["letters"], shouted):
            return match[0]
        spelled = " ".join(match["letters"]) + ("'s" if match["plural"] else "")
        trace.record("initialism", match[0], spelled)
        return spelled

    return _CAPITALS.sub(read, text)


def is_shouted(text: str, capitals: list[str]) -> bool:
    """Whether words are written in capitals for emphasis: "WAIT FOR US"."""
    plain = [each for each in capitals if each.lower() in words() and each not in _LISTED]
    has_small = _SMALL.search(text) is not None
    return (
        len(plain) >= 2
        or (len(plain) == 1 and not has_small)
        or (not plain and not has_small and " " in text and _reads(capitals))
    )


def _reads(capitals: list[str]) -> bool:
    """Whether most of the capitals are common words, though each is an initialism as well: "IT IS US"."""
    known = [letters for letters in capitals if letters.lower() in words() or letters in _AMBIGUOUS]
    return len(known) == len(capitals) and len(capitals) > 2


def is_word(letters: str, shouted: bool) -> bool:
    """Whether capitals are said as a word; `shouted`: the words around them are in capitals as well."""
    if letters in _AS_WORDS:
        return True
    if letters in _SPELLED:
        return shouted and letters in _AMBIGUOUS
    if letters.lower() in words():
        return True
    if not set(letters) & set("AEIOUY"):
        return False
    if shouted or len(letters) > 5:
        return len(letters) > 2
    if len(letters) < 4:
        return False
    return (_CONSONANT_VOWEL if len(letters) == 4 else _PRONOUNCEABLE).fullmatch(letters) is not None
