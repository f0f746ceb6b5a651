"""Digits that name something: codes, rooms, versions, flights, sizes, scores, chemical formulas.

Upstream: text whose dates and addresses are read.  Downstream: the rules of money, units and plain numbers.
"""

from __future__ import annotations

import re

from marstts.text.numbers.words import cardinal, in_pairs, number, one_by_one, year_or_number
from marstts.text.rules.engine import rule
from marstts.text.rules.tables import either, word_set

_ELEMENTS = word_set("names", "elements")
_VERSION_BEFORE = re.compile("[A-Z][A-Za-z]{1,12} $|OS $")


def _read_code(match: re.Match[str]) -> str:
    return f"{match['before']}{one_by_one(match['digits'])}"


def _read_order(match: re.Match[str]) -> str:
    digits = match["digits"]
    return "number " + (one_by_one(digits) if len(digits) >= 4 or digits[0] == "0" else cardinal(digits))


def _read_flight(match: re.Match[str]) -> str:
    digits = match["digits"]
    words = year_or_number(digits) if 1100 <= int(digits) < 2100 else in_pairs(digits)
    return f"{' '.join(match['letters'])} {words}"


def _read_paired(match: re.Match[str]) -> str:
    return f"{match['before']}{in_pairs(match['digits'])}"


def _read_version(match: re.Match[str]) -> str:
    parts = re.findall("[0-9]+", match["number"])
    words = " point ".join(
        f"oh {cardinal(part[1])}" if re.fullmatch("0[1-9]", part) else cardinal(part) for part in parts
    )
    return (f"{match['before']} " if match["before"] not in ("v", "V") else "version ") + words


def _read_dotted(match: re.Match[str]) -> str:
    return " point ".join(cardinal(part) for part in match[0].split("."))


def _read_formula(match: re.Match[str]) -> str | None:
    """H2SO4 -> H two S O four; None where the letters are no chemical elements."""
    parts = re.findall("[A-Z][a-z]?|[0-9]+", match[0])
    elements = [part for part in parts if part[0].isalpha()]
    if not all(element in _ELEMENTS for element in elements) or "".join(parts) != match[0]:
        return None
    if len(elements) < 2 and elements[0] not in "HNOCFSP":
        return None
    return " ".join(" ".join(part.upper()) if part[0].isalpha() else cardinal(part) for part in parts)


def _read_size(match: re.Match[str]) -> str:
    """1920x1080 -> nineteen twenty by ten eighty, 2x4 -> two by four."""
    numerals = re.findall(r"[0-9]+(?:\.[0-9]+)?", match[0])
    is_screen = all(len(each) in (3, 4) and each.isdigit() for each in numerals)
    size = " by ".join(in_pairs(each) if is_screen else number(each) for each in numerals)
    return size + (" inches" if match["inches"] else "")


def _read_resolution(match: re.Match[str]) -> str:
    return f"{in_pairs(match['lines'])} {match['scan']}"


_FRACTION_BEFORE = re.compile("(?<![0-9/])[1-9]/[2-9],? (?:and |or )?$")
"""Another fraction right before: "1/3, 9/10" are no scores."""


_DENOMINATORS = frozenset({16, 20, 25, 32, 48, 50, 60, 64, 96})
"""Denominators of fractions that are no counts: 24/36 is a count, 15/16 is not."""


def _read_score(match: re.Match[str]) -> str | None:
    """50/50 -> fifty-fifty, 8/10 -> eight out of ten; another rule reads other fractions."""
    first, second = int(match["first"]), int(match["second"])
    if first == second and 3 <= first <= 10 and second != 4:
        return f"{cardinal(str(first))} out of {cardinal(str(second))}"
    if first == second == 50:
        return "fifty-fifty"
    if first == second == 20 or (first + second == 100 and first >= second > 1):
        return f"{cardinal(str(first))} {cardinal(str(second))}"
    if (
        second == first + 1
        and first >= 10
        and _VERSION_BEFORE.search(match.string, max(match.start() - 20, 0), match.start())
    ):
        return f"{cardinal(str(first))} {cardinal(str(second))}"
    if second == 10 and _FRACTION_BEFORE.search(match.string, max(match.start() - 10, 0), match.start()):
        return None
    is_share = 12 < first < second < 100 and (second == 20 or second not in _DENOMINATORS)
    if (second == 10 and first >= 2) or (second == 100 and first > 1) or is_share:
        return f"{cardinal(str(first))} out of {cardinal(str(second))}"
    return None


_LETTERED = word_set("names", "lettered")
_LETTERED_PLACE = either({*_LETTERED, *map(str.lower, _LETTERED), *(f"{place}s" for place in _LETTERED)}
                         | {f"{place.lower()}s" for place in _LETTERED})  # fmt: skip
_NEAR_RUNWAY = re.compile(
    r"\b(?:[Rr]unways?|[Ll]and(?:s|ed|ing)?|[Tt]ake-?offs?|[Tt]ook off|[Tt]axi(?:ed|ing|way)?"
    r"|[Aa]pproach|ILS|RNAV|RWY|[Tt]ower"
    r"|[Cc]leared|[Dd]epart(?:s|ed|ure)?)\b|(?<![0-9A-Za-z])[0-3][0-9]R(?![A-Za-z0-9])"
)


