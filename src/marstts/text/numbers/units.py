"""Units after numbers: 5 km² -> five square kilometers, 6'2" -> six foot two.

Upstream: text whose money is read.  Downstream: the rules of plain numbers.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from marstts.text.numbers.quantities import power_words
from marstts.text.numbers.times import ends_sentence
from marstts.text.numbers.words import (
    NUMBER,
    RUN,
    SIGN,
    cardinal,
    fraction,
    is_attribute,
    mixed_number,
    number,
    with_unit,
)
from marstts.text.rules.engine import rule
from marstts.text.rules.tables import before_places, either, table

_POWERS = {"^2": "square", "^3": "cubic", "2": "square", "3": "cubic"}
_QUOTE = re.compile('(?<![0-9])"')
_OPEN_QUOTE = re.compile("(?<![A-Za-z0-9])'(?=[A-Za-z])")
_DIMENSIONS = frozenset({"tall", "high", "long", "wide", "deep"})
_NEEDS_GAP = frozenset({"K", "N", "J", "T", "ac"})
_NEVER_BARE = frozenset("BFHT")
_PLACE = before_places()
_INITIAL = re.compile(r"\. ?[A-Z]")
"""Pattern of what follows an initial: "2023 A. Lee"."""
_LETTER_RANGE = re.compile("(?:[-—]| to )[A-Z](?![A-Za-z0-9])|-(?!rated|powered|hour)[a-z0-9]")
"""Pattern of what follows the letter of a seat or of a compound: "seats 22A-C", "2 A-list stars", "3 W-2 forms"."""
_FOLLOWING = re.compile(r" [\"'(]?([A-Za-z0-9]+)")
"""The word after a unit; none where the text or a clause ends."""
_NO_DOTTED = frozenset({"am", "pm", "ac", "pc"})
"""Abbreviations with stops that are no units, whatever their letters are together."""
_LENGTHS = frozenset({"m", "km", "cm", "mm", "dm", "um", "μm", "nm", "ft", "mi", "yd", "in", "inch"})


@cache
def units() -> dict[str, tuple[str, str]]:
    """Every unit that a number may have after it: symbol -> one, many."""
    data = table("units")
    known: dict[str, tuple[str, str]] = {}
    for symbol, (one, many, prefixes) in data["prefixed"].items():
        known[symbol] = (one, many)
        for prefix in prefixes:
            name = data["prefixes"][prefix]
            known[prefix + symbol] = (name + one, name + many)
            if prefix == "u":
                known["μ" + symbol] = (name + one, name + many)
    return known | {symbol: (one, many) for symbol, (one, many) in data["plain"].items()}


@lru_cache(maxsize=1024)
def read_per(unit: str) -> str | None:
    """The words after "per": kg -> per kilogram, hr -> per hour; None if it is no unit."""
    power = re.fullmatch(r"(.*?[a-z])(?:\^)?([23])", unit)
    if power and power[1] in units() and power[1] not in ("h", "min"):
        if power[1] in _LENGTHS:
            return f"per {_POWERS[power[2]]} {units()[power[1]][0]}"
        return f"per {units()[power[1]][0]} {'squared' if power[2] == '2' else 'cubed'}"
    if unit in table("units")["per"]:
        name = table("units")["per"][unit]
        return name if name == "each" else f"per {name}"
    return f"per {units()[unit][0]}" if unit in units() else None


@lru_cache(maxsize=1024)
def name_unit(unit: str) -> tuple[str, str] | None:
    """One and many of a unit that may hold a power and "per" parts: m/s^2, kg/m^3, km^2."""
    head, *tail = re.split("[/·*]", unit)
    names = _with_power(head)
    if names is None:
        return None
    one, many = names
    is_per = False
    marks = re.findall("[/·*]", unit)
    for mark, part in zip(marks, tail, strict=True):
        if mark == "/":
            is_per, more = True, read_per(part)
            after = (more, more) if more is not None else None
        else:
            after = _with_power(part)
        if after is None:
            return None
        one, many = f"{one} {after[0]}", f"{many} {after[0]}" if is_per else f"{one} {after[1]}"
    return one, many


def _with_power(unit: str) -> tuple[str, str] | None:
    if unit in units():
        return units()[unit]
    power = re.fullmatch(r"(.+?)(\^?[23])", unit)
    if power is None or power[1] not in units():
        return None
    if power[2][0] != "^" and power[1] not in _LENGTHS | {"s"}:
        return None  # H2 is hydrogen
    one, many = units()[power[1]]
    if power[1] in _LENGTHS:
        return f"{_POWERS[power[2]]} {one}", f"{_POWERS[power[2]]} {many}"
    after = "squared" if power[2][-1] == "2" else "cubed"
    return f"{one} {after}", f"{many} {after}"


def _is_measure(match: re.Match[str]) -> bool:
    """Whether a capital after a number is a unit, "a 5 V supply", and no article or name: "2001 A Space Odyssey"."""
    following = _FOLLOWING.match(match.string, match.end())
    unit, measured = match["unit"], table("units")["measured"]
    is_usual = unit in measured["usual"]
    if (
        match["sign"]
        or "." in match["number"]
        or following is None
        or match[0][-1] == "."
        or (is_usual and not match["gap"])
    ):
        return True
    word = following[1]
    if not word.islower():
        return word in measured["capitals"].split() or (is_usual and word.isupper() and len(word) > 1)
    if word in measured["always"].split() or word in measured.get(unit, "").split():
        return True
    return is_usual and word not in measured["never"].split()


@cache
def _dotted_units() -> dict[str, str]:
    """Small letters -> the unit that they stand for, where no other has the same letters: kwh -> kWh."""
    found: dict[str, list[str]] = {"kmh": ["km/h"], "mps": ["m/s"]}
    for unit in units():
        found.setdefault(unit.lower(), []).append(unit)
    sure = {letters: same[0] for letters, same in found.items() if len(same) == 1}
    return sure | {unit: unit for unit in units() if unit.islower()}


def _read_dotted(match: re.Match[str]) -> str | None:
    """60 m.p.h. -> 60 mph, with the stop where a sentence may end with it."""
    letters = match["unit"].replace(".", "")
    unit = _dotted_units().get(letters)
    if unit is None or letters in _NO_DOTTED:
        return None
    keeps_stop = match["unit"].endswith(".") and ends_sentence(match.string, match.end())
    return f"{match['number']}{match['gap']}{unit}{'.' if keeps_stop else ''}"


def _read_unit(match: re.Match[str]) -> str | None:
    names = name_unit(match["unit"])
    if names is None:
        return None
    unit, numeral = match["unit"], match["number"]
    if unit in _NEVER_BARE or (unit in _NEEDS_GAP and match["gap"] != " "):
        return None
    after = match.start("unit") + 1
    is_letter = _INITIAL.match(match.string, after) or _LETTER_RANGE.match(match.string, after)
    if len(unit) == 1 and unit.isupper() and (is_letter or not _is_measure(match)):
        return None
    if len(unit) == 1 and unit.isalpha() and _PLACE.search(match.string, max(match.start() - 12, 0), match.start()):
        return None
    if match["gap"] == "-" and len(unit) == 1 and match.string[max(match.start() - 1, 0) : match.start()] in ("-", "/"):
        return None  # the end of a code: 17-05-24-A
    minus = "minus " if match["sign"] else ""
    if re.fullmatch("[0-9]{1,3},[0-9]{1,2}", numeral):
        numeral = numeral.replace(",", ".")
    if match["gap"] == "-" and numeral != "1":
        return f"{minus}{number(numeral)}-{names[0]}"
    return minus + with_unit(numeral, (names[0], names[0] if is_attribute(match) else names[1]))


def _read_fraction_unit(match: re.Match[str]) -> str | None:
    names = name_unit(match["unit"])
    if names is None:
        return None
    if match["whole"]:
        return f"{mixed_number(match['whole'], match['over'], match['under'])} {names[1]}"
    over, under = match["over"], match["under"]
    return f"{fraction(over, under)} {names[1] if int(over) > int(under) or int(under) > 99 else names[0]}"


def _read_power_unit(match: re.Match[str]) -> str | None:
    """10^6 m -> ten to the sixth meters."""
    names = name_unit(match["unit"])
    if names is None:
        return None
    words = {"2": "squared", "3": "cubed"}.get(match["exponent"], f"to the {power_words(match['exponent'])}")
    return f"{'minus ' if match['sign'] else ''}{number(match['base'])} {words} {names[1]}"


def _read_bare_unit(match: re.Match[str]) -> str | None:
    """A unit with a slash and no number: "in km/h"."""
    names = name_unit(match[0])
    return names[1] if names else None


def _read_feet_inches(match: re.Match[str]) -> str:
    return f"{cardinal(match['feet'])} foot {number(match['inches'])}"


def _read_feet_inches_over(match: re.Match[str]) -> str:
    """5'7 1/2" -> five foot seven and a half."""
    words = mixed_number(match["inches"], match["over"], match["under"])
    return f"{cardinal(match['feet'])} foot {words}"


