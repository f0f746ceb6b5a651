"""Telephone, card and bank numbers, ISBN: digits that are read one by one.

Upstream: text whose addresses are read.  Downstream: the rules of dates, which take other digits.
"""

from __future__ import annotations

import re

from marstts.text.numbers.dates import MONTHS
from marstts.text.numbers.words import END, RUN, one_by_one, spelled, two_digit_year, year_or_number
from marstts.text.rules.engine import rule

_MIN_TELEPHONE_DIGITS = 7
_UNIT = re.compile(
    r" (?:kg|km|m|g|t|mi|ft|km/h|ha|people|inhabitants|employees|staff|men|women"
    r"|children|troops|cattle|sheep|fish|EUR|USD|GBP|kr|Euros?|euros?|dollars?)\b| [€£$%]"
    r"| (?!is |was |has |his |this |times |plus |days |hours )[a-z]{2,}s\b"
)


def _read_telephone(match: re.Match[str]) -> str | None:
    if match[0].startswith("+") and sum(map(str.isdigit, match[0])) < _MIN_TELEPHONE_DIGITS:
        return None
    plus = "plus " if match[0].startswith("+") else ""
    return plus + one_by_one(match[0])


def _read_groups(match: re.Match[str]) -> str | None:
    """Groups of digits with spaces between: a telephone or card number, or thousands."""
    if match.string[: match.start()][-1:].isalpha():
        return None  # log10 100
    groups = re.findall("[0-9]+", match[0])
    lengths = [len(group) for group in groups]
    if len(groups[0]) <= 3 and groups[0][0] != "0" and set(lengths[1:]) == {3}:
        is_thousands = all(group == "000" for group in groups[1:]) or len(groups) > 2
        is_thousands = is_thousands or (len(groups[0]) < 3 and groups[1][1:] == "00")
        is_amount = len(groups) == 2 and _UNIT.match(match.string, match.end()) is not None
        return ",".join(groups) if is_thousands or is_amount else None
    if lengths == [3, 4] and _CALLING.search(match.string[max(match.start() - 80, 0) : match.start()]):
        return one_by_one(match[0])
    starts_with_zero = groups[0][0] == "0" and len(groups[0]) > 1
    are_years = all(len(group) == 4 and 1100 <= int(group) <= 2099 for group in groups)
    is_card = len(groups) >= 3 and set(lengths) == {4} and not are_years
    is_known = lengths in ([5, 5], [3, 3, 4], [5, 6], [4, 6, 5], [4, 3, 3], [4, 3, 4], [3, 4, 4], [2, 5, 5])
    is_known = is_known or (lengths == [1, 3, 3, 4] and groups[0] in ("0", "1"))
    if sum(lengths) >= _MIN_TELEPHONE_DIGITS and (starts_with_zero or is_card or is_known):
        return one_by_one(match[0])
    return None


def _read_isbn(match: re.Match[str]) -> str:
    groups = re.findall("[0-9]+|X", match["digits"])
    return f"{match['name']} " + ", ".join("X" if group == "X" else one_by_one(group) for group in groups)


def _read_code(match: re.Match[str]) -> str:
    return f"{match['before']}{one_by_one(match['digits'])}"


def _read_mixed_groups(match: re.Match[str]) -> str:
    return spelled(*match[0].split())


def _read_expiry(match: re.Match[str]) -> str:
    digits = match["year"]
    year = year_or_number(digits) if len(digits) == 4 else two_digit_year(digits)
    return f"expires {MONTHS[int(match['month']) - 1]} {year}"


def _read_emergency(match: re.Match[str]) -> str:
    return re.sub("[0-9]+", lambda digits: one_by_one(digits[0]), match[0])


def _read_known_emergency(match: re.Match[str]) -> str | None:
    """911 anywhere but after the name of a car, the others where calling is spoken of."""
    before = match.string[max(match.start() - 160, 0) : match.start()]
    is_call = _CALLING.search(before) is not None if match[0] != "911" else not before.endswith("Porsche ")
    return one_by_one(match[0]) if is_call else None


