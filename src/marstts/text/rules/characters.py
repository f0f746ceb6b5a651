"""Folding of characters: whatever Unicode a text holds, only printable ASCII and symbols with names remain.

Upstream: text as people wrote it.  Downstream: the rules of `normalize`, which match one kind of quote and dash.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from marstts.text.phones import PHONE_TOKENS
from marstts.text.rules.engine import Trace
from marstts.text.rules.tables import table

_REPLACEMENTS = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc\u02b9\u00b4\uff07`", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\u301d\u301e\uff02\u300c\u300d\u300e\u300f", '"'),
    **dict.fromkeys("\u2010\u2011\u2043", "-"),
    **dict.fromkeys("\u2012\u2013\u2014\u2015\u2e3a\u2e3b", "—"),  # one long dash for now: between digits it means "to"
    **table("symbols")["folded"],
}
_KEPT = frozenset(table("symbols")["named"]) | {"·"} | frozenset(PHONE_TOKENS)
_INVISIBLE = {"Mn", "Me", "Cf"}
"""Combining marks, emoji variation selectors, joiners: they vanish without parting the letters around them."""

_UNREADABLE = "LNSC"
"""First letters of the categories whose loss is reported: letters, numbers, symbols, unassigned code points."""

_GREEK_WORD = re.compile("[\u0370-\u03ff\u1f00-\u1fff]{3,}")
_WIDE_THOUSANDS = re.compile("(?<=[0-9])[\u00a0\u2009\u202f](?=[0-9]{3}(?![0-9]))")
_SUPERSCRIPT = re.compile("[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+|ⁿ")
_SUPERSCRIPT_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n")


def fold_characters(text: str, trace: Trace | None = None) -> str:
    """`text` in printable ASCII and symbols with names, white space collapsed.

    Accented letters lose their accents; raised digits become powers (`^2`). What has no reading (emoji, other scripts)
    becomes a space and is left out in `trace`. A long dash stays, for the rules that distinguish a range from a break.
    """
    if not text.isascii():
        text = _GREEK_WORD.sub(lambda match: _leave_out(match[0], trace), text)
        text = _WIDE_THOUSANDS.sub(",", text)
        text = _SUPERSCRIPT.sub(lambda match: "^" + match[0].translate(_SUPERSCRIPT_DIGITS), text)
        if trace is not None:
            for character in text:
                if character > "\x7f" and not is_readable(character):
                    trace.leave_out(character)
    return " ".join(text.translate(_FOLDED).split())


@cache
def is_readable(character: str) -> bool:
    """Whether a character is read, or its loss changes nothing (marks, spaces, joiners)."""
    if character.isascii() or character in _REPLACEMENTS or unicodedata.category(character)[0] not in _UNREADABLE:
        return True
    return unicodedata.category(character) in {"Cf", "Cc"} or _fold_character(character) != " "


def _leave_out(word: str, trace: Trace | None) -> str:
    if trace is not None:
        for character in word:
            trace.leave_out(character)
    return " "


class _FoldedCharacters(dict[int, str]):
    """The replacement of each code point, computed when first used."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold_character(chr(code))
        return folded


@cache
def _fold_character(character: str) -> str:
    if character in _REPLACEMENTS:
        return _REPLACEMENTS[character]
    if character.isascii():
        return character if character.isprintable() else " "
    if character in _KEPT:
        return character
    if unicodedata.category(character) in _INVISIBLE:
        return ""
    if unicodedata.decomposition(character).startswith("<fraction>"):
        return " " + unicodedata.normalize("NFKC", character).replace("\N{FRACTION SLASH}", "/")
    if (digit := unicodedata.decimal(character, None)) is not None:
        return str(digit)
    return _letters_of(character) or " "


def _letters_of(character: str) -> str:
    """The ASCII part of the character's decomposition: é -> e, ﬁ -> fi, Ａ -> A; of other scripts nothing."""
    decomposed = unicodedata.normalize("NFKD", character)
    plain = (part if part.isascii() and part.isprintable() else _REPLACEMENTS.get(part, "") for part in decomposed)
    return "".join(plain)


_FOLDED = _FoldedCharacters()
