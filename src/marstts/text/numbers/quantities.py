"""Plain numbers: ranges, ratios, ordinals, fractions, scales and whatever numeral no other rule claims.

Upstream: text whose dates, identifiers, money and units are read.  Downstream: the rules of symbols.
"""

from __future__ import annotations

import re

from marstts.text.numbers.words import (
    END,
    NUMBER,
    RUN,
    SIGN,
    WHOLE,
    cardinal,
    fraction,
    mixed_number,
    number,
    ordinal,
    year_or_number,
)
from marstts.text.rules.engine import rule
from marstts.text.rules.tables import before_places, either, word_set

_COUNTED = word_set("names", "parts") | word_set("names", "counted")
_PARTS = either({*_COUNTED, *map(str.lower, _COUNTED), *map(str.upper, _COUNTED)} - {"Mark", "mark", "War", "war"})
"""Words before a number that may have zeros before it: "Chapter 01"."""

_SCALES = {"k": "thousand", "K": "thousand", "M": "million", "mn": "million", "mln": "million", "bn": "billion",
           "Bn": "billion", "B": "billion", "tn": "trillion", "T": "trillion"}  # fmt: skip
_EXACT_POWERS = {3: "thousand", 6: "million", 9: "billion", 12: "trillion"}
_NO_SCALE_AFTER = before_places(("number",))
_SHOUTED_K = re.compile(r" (?:run|race|video|resolution|monitor|display|TV|screen|content|UHD|footage|walk|ultra)")


def _read_ordinal_range(match: re.Match[str]) -> str:
    return f"{ordinal(match['low'])} to {ordinal(match['high'])}"


def _read_scaled(match: re.Match[str]) -> str | None:
    """2.5k -> two point five thousand, 5M -> five million; 4K and 10K stay letters, as does Room 3B."""
    numeral, scale, text = match["number"], match["scale"], match.string
    if _NO_SCALE_AFTER.search(text, max(match.start() - 12, 0), match.start()):
        return None
    if scale in "kK" and _SHOUTED_K.match(text, match.end()):
        return f"{number(numeral)} K"
    if scale == "K" and "." not in numeral and len(numeral) <= 2:
        return f"{number(numeral)} K"
    if scale == "T" and "." not in numeral:
        return None
    return f"{number(numeral)} {_SCALES[scale]}{' plus' if match['more'] else ''}"


def _read_scientific(match: re.Match[str]) -> str:
    """1e6 -> one million, 6.02e23 -> six point zero two times ten to the twenty-third."""
    minus = "minus " if match["sign"] else ""
    mantissa, exponent = match["mantissa"], int(match["exponent"])
    if exponent in _EXACT_POWERS:
        return f"{minus}{number(mantissa)} {_EXACT_POWERS[exponent]}"
    return f"{minus}{number(mantissa)} times ten to the {power_words(match['exponent'])}"


def power_words(exponent: str) -> str:
    """The spoken exponent after "to the": 6 -> sixth, -3 -> minus three, n -> n."""
    exponent = exponent.lstrip("+")
    if exponent.startswith("-"):
        return (
            f"minus {cardinal(exponent[1:].lstrip('0') or '0')}" if exponent[1:].isdigit() else f"minus {exponent[1:]}"
        )
    return ordinal(exponent.lstrip("0") or "0") if exponent.isdigit() else exponent


def _read_power(match: re.Match[str]) -> str | None:
    base, exponent = match["base"], (match["exponent"] or match["grouped"]).strip("(){}")
    words = year_or_number(base) if base.isdigit() and len(base) < 4 else base
    if base.isdigit() and len(base) >= 4:
        words = number(base)
    if len(base) > 2 and base.isalpha() and exponent.isdigit():
        return None  # a footnote mark
    if exponent == "2":
        return f"{words} squared"
    if exponent == "3":
        return f"{words} cubed"
    return f"{words} to the {power_words(exponent)}"


def _read_ratio(match: re.Match[str]) -> str:
    return f"{number(match[1])} to "


def _read_fraction(match: re.Match[str]) -> str:
    whole, over, under = match["whole"], match["over"], match["under"]
    if len(over) < 3 and len(under) < 3 and whole and int(over) < int(under):
        return mixed_number(whole, over, under)
    return f"{number(whole) + ' ' if whole else ''}{fraction(over, under)}"


def _read_plain(match: re.Match[str]) -> str:
    numeral = match["number"]
    return "minus " + number(numeral) if match["sign"] else year_or_number(numeral)