_CALL_WORDS = r"[Cc]all|[Dd]ial|[Tt]el|[Pp]hone|[Rr]ing|[Ee]mergency|[Tt]ext|[Tt]elephone|[Hh]otline|[Ff]ax"
_CALLING = re.compile(rf"\b(?:{_CALL_WORDS})\b[^.?]*$")
_DATE_LIKE = re.compile(
    r"(?:1[0-9]|20)[0-9]{2}[ .-][0-9]{1,2}[ .-][0-9]{1,2}|[0-9]{1,2}[ .-][0-9]{1,2}[ .-](?:(?:1[0-9]"
    r"|20)[0-9]{2}|[0-9]{2})"
)
_MAX_TELEPHONE_DIGITS = 15


def _read_called(match: re.Match[str]) -> str | None:
    """Groups of digits after a word such as "call": a telephone number in whatever groups, unless it is a date."""
    digits = sum(map(str.isdigit, match["digits"]))
    if not 6 <= digits <= _MAX_TELEPHONE_DIGITS or _DATE_LIKE.fullmatch(match["digits"]):
        return None
    return match["before"] + one_by_one(match["digits"])


_CALLED = (
    rf"\b(?:{_CALL_WORDS}|[Mm]obile|[Cc]ell|[Ww]hats[Aa]pp|SMS|[Ll]andline|[Cc]ontact|[Pp]h|[Rr]each|[Nn]umber)\.?:?"
    r"(?: us| me| him| her| them| number)?(?: at| on| is| was)?(?: the)?:? "
)