def _read_feet(match: re.Match[str]) -> str | None:
    """6' -> six feet, unless the mark closes a quotation."""
    if match.string[match.end() + 1 : match.end() + 5] not in _DIMENSIONS and _OPEN_QUOTE.search(
        match.string, 0, match.start()
    ):
        return None
    return with_unit(match["feet"], ("foot", "foot" if _MEASURED.match(match.string, match.end()) else "feet"))


_MEASURED = re.compile(
    " (?!(?:thick|wide|tall|long|deep|high|thin|across|apart|away|by|in|of|and|or|to|from|is|off|on|at|with|per|below"
    "|above|under|over|more|less|for|as|are|was|but|when|then|than|if|so|too|the|a|an|around|each|back|left|right|up|down)"
    "\\b)[a-z]{3}"
)
"""A noun after a number with its unit: a 34" belt."""

_OTHER_SIDE = re.compile('[0-9]{1,3}(?:\\.[0-9])?"' + _MEASURED.pattern)
"""The second side of what is measured: a 2" x 4" board."""


def _read_inches(match: re.Match[str]) -> str | None:
    """10" -> ten inches, unless the mark closes a quotation."""
    sure = match["sure"]
    if not sure and len(_QUOTE.findall(match.string, 0, match.start())) % 2:
        return None
    is_measure = _MEASURED.match(match.string, match.end()) or (sure and _OTHER_SIDE.match(match.string, match.end()))
    plural = "inch" if is_measure else "inches"
    return with_unit(match["number"], ("inch", plural)) + (
        " by " if sure and sure.strip() in ("x", "by", "\u00d7") else ""
    )