def _read_lettered(match: re.Match[str]) -> str:
    """ "runways 27L and 27R" -> "runways twenty-seven L and twenty-seven R": the letter is no unit."""
    listed = match["list"].replace("/", " and ").replace("-", " to ")
    return match["before"] + re.sub(
        "([0-9]{1,4})([A-Z])",
        lambda each: f"{one_by_one(each[1]) if each[1][0] == '0' else cardinal(each[1])} {each[2]}",
        listed,
    )


def _read_runway(match: re.Match[str]) -> str | None:
    if _NEAR_RUNWAY.search(match.string) is None:
        return None
    digits = match["digits"]
    return f"{one_by_one(digits) if digits[0] == '0' else cardinal(digits)} {match['letter']}"


PLACES = [
    rule(
        "number.place",
        rf"(?P<before>\b{_LETTERED_PLACE} (?:number |no\. )?)(?P<list>[0-9]{{1,4}}[A-Z]"
        r"(?:(?:, | and | or | to |/|-)[0-9]{1,4}[A-Z](?![A-Za-z0-9])){0,5})(?![A-Za-z0-9'-]|\.[0-9])",
        _read_lettered,
    ),
    rule(
        "number.place",
        r"(?<![0-9A-Za-z.,-])(?P<digits>0[1-9]|[12][0-9]|3[0-6])(?P<letter>[LRC])(?![A-Za-z0-9'-])",
        _read_runway,
    ),
]
"""Numbers with a letter that name a place, before the rules of units."""

_VERSIONED = either(word_set("names", "versioned"))


_PAIRED = either(word_set("names", "paired_numbers"))


_CODE_WORDS = (
    r"PMID|CVV|CVC|PIN|pin|passcode|password|OTP|code|[Zz]ip|ZIP|[Aa]ccount|[Cc]ard|tracking|serial|booking|confirmation"
    r"|reference"
    r"|[Oo]rder|[Tt]icket|[Ii]nvoice|[Cc]ase|extension"
)


IDENTIFIERS = [
    rule(
        "number.code",
        rf"(?P<before>\b(?:{_CODE_WORDS})(?: code| number| no\.?)?(?: ending)?(?: in| is|:| was|=)? )"
        r"(?P<digits>[0-9]{3,})"
        rf"(?![0-9]|[.,:/-][0-9]|[A-Za-z%])",
        _read_code,
    ),
    rule(
        "number.order",
        r"(?<=\bnumber )(?P<letters>[A-Z]{1,3})-(?P<digits>[0-9]{3,20})(?![0-9A-Za-z-]|[.,][0-9])",
        lambda match: f"{' '.join(match['letters'])} {one_by_one(match['digits'])}",
    ),
    rule(
        "number.order",
        r"(?<![\w&])#(?P<digits>[0-9]{1,20})(?![0-9A-Za-z]"
        r"|[.,][0-9])",
        _read_order,
    ),
    rule(
        "number.formula",
        r"(?<![A-Za-z0-9])(?=[A-Za-z]{1,12}[0-9])(?:[A-Z][a-z]?[0-9]{0,3}){1,12}(?![A-Za-z0-9])",
        _read_formula,
    ),
    rule(
        "number.flight",
        r"(?<![A-Za-z0-9])(?P<letters>[A-Z]{2}) ?(?P<digits>[1-9][0-9]{3})(?![0-9A-Za-z]|[.,][0-9])"
        r"(?<!AD [0-9]{4})(?<!BC [0-9]{4})",
        _read_flight,
    ),
    rule(
        "number.flight",
        rf"(?P<before>\b(?:{_PAIRED})(?: [3579])? )(?P<digits>[1-9][0-9]{{2,3}})(?![0-9]|[.,][0-9])",
        _read_paired,
    ),
    rule(
        "number.status",
        r"(?P<before>\b(?:HTTP|ERR|[Ee]rr|[Ee]rror|[Ss]tatus)(?: code)? )(?P<digits>[1-5][0-9]{2})(?![0-9]|[.,][0-9])",
        _read_paired,
    ),
    rule(
        "number.resolution",
        r"(?<![0-9A-Za-z])(?P<lines>[1-9][0-9]{2,3})(?P<scan>[pi])(?=[1-9][0-9]{1,2}(?![0-9A-Za-z])|(?![A-Za-z0-9]))",
        _read_resolution,
    ),
    rule(
        "number.size",
        r"(?<![0-9A-Za-z.,/])[1-9][0-9]{0,4}(?:\.[0-9]{1,3})?(?: ?x ?[1-9][0-9]{0,4}(?:\.[0-9]{1,3})?){1,2}"
        r"(?P<inches> in(?=[,.;)]|$))?(?![0-9A-Zabd-fh-ln-z])",
        _read_size,
    ),
    rule(
        "number.version",
        rf"\b(?P<before>{_VERSIONED}|[vV](?=[0-9])) ?v?(?P<number>[0-9]{{1,4}}(?:\.[0-9]{{1,4}}){{1,3}})(?![0-9])",
        _read_version,
    ),
    rule(
        "number.meter",
        r"(?<![0-9/])(?P<first>[2-9]|12)/(?P<second>[248]|16)(?= (?:time|beat|meter|measure)\b)",
        lambda match: f"{cardinal(match['first'])} {cardinal(match['second'])}",
    ),
    rule("number.score", r"(?<![0-9/.,$£€])(?P<first>[0-9]{1,3})/(?P<second>[0-9]{1,3})(?![0-9/])", _read_score),
    rule("number.dotted", r"(?<![0-9.])[0-9]{1,9}(?:\.[0-9]{1,9}){2,7}(?![0-9])", _read_dotted),
]