def _read_range(match: re.Match[str]) -> str | None:
    """ "to" between two numbers, unless the first is part of a name: ISO-8859-1."""
    before = match.string[max(match.start() - 12, 0) : match.start()]
    first = re.search("(?:^|[^0-9.])(0[0-9]{1,9})$", before)
    last = re.compile("0[0-9]{1,9}").match(match.string, match.end())
    are_codes = (first is None) != (last is None)  # 55-001
    is_name = re.search("[A-Za-z0-9]-[0-9][0-9.]{0,6}$|[A-Z]{2}[0-9]{1,2}$", before) is not None
    return None if are_codes or is_name else " to "


_COUNTABLE = word_set("names", "countable")
_LISTED = re.compile(
    rf"\b(?:{either(word_set('names', 'listed'))})\.? (?:[0-9]{{1,3}},[0-9]{{1,3}} (?:and|or|to|-) )?\Z", re.IGNORECASE
)
_NO_COUNTED = re.compile(
    r" (?:and|or|to|but|in|on|of|for|with|by|at|as|than|then|so|if|when|while|after|before|the|an?|is"
    r"|are|was|were|will|have|has"
    r"|had|do|does|go|goes|speak|say|says|come|comes|show|shows|may|can|must|should|would|could|only|both|from|not|he|she"
    r"|it|they|we|you|per)\b"
)
_AMOUNTED = re.compile(r"\b(?:by|about|than|is|was|around|nearly|almost|of|to|over|under|only) \Z")


def _read_comma(match: re.Match[str]) -> str | None:
    """12,5 points -> 12.5 points; a list of numbers stays: pages 4,5 and 6,7."""
    text = match.string
    before = text[max(match.start() - 30, 0) : match.start()]
    if _LISTED.search(before):
        return None
    if not match[0].startswith("0,"):
        if _NO_COUNTED.match(text, match.end()):
            return None
        if not text.startswith((" ", "-", "—"), match.end()) and not _AMOUNTED.search(before):
            return None
    return match[0].replace(",", ".")


_EXCHANGED = str.maketrans(".,", ",.")

_THING = r"(?=[$£€¥₹]?[0-9])(?![0-9]{1,2}/[0-9])"

RANGES = [
    rule(
        "number.ordinal-range",
        rf"{RUN}(?P<low>[0-9]{{1,4}})(?:st|nd|rd|th) ?(?:-|—) ?(?P<high>[0-9]{{1,4}})(?:st|nd|rd|th)(?![A-Za-z0-9])",
        _read_ordinal_range,
    ),
    rule(
        "number.indian",
        rf"{RUN}[0-9]{{1,2}}(?:,[0-9]{{2}}){{1,4}},[0-9]{{3}}(?![0-9]|,[0-9])",
        lambda match: match[0].replace(",", ""),
    ),
    rule(
        "number.european",
        r"(?<![0-9.,$£¥-])[0-9]{1,3}(?:\.[0-9]{3}){1,4},[0-9]{1,9}(?![0-9]|[.,][0-9])",
        lambda match: match[0].translate(_EXCHANGED),
    ),
    rule(
        "number.european",
        r"(?<![0-9.,$£€¥(\[])[0-9]{1,3},[0-9]{4,9}(?![0-9]|[.,][0-9])",
        lambda match: match[0].replace(",", "."),
    ),
    rule(
        "number.european",
        rf"{RUN}(?<![.])[0-9]{{1,3}}(?:\.[0-9]{{3}}){{2,4}}(?![0-9]|\.[0-9])",
        lambda match: match[0].replace(".", ","),
    ),
    rule(
        "number.european",
        r"(?<![0-9,.:$£€])[0-9]{1,4},[0-9]{2}(?![0-9,%]| ?[£€$A-Za-z°%])",
        lambda match: match[0].replace(",", "."),
    ),
    rule(
        "number.european",
        r"(?<![0-9,.:$£€(\[])[0-9]{1,3},[0-9]{1,2}(?![0-9,])(?!\.[0-9])(?= [a-z]{2}|[.;!?)]|$"
        r"| ?[-—] ?[0-9]{1,3},[0-9]{1,2} [a-z])",
        _read_comma,
        parted=False,
    ),
    rule(
        "number.european",
        rf"(?<![0-9,.$£€])[1-9][0-9]{{0,2}}\.[0-9]{{3}}(?= (?:[Ee]uros?|{either(_COUNTABLE)})(?![A-Za-z]))",
        lambda match: match[0].replace(".", ","),
    ),
    rule("number.range", r"(?<=[A-Z][0-9])[-—](?=[A-Z][0-9](?![0-9A-Za-z]))", " to "),
    rule(
        "number.swiss", rf"{RUN}[0-9]{{1,3}}(?:'[0-9]{{3}}){{1,4}}(?![0-9'])", lambda match: match[0].replace("'", ",")
    ),
    rule(
        "number.year",
        r"(?<![A-Za-z0-9])'(?P<year>[0-9]{2})(?![0-9A-Za-z'])",
        lambda match: number(match["year"]) if match["year"][0] != "0" else f"oh {number(match['year'][1])}",
    ),
    rule(
        "number.scientific",
        rf"{SIGN}(?<![A-Za-z0-9.])(?P<mantissa>[0-9]{{1,9}}(?:\.[0-9]{{1,9}})?)[eE]"
        rf"(?P<exponent>[+-]?[0-9]{{1,3}})(?![A-Za-z0-9]|-[A-Za-z0-9])",
        _read_scientific,
    ),
    rule("number.ratio", rf"{RUN}([0-9]{{1,4}}):(?=[0-9]{{1,4}}{END})", _read_ratio),
    rule("number.minus", r"(?<=[0-9])-(?=[0-9.]{1,12} ?=)", " minus ", parted=False),
    rule(
        "number.minus",
        r"(?<![A-Za-z])(?P<name>[a-z])-(?=[0-9]{1,9}[ =)])",
        lambda match: f"{match['name']} minus " if "=" in match.string else None,
        parted=False,
    ),
    rule("number.range", rf"(?<=[0-9%])(?: ?— ?|-){_THING}", _read_range),
    rule("number.range", rf"(?<=[0-9][°%kKMB])(?: ?— ?|-){_THING}", " to "),
    rule("number.range", r"(?<=[0-9][a-zA-Z%])(?: ?— ?|-)(?=[0-9]{1,4}(?:[a-zA-Z]{1,2}|%)(?![A-Za-z0-9]))", " to "),
]

