"""Folding of characters: whatever Unicode a text holds, only printable ASCII and a few symbols with names remain.

Upstream: text as people wrote it.  Downstream: `normalize`, whose rules then need to know one kind of quote and dash.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

NAMED_SYMBOLS = "£€¥₹¢°"
"""Characters beyond ASCII that folding keeps, since rules for money and degrees read them."""

_REPLACEMENTS = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc\u02b9\u00b4\uff07`", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\u301d\u301e\uff02\u300c\u300d\u300e\u300f", '"'),
    **dict.fromkeys("\u2010\u2011\u2043", "-"),
    **dict.fromkeys("\u2012\u2013\u2014\u2015\u2e3a\u2e3b", "—"),  # one long dash for now: between digits it means "to"
    "\N{SOFT HYPHEN}": "",  # a hint to typesetters
    "…": "...",
    "。": ". ",
    "、": ", ",
    "؟": "? ",
    "،": ", ",
    "؛": "; ",
    "।": ". ",
    "\N{MINUS SIGN}": " minus ",
    "\N{MULTIPLICATION SIGN}": " times ",
    "÷": " divided by ",
    "±": " plus or minus ",
    "≈": " about ",
    "≤": " at most ",
    "≥": " at least ",
    "≠": " is not equal to ",
    "√": " square root of ",
    "∞": " infinity ",
    "π": " pi ",
    "²": " squared",
    "³": " cubed",
    "№": "No. ",
    "§": " section ",
    "µ": "u",
    "μ": "u",
    "™": "",
    "®": "",
    "©": "",
    "ß": "ss",
    "ẞ": "SS",
    "æ": "ae",
    "Æ": "Ae",
    "œ": "oe",
    "Œ": "Oe",
    "ø": "o",
    "Ø": "O",
    "đ": "d",
    "Đ": "D",
    "ð": "d",
    "Ð": "D",
    "þ": "th",
    "Þ": "Th",
    "ł": "l",
    "Ł": "L",
    "ħ": "h",
    "Ħ": "H",
    "\N{LATIN SMALL LETTER DOTLESS I}": "i",
    "ŋ": "ng",
    "Ŋ": "Ng",
    "ə": "e",
}
_INVISIBLE = {"Mn", "Me", "Cf"}
"""Combining marks, emoji variation selectors, joiners: they vanish without parting the letters around them."""


def fold_characters(text: str) -> str:
    """`text` in printable ASCII and NAMED_SYMBOLS, white space collapsed, a full stop after lines that lack one.

    Accented letters lose their accents; what has no ASCII reading (emoji, other scripts) becomes a space.
    A long dash is the one exception: it stays, for the rules that tell a range from a break.
    """
    text = re.sub(r"(?<=\w)[^\S\n]*\n[^\S\n]*\n\s*", ".\n", text)  # a heading ends like a sentence
    return re.sub(r"\s+", " ", "".join(map(_fold_character, text))).strip()


@cache
def _fold_character(character: str) -> str:
    if character in _REPLACEMENTS:
        return _REPLACEMENTS[character]
    if character.isascii():
        return character if character.isprintable() else " "
    if character in NAMED_SYMBOLS:
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