def _read_fraction_inches(match: re.Match[str]) -> str | None:
    opened = len(_QUOTE.findall(match.string, 0, match.start())) % 2
    is_quoted = opened or match.string[: match.start()].endswith('"')
    if match.string[match.end("under")] == '"' and is_quoted:
        return None
    over, under = match["over"], match["under"]
    if match["noun"] is None and match["whole"]:
        return f"{mixed_number(match['whole'], over, under)} inches"
    if match["noun"] is None:
        return f"{fraction(over, under)} inch"
    if match["whole"]:
        return f"{mixed_number(match['whole'], over, under).replace('quarters', 'quarter')}-inch"
    return f"{fraction(over, under).replace(' ', '-').replace('quarters', 'quarter')}-inch"


def _read_angle(match: re.Match[str]) -> str:
    parts = [with_unit(match["degrees"], ("degree", "degrees")), with_unit(match["minutes"], ("minute", "minutes"))]
    if match["seconds"]:
        parts.append(with_unit(match["seconds"], ("second", "seconds")))
    return " ".join(parts) + _point(match["point"])


def _read_temperature(match: re.Match[str]) -> str | None:
    """72F -> seventy-two degrees Fahrenheit; a letter after the number of a place stays a letter."""
    if _PLACE.search(match.string, max(match.start() - 12, 0), match.start()):
        return None
    minus = "minus " if match["sign"] else ""
    return f"{minus}{number(match['number'])} degrees {'Fahrenheit' if match['scale'] == 'F' else 'Celsius'}"