TELEPHONES = [
    rule(
        "number.telephone",
        rf"(?P<before>{_CALLED})(?P<digits>\(?[0-9]{{1,5}}\)?(?:[ .-][0-9]{{2,8}}){{1,5}})"
        rf"(?![0-9A-Za-z%€$£°/:-]|[.,][0-9]| [0-9])",
        _read_called,
    ),
    rule(
        "number.telephone",
        r"(?<![0-9A-Za-z.,/:$£€-])(?:[0-9]{1,3}-)?[0-9]{2,3}-[0-9]{3,4}-[0-9]{4}(?![0-9A-Za-z/-]|[.,:][0-9])",
        _read_telephone,
    ),
    rule(
        "number.telephone", r"(?<![0-9A-Za-z.,/-])0[1-9](?:[.-][0-9]{2}){4}(?![0-9A-Za-z-]|[.,][0-9])", _read_telephone
    ),
    rule("number.telephone", r"(?<![0-9A-Za-z.,/-])0[0-9]{2,4}/[0-9]{5,8}(?![0-9A-Za-z/-]|[.,][0-9])", _read_telephone),
    rule("number.telephone", r"(?<![0-9.,-])0[0-9]{2,4}(?:-[0-9]{3,4}){2}(?![0-9-])", _read_telephone),
    rule(
        "number.code",
        r"(?P<before>\b(?:SKU|P/N|S/N|[Pp]art (?:no\.?|number)):? #?)"
        r"(?P<code>[0-9A-Z]{1,10}(?:[-/][0-9A-Z]{1,10}){1,4})(?![A-Za-z0-9-])",
        lambda match: match["before"] + spelled(*re.split("[-/]", match["code"])),
    ),
    rule(
        "number.code",
        r"(?<![\w&])#(?P<code>[0-9]{2,10}(?:-[0-9]{2,10}){1,4})(?![0-9A-Za-z-])",
        lambda match: "number " + spelled(*match["code"].split("-")),
    ),
    rule(
        "number.tracking",
        r"(?<=racking: )(?P<code>[0-9A-Z]{2,6}(?: [0-9A-Z]{2,6}){2,7})(?![A-Za-z0-9])",
        _read_mixed_groups,
    ),
    rule(
        "number.isbn",
        r"(?P<name>ISBN(?:-1[03])?|ISSN|EAN|UPC|IBAN):? ?(?P<digits>[0-9](?:[0-9X]|[ -](?=[0-9X])){6,16})(?![0-9])",
        _read_isbn,
    ),
    rule(
        "number.iban",
        r"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?: [A-Z0-9]{4}){3,7}(?: [A-Z0-9]{1,3})?(?![A-Za-z0-9])",
        _read_mixed_groups,
    ),
    rule(
        "number.sort-code",
        r"(?P<before>\b(?:[Ss]ort code|[Zz]ip(?: code)?|ZIP(?: code)?):? )(?P<digits>[0-9]{2}-[0-9]{2}-[0-9]{2}"
        r"|[0-9]{5}-[0-9]{4})"
        r"(?![0-9-])",
        _read_code,
    ),
    rule(
        "number.expiry",
        r"(?P<before>\b[Ee]xp(?:\.|ires|iry)?(?: date)?:? |[Vv]alid (?:thru|until|through) )(?P<month>0?[1-9]"
        r"|1[0-2])/(?P<year>20[0-9]{2}|[0-9]{2})(?![0-9/])",
        _read_expiry,
    ),
    rule("number.telephone", r"\+[0-9]{1,3}(?:[ .-]?\(?[0-9]{1,5}\)?){2,6}(?![0-9])", _read_telephone),
    rule(
        "number.telephone",
        rf"{RUN}(?:[0-9][ -])?\([0-9]{{3,5}}\)[ -]?[0-9]{{3,4}}(?:[ .-][0-9]{{3,4}})?{END}",
        _read_telephone,
    ),
    rule("number.telephone", rf"{RUN}(?:[0-9][ .-])?[0-9]{{3}}[.-][0-9]{{3}}[.-][0-9]{{4}}{END}", _read_telephone),
    rule(
        "number.telephone",
        r"(?<![0-9A-Za-z.,$£€-])\(0[0-9]{2,4}\) ?[0-9]{2,8}(?:[ -][0-9]{1,4}){0,3}(?![0-9-]|[.,][0-9])",
        _read_telephone,
    ),
    rule("number.telephone", r"(?<![0-9.,$£€-])[0-9]{3}-[0-9]{4}(?![0-9-])", _read_telephone),
    rule("number.telephone", r"(?<![0-9.,$£€-])(?<![0-9] )0[0-9]{2,4}[ -][0-9]{3,8}(?![0-9-]| [0-9])", _read_telephone),
    rule("number.telephone", r"(?<![0-9-])1-8[0-9]{2}(?=-[A-Z])-", lambda match: one_by_one(match[0]) + ", "),
    rule("number.groups", r"(?<![0-9.,$£€-])[0-9]{4}(?:-[0-9]{4}){2,4}(?![0-9-])", _read_telephone),
    rule("number.groups", r"(?<![0-9.,-])[0-9]{3}-[0-9]{2}-[0-9]{4}(?![0-9-])", _read_telephone),
    rule("number.groups", r"(?<![0-9.,:/$£€-])[0-9]{1,5}(?: [0-9]{2,6}){1,6}(?![0-9.,:/%-]*[0-9])", _read_groups),
    rule(
        "number.emergency",
        rf"\b(?:{_CALL_WORDS})\.?:? (?:[0-9]{{3}}(?:, | or | and )){{0,5}}[0-9]{{3}}(?![0-9A-Za-z.-]*[0-9])",
        _read_emergency,
    ),
    rule(
        "number.emergency",
        rf"(?P<before>\b(?:{_CALL_WORDS})\.?:?(?: us| me)?(?: at| on)? )(?P<digits>[0-9]{{5,11}})(?![0-9A-Za-z]"
        rf"|[.,-][0-9])",
        _read_code,
    ),
    rule(
        "number.emergency",
        r"(?<![0-9.,$£€:/-])(?:911|999|112|988|000|116"
        r"|(?:10[158]|11[013-9]|19[0-3]|[2-8]11)(?=[.,;:!?)]|$| in [A-Z]| for | or | \())"
        r"(?![0-9/%-]|[.,:][0-9])",
        _read_known_emergency,
    ),
]
