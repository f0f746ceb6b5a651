"""Plain prose: passages that no rule can change, found by one look at their characters and words.

Upstream: folded text.  Downstream: `normalize`, which then only tidies the punctuation. Most of what people write is
plain, and this look is several times quicker than trying every rule.
"""

from __future__ import annotations

import re
from functools import cache

from marstts.text.tables import table, word_set

_CHARACTERS = re.compile(r"""[A-Za-z ,;:'"-]*[.?!]{0,3}["']{0,2}""")
_SUSPICIOUS = re.compile(
    r"[A-Z]{2}|[a-z][A-Z]|[:;](?![ \"']|$)|-(?![A-Za-z ])|(?<![A-Za-z ])-|(?<![A-Za-z])[:;]|(?<![a-z])[A-F]-"
)
_SENTENCE_GAP = re.compile(r"(?<=[a-zA-Z][.?!]) (?=[A-Za-z])")
_WORD = re.compile("[A-Za-z]+")
_NUMERAL = re.compile("[IVXLC]|[ivxl]{1,6}")


def is_plain(text: str) -> bool:
    """Whether `text` holds words and marks only, and none that a rule reads."""
    return all(map(_is_plain_sentence, _SENTENCE_GAP.split(text)))


def _is_plain_sentence(text: str) -> bool:
    if _CHARACTERS.fullmatch(text) is None or _SUSPICIOUS.search(text) is not None:
        return False
    spelled = _WORD.findall(text)
    words = set(spelled)
    if words & _read_words() or (text.rstrip("\"'").endswith(".") and spelled and spelled[-1] in _read_with_stop()):
        return False
    return not (words & _before_numerals() and any(_NUMERAL.fullmatch(word) for word in words))


@cache
def _read_words() -> frozenset[str]:
    """Every word of the tables that a rule may read without digits, stops or symbols."""
    data = table("abbreviations")
    groups = ("before_names", "bare", "weekdays", "keys", "mixed", "late")
    forms = {form for group in groups for form in data[group]} | {"MRS", "MR", "DR", "St", "noon", "midnight"}
    forms |= set(["Jan", "Feb", "Apr", "Jun", "Jul", "Aug", "Sep", "Sept", "Oct", "Nov", "Dec"])
    return frozenset(form for form in forms if form.isalpha())


@cache
def _read_with_stop() -> frozenset[str]:
    """Every word of the tables that is read where a stop follows it."""
    data = table("abbreviations")
    groups = ("ranks", "anywhere", "closing", "streets", "weekdays", "before_numbers", "compass")
    return frozenset(form for group in groups for form in data[group] if form.isalpha())


@cache
def _before_numerals() -> frozenset[str]:
    """Words after which a single letter may be a Roman numeral."""
    names = word_set("names", "rulers") | word_set("names", "titles") | word_set("names", "parts")
    return names | {name.lower() for name in names}