def _read_bearing(match: re.Match[str]) -> str:
    minus = "minus " if match["sign"] else ""
    return f"{minus}{with_unit(match['number'], ('degree', 'degrees'))}{_point(match['point'])}"


def _point(letter: str | None) -> str:
    return f" {table('abbreviations')['compass'][letter]}" if letter else ""


_PER_PART = r"(?:/(?:100 ?k[mg]|100 ?g|[A-Za-z%μ]{1,8})(?:\^?[23](?![0-9]))?(?:·[A-Za-z]{1,4})?)"
_POWERED = rf"(?:{either(units())})(?:\^?[23](?![0-9]))?"
_UNIT = rf"(?P<unit>{_POWERED}(?:[·*]{_POWERED})?{_PER_PART}{{0,2}})"
_SOON = rf"(?=[0-9.,]{{1,40}}[ -]?[{re.escape(''.join(sorted({unit[0] for unit in units()})))}])"
"""A quick look for the first character of a unit."""

_AFTER = r"(?![A-Za-z0-9']|\^)"
_STOP = r"(?:\.(?= [a-z0-9@&]|[,;)]))?"

_TIMES = {"d": "day", "day": "day", "yr": "year", "year": "year"}
_NAMES = either({*units(), *(unit.replace("μ", "µ") for unit in units()), *_TIMES, "week", "month"})
_RAISED = "⁻[¹²³⁴]"
_NEGATIVE = rf"(?:{_RAISED}|\^?[-\u2212][1-4](?![0-9])|\^\{{[-\u2212][1-4]\}})"
_PRODUCT = (
    rf"(?P<units>(?:{_NAMES})(?:[²³]|\^[23](?![0-9]))?{_NEGATIVE}?(?:[·⋅∙ *](?:{_NAMES})(?:[²³]|{_NEGATIVE})?){{0,3}})"
)
_FACTOR = re.compile(rf"(?P<unit>{_NAMES})(?P<power>[²³]|\^[23])?(?P<negative>{_NEGATIVE})?(?:[·⋅∙ *]|\Z)")
_RAISED_DIGITS = str.maketrans("¹²³⁴", "1234")


def _read_product(match: re.Match[str]) -> str | None:
    """4 mg·mL⁻¹ -> 4 mg/mL: units with negative powers as fractions, which the rules of units read."""
    written = match["units"].replace("µ", "μ")
    over: list[str] = []
    under: list[str] = []
    place = 0
    while place < len(written):
        factor = _FACTOR.match(written, place)
        if factor is None:
            return None
        if factor["negative"]:
            power = re.sub("[^0-9]", "", factor["negative"].translate(_RAISED_DIGITS))
            under.append(_TIMES.get(factor["unit"], factor["unit"]) + (f"^{power}" if power != "1" else ""))
        else:
            over.append(factor["unit"] + (factor["power"] or ""))
        place = factor.end()
    if not under:
        return None
    words = [(read_per(unit) or "") for unit in under]
    if not all(words):
        return None
    if over:
        return match["number"] + match["gap"] + "·".join(over) + "".join(f"/{unit}" for unit in under)
    return match["number"] + " " + " ".join(words)