SCALES = [
    rule(
        "number.scale",
        rf"{RUN}(?<![A-Za-z.,-])(?P<number>{NUMBER})(?P<scale>{either(_SCALES)})(?P<more>\+)?(?![A-Za-z0-9/'])",
        _read_scaled,
    ),
]

POWERS = [
    rule(
        "number.power",
        r"(?<![A-Za-z0-9^])(?P<base>[0-9]{1,9}(?![0-9])|[A-Za-z]{1,20})\^(?:(?P<exponent>[+-]?(?:[0-9]{1,4}|[A-Za-z]"
        r"(?![A-Za-z])))|(?P<grouped>\([A-Za-z0-9+\u0370-\u03ff-]{1,9}\)|\{[A-Za-z0-9+\u0370-\u03ff-]{1,9}\}))",
        _read_power,
    ),
    rule("number.power", r"(?:(?<=[)\]\u0370-\u03ff])|(?<=[0-9][A-Za-z]))\^2(?![0-9])", " squared"),
    rule("number.power", r"(?:(?<=[)\]\u0370-\u03ff])|(?<=[0-9][A-Za-z]))\^3(?![0-9])", " cubed"),
    rule(
        "number.power",
        r"(?<=[)\]A-Za-z0-9])\^(?P<exponent>-?(?:[0-9]{1,4}|[A-Za-z](?![A-Za-z])))",
        lambda match: f" to the {power_words(match['exponent'])}",
    ),
    rule("number.power", r"(?<=[A-Za-z0-9)])\^[-\u2212](?![A-Za-z0-9])", " minus"),
]

NUMBERS = [
    rule(
        "number.ordinal",
        rf"{RUN}(?P<number>{WHOLE})(?:st|nd|rd|th|ST|ND|RD|TH)(?![A-Za-z0-9])",
        lambda match: ordinal(match["number"]),
    ),
    rule(
        "number.fraction",
        r"(?<![0-9/.,])(?:(?P<whole>[0-9]{1,4})(?: |-(?=[0-9]/[0-9](?![0-9]))))?(?P<over>[0-9]{1,6})/"
        r"(?P<under>[0-9]{1,6})(?![0-9/])",
        _read_fraction,
    ),
    rule(
        "number.chapter",
        rf"\b(?P<part>(?:{_PARTS})\.? (?:#|[Nn]o\. )?)0{{1,3}}(?=[1-9][0-9]{{0,2}}(?![0-9]|[.,:/-][0-9]))",
        r"\g<part>",
    ),
    rule("number.chapter", "^0(?=[1-9](?:$|[.:)]$| ?[:—-] ?[A-Za-z]| [A-Z][a-z]))", "", parted=False),
    rule("number.plain", rf"{SIGN}{RUN}(?P<number>{NUMBER})", _read_plain),
]
