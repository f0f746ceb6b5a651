"""Roman numerals: "Chapter IV" -> "Chapter four", "Henry VIII" -> "Henry the Eighth", "Rocky IV" -> "Rocky four".

Upstream: text whose abbreviations are read.  Downstream: the rules of numbers and initialisms.
"""

from __future__ import annotations

import re

from marstts.text.numbers.words import cardinal, ordinal, year_or_number
from marstts.text.rules.engine import rule
from marstts.text.rules.tables import either, word_set

_DIGITS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_CANONICAL = re.compile("(?:C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_PARTS = either(word_set("names", "parts") | {part.upper() for part in word_set("names", "parts")})
_LOWER_PARTS = either(
    {part.lower() for part in word_set("names", "parts")}
    - {"war", "bowl", "step", "item", "mark", "group", "type", "title", "level", "unit", "table"}
)
_PLURAL_PARTS = either(word_set("names", "plural_parts"))
_RULERS = either(word_set("names", "rulers"))
_GIVENS = either(word_set("names", "givens"))
_TITLES = either(word_set("names", "titles"))


def _value(numeral: str) -> int:
    values = [_DIGITS[letter] for letter in numeral.upper()]
    following = [*values[1:], 0]
    return sum(-value if value < after else value for value, after in zip(values, following, strict=True))


def _is_numeral(letters: str) -> bool:
    return bool(letters) and _CANONICAL.fullmatch(letters.upper()) is not None


def _read_part(match: re.Match[str]) -> str | None:
    is_letter = match["numeral"] in ("C", "D", "L", "M")  # Appendix C, Section D
    if is_letter or not _is_numeral(match["numeral"]):
        return None
    words = f"{match['part']} {cardinal(str(_value(match['numeral'])))}"
    if match["last"]:
        words += f" to {cardinal(str(_value(match['last'])))}" if _is_numeral(match["last"]) else f"-{match['last']}"
    return words


def _read_parts(match: re.Match[str]) -> str | None:
    """Chapters I-III -> Chapters one to three."""
    if not (_is_numeral(match["first"]) and _is_numeral(match["last"])):
        return None
    mark = " to " if match["mark"].strip() in ("-", "—") else match["mark"]
    first, last = (cardinal(str(_value(match[name]))) for name in ("first", "last"))
    return f"{match['parts']} {first}{mark}{last}"


def _read_ruler(match: re.Match[str]) -> str | None:
    if not _is_numeral(match["numeral"]):
        return None
    rank = "-".join(word.capitalize() for word in ordinal(str(_value(match["numeral"]))).split("-"))
    return f"{match['name']} the {rank}"


def _read_after_name(match: re.Match[str]) -> str | None:
    if not _is_numeral(match["numeral"]):
        return None
    return f"{match['name']} {cardinal(str(_value(match['numeral'])))}"


def _read_century(match: re.Match[str]) -> str | None:
    return ordinal(str(_value(match["numeral"]))) if _is_numeral(match["numeral"]) else None


def _read_listed(match: re.Match[str]) -> str | None:
    return f"{cardinal(str(_value(match['numeral'])))}, " if _is_numeral(match["numeral"]) else None


def _read_heading(match: re.Match[str]) -> str | None:
    """A line that is a numeral alone: the number of a chapter."""
    return cardinal(str(_value(match["numeral"]))) if _is_numeral(match["numeral"]) else None


def _read_opening(match: re.Match[str]) -> str | None:
    """IV. The Storm -> four, The Storm; a bare numeral opens a short line without a stop only."""
    is_marked = match[0].rstrip()[-1] in ".:)-—"
    is_title = len(match.string) < MAX_TITLE_CHARACTERS and match.string[-1] not in ".,;:"
    if not _is_numeral(match["numeral"]) or not (is_marked or is_title):
        return None
    return f"{cardinal(str(_value(match['numeral'])))}, "


MAX_TITLE_CHARACTERS = 60
"""Longest line that a bare numeral opens as a title: "II The Storm"."""

_AFTER = r"(?![A-Za-z0-9]|'[a-rt-z]|\.[A-Za-z])"
_LONG = r"(?P<numeral>[IVX]{2,6}|L[IVX]{1,6}|X[LC][IVX]{0,4})"

RULES = [
    rule("roman.heading", r"^(?P<numeral>[IVXL]{2,8}|[VX])[.:]?$", _read_heading, parted=False),
    rule(
        "roman.heading",
        r"^(?P<numeral>[IVXL]{2,8}|[VXI](?=[.:] (?:The|A|An|In|On|Of|At|How|What|Where|Why|Who|When"
        r"|To|From|My|His|Her|Our) ))"
        r"(?:[.:)]| ?[-—])? (?=[\"'(]?[A-Z])",
        _read_opening,
        parted=False,
    ),
    rule("roman.century", r"\b(?P<numeral>[IVX]{1,5})(?:th|st)?(?= (?:[Cc]entury|[Cc]enturies)\b)", _read_century),
    rule(
        "roman.ruler",
        rf"\b(?P<name>(?:{_TITLES}) [A-Z][a-z]+(?: [A-Z][a-z]+)?) (?P<numeral>[IVX]{{1,6}}){_AFTER}",
        _read_ruler,
    ),
    rule(
        "roman.ruler",
        rf"\b(?P<name>(?:{_RULERS})(?: [A-Z][a-z]{{2,15}})?) (?P<numeral>[IVX]{{2,6}}|V(?!\. [A-Z])){_AFTER}",
        _read_ruler,
    ),
    rule(
        "roman.ruler",
        rf"\b(?P<name>(?:{_RULERS})) (?P<numeral>I)(?=[,;:)]|'s\b|\.(?:$| [A-Z])| and [A-Z]"
        r"| (?:of|reigned|ruled|were|became|died)\b)",
        _read_ruler,
    ),
    rule(
        "roman.heir",
        rf"\b(?P<name>(?:{_GIVENS}) (?:[A-Z]\.? )?[A-Z][a-z]{{2,15}}) (?P<numeral>II|III|IV){_AFTER}",
        _read_ruler,
    ),
    rule(
        "roman.parts",
        rf"\b(?P<parts>{_PLURAL_PARTS}) (?P<first>[IVXL]{{1,8}})(?P<mark> ?[-—] ?|,? (?:and|or|to|&) )"
        r"(?P<last>[IVXL]{1,8})(?![A-Za-z0-9'])",
        _read_parts,
    ),
    rule(
        "roman.part",
        rf"\b(?P<part>{_PARTS}) (?P<numeral>[IVXLC]{{1,8}}|[ivxl]{{2,6}}|[ivx](?=[,.;)]|$))"
        r"(?:[-—](?P<last>[IVXLC]{1,8}))?\b(?!'[a-rt-z])",
        _read_part,
    ),
    rule(
        "roman.part",
        rf"\b(?P<part>{_LOWER_PARTS}) (?P<numeral>[ivxl]{{1,6}}|[IVXL]{{1,6}})(?:[-—]"
        rf"(?P<last>[ivxl]{{1,6}}))?{_AFTER}(?<! i)(?<! I)",
        _read_part,
    ),
    rule("roman.name", rf"\b(?P<name>i?[A-Z][a-z]{{1,20}}|[A-Z]{{2,5}}) {_LONG}{_AFTER}", _read_after_name),
    rule(
        "roman.year",
        r"(?<![A-Za-z0-9])(?=[MDCLXVI]{4,15}(?![A-Za-z0-9]))M{1,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV"
        r"|V?I{0,3})",
        lambda match: year_or_number(str(_value(match[0]))),
    ),
    rule(
        "roman.alone",
        r"(?<![A-Za-z0-9.'-])(?!XXX)(?P<numeral>[IVX]{3,6})(?![A-Za-z0-9'-])",
        lambda match: cardinal(str(_value(match["numeral"]))) if _is_numeral(match["numeral"]) else None,
    ),
    rule("roman.listed", r"\((?P<numeral>ii|iii|iv|vi{1,3}|ix|xi{1,3}|II|III|IV|VI{1,3}|IX)\) ?", _read_listed),
]