POWERS = [
    rule(
        "unit.product",
        rf"(?P<number>{RUN}[0-9.,]{{0,15}}[0-9])(?P<gap>[ \u00a0\u2009\u202f]?)"
        rf"(?=[^\s0-9]{{1,6}}[\s·⋅∙*⁻^²³\u2212-]){_PRODUCT}(?![A-Za-z0-9⁻])",
        _read_product,
        parted=False,
    ),
]
"""Units with negative powers, which are raised characters before they are folded."""

DOTTED = [
    rule(
        "unit.dotted",
        rf"{RUN}(?<![A-Za-z.])(?P<number>{NUMBER})(?P<gap>[ -]?)(?P<unit>(?:[a-z]\.){{1,4}}[a-z]\b\.?)(?![A-Za-z0-9])",
        _read_dotted,
        parted=False,
    ),
]
"""Units with stops, which must be read before other abbreviations."""

RULES = [
    rule(
        "unit.range",
        rf"{RUN}{_SOON}(?P<low>{NUMBER} ?(?:{either(units())}))(?: ?— ?|-)(?={NUMBER} ?(?:{either(units())}){_AFTER})",
        r"\g<low> to ",
    ),
    rule(
        "unit.per",
        rf"(?P<before>{RUN}{NUMBER} [a-z]{{3,15}})/(?P<unit>{either(table('units')['per'])})(?![A-Za-z0-9/])",
        lambda match: f"{match['before']} {read_per(match['unit'])}",
    ),
    rule(
        "unit.degrees",
        r"(?<![0-9A-Za-z] )(?<![0-9A-Za-z])°(?P<scale>[CF])(?![A-Za-z0-9])",
        lambda match: "degrees Celsius" if match["scale"] == "C" else "degrees Fahrenheit",
    ),
    rule(
        "unit.angle",
        r"(?<![0-9.])(?P<degrees>[0-9]{1,3})° ?(?P<minutes>[0-9]{1,2})'"
        r'(?: ?(?P<seconds>[0-9]{1,2}(?:\.[0-9]{1,3})?)")?(?: ?(?P<point>[NSEW])\b)?',
        _read_angle,
    ),
    rule(
        "unit.temperature",
        rf"{SIGN}{RUN}(?<![A-Za-z$£€.,])(?P<number>[1-9][0-9]{{1,2}}(?:\.[0-9])?)(?P<scale>[FC])(?![A-Za-z0-9'+#-])",
        _read_temperature,
    ),
    rule(
        "unit.feet",
        r"(?<![0-9.,/'A-Za-z])(?P<feet>[0-9]{1,3})' ?[x\u00d7] ?(?P<other>[0-9]{1,3})'(?![0-9A-Za-z])",
        lambda match: f"{number(match['feet'])} by {number(match['other'])} feet",
    ),
    rule(
        "unit.area",
        rf"{RUN}(?P<number>{NUMBER}) ?in\^(?P<power>[23])(?![0-9])",
        lambda match: (
            f"{number(match['number'])} {'square' if match['power'] == '2' else 'cubic'} "
            f"{'inch' if match['number'] == '1' else 'inches'}"
        ),
    ),
    rule(
        "unit.font",
        r"(?<![0-9.])(?P<size>[0-9]{1,3})[ -]?pt(?= (?:font|type|text|size|bold|Arial|Times|Helvetica|Calibri))",
        lambda match: f"{number(match['size'])} point",
    ),
    rule(
        "unit.frequency",
        r"(?<![0-9A-Za-z.,])(?P<number>[0-9]{1,3})x/(?P<unit>day|week|wk|month|mo|year|yr|hour|hr)(?![A-Za-z])",
        lambda match: f"{number(match['number'])} times {read_per(match['unit'])}",
    ),
    rule(
        "unit.feet",
        r"""(?<![0-9.,/])(?P<feet>[0-9]{1,3})' ?-?(?P<inches>[0-9]{1,2})[ -]?(?P<over>[0-9]{1,2})/(?P<under>2|4|8|16)"""
        r"""(?:"|'')""",
        _read_feet_inches_over,
    ),
    rule(
        "unit.feet",
        r"""(?<![0-9.,/])(?P<feet>[0-9]{1,3})' ?-?(?P<inches>[0-9]{1,2}(?:\.[0-9])?)(?:"|''| ?in\b\.?)""",
        _read_feet_inches,
    ),
    rule("unit.feet", r"(?<![0-9.,/'])(?P<feet>[3-8])'(?P<inches>1[01]|[0-9])(?![0-9A-Za-z'])", _read_feet_inches),
    rule("unit.feet", r"(?<![0-9.,/'])(?P<feet>[0-9]{1,3})'(?= [a-z\u00d7])", _read_feet),
    rule(
        "unit.inches",
        r"(?<![0-9.,/])(?:(?P<whole>[0-9]{1,3})[ -])?(?P<over>[0-9]{1,2})/(?P<under>2|4|8|16|32|64)"
        r'(?:"| in\.|-inch\b| inch\b)(?:(?P<noun>(?= ?[a-z])(?! ?(?:thick|wide|tall|long|deep|high|thin|across|apart|by'
        r"|in|of|and|or|to|from|is)\b))|(?=[\s.,;)]|$))",
        _read_fraction_inches,
    ),
    rule(
        "unit.inches",
        r"(?<![0-9.,/'])(?P<number>[0-9]{1,4}(?:\.[0-9]{1,3})?)"
        r'"(?:(?P<sure> ?[x\u00d7] ?(?=[0-9])| by (?=[0-9]))|(?![0-9A-Za-z]))',
        _read_inches,
    ),
    rule(
        "unit.inches",
        r"(?<![0-9.,/'])(?P<number>[0-9]{1,4}(?:\.[0-9]{1,3})?) ?in(?:\.(?=[,;)]| [a-z(0-9=+x])|(?=\.$)|(?=[,;)]|$)|"
        r"(?= ?[x\u00d7] ?[0-9]|/)|(?<=[0-9]in)(?![A-Za-z0-9])|(?<=(?:ft|t\.) [0-9] in)(?![A-Za-z0-9])|(?<=(?:ft"
        r"|t\.) [0-9]{2} in)(?![A-Za-z0-9]))",
        lambda match: with_unit(match["number"], ("inch", "inches")),
    ),
    rule("unit.bearing", rf"{SIGN}{RUN}(?P<number>{NUMBER})° ?(?P<point>[NSEW])(?![A-Za-z0-9])", _read_bearing),
    rule(
        "unit.fraction",
        rf"(?<![0-9/.,])(?:(?P<whole>[0-9]{{1,4}})[ -])?(?P<over>[0-9]{{1,3}})/(?P<under>[0-9]{{1,3}})[ -]?"
        rf"(?P<unit>{either(units())}){_AFTER}{_STOP}",
        _read_fraction_unit,
    ),
    rule(
        "unit.power",
        rf"{SIGN}{RUN}(?P<base>[0-9]{{1,9}})\^(?P<exponent>-?[0-9]{{1,3}}) {_UNIT}{_AFTER}{_STOP}",
        _read_power_unit,
    ),
    rule(
        "unit.number",
        rf"{SIGN}{RUN}{_SOON}(?<![\^])(?<!\^-)(?P<number>[0-9]{{1,3}},[0-9]{{1,2}}(?![0-9,])|{NUMBER})"
        rf"(?P<gap>[ -]?){_UNIT}{_AFTER}{_STOP}",
        _read_unit,
    ),
    rule(
        "unit.bare",
        rf"(?<![A-Za-z0-9/.'])(?:km|m|mi|kg|g|mg|μg|ug|GB|MB|kB|KB|Mb|Gb|L|l|mL|ml|J|W|N|ft|lb){_PER_PART}"
        rf"(?![A-Za-z0-9/'])",
        _read_bare_unit,
    ),
]
