"""Words of numbers: 21 -> twenty-one, 1984 -> nineteen eighty-four, 007 -> zero zero seven.

Upstream: the modules of rules, which find the numerals.  Downstream: `num2words`.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_CARDINAL_DIGITS = 15
"""Longer numerals are read digit by digit."""

MIN_UNGROUPED_IDENTIFIER_DIGITS = 8
"""Longer runs of digits without separators are telephone or account numbers, unless they end in 000."""

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

SCALES = ("", "thousand", "million", "billion", "trillion")
"""Names of the groups of three digits, from the right; `MAX_CARDINAL_DIGITS` has as many."""

FRACTIONS = {2: ("half", "halves"), 4: ("quarter", "quarters")}
"""Denominators whose name is not their ordinal."""

WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,8}(?![0-9])|[0-9]+)"
"""Pattern of a whole number, with or without thousands separators."""

NUMBER = rf"(?:{WHOLE}(?:\.[0-9]+)?|(?<![A-Za-z0-9.])\.[0-9]+)"
"""Pattern of a number with optional decimals."""

RUN = r"(?<![0-9])"
"""Pattern of a position where a run of digits may start."""

END = r"(?![0-9])"
SIGN = r"(?P<sign>(?<![\w.)-])-)?"


@lru_cache(maxsize=4096)
def cardinal(digits: str) -> str:
    """Words of a whole number written in digits, with or without thousands separators."""
    digits = digits.replace(",", "")
    is_code = len(digits) > 1 and digits.startswith("0")
    is_identifier = len(digits) >= MIN_UNGROUPED_IDENTIFIER_DIGITS and not digits.endswith("000")
    if is_code or is_identifier or len(digits) > MAX_CARDINAL_DIGITS:
        return one_by_one(digits)
    return _named(int(digits))


@lru_cache(maxsize=4096)
def _named(number: int, to: str = "cardinal") -> str:
    """Words of a number, of a rank (`ordinal`) or of a `year`."""
    from num2words import num2words  # 0.06 s; 0.1 ms for a number, so that it is asked for small ones

    rest = number % 1000
    if number < 100 or (to == "ordinal" and not rest) or (to == "year" and number >= 10_000):
        return num2words(number, to=to).replace(",", "")
    if number < 1000 or to == "year":
        return _named_of_hundreds(*divmod(number, 100), to)
    groups = []
    for scale in SCALES:  # each group alone, as a text has few different ones
        number, group = divmod(number, 1000)
        if group and scale:
            groups.append(f"{_named(group)} {scale}")
    last = [_named(rest, to)] if rest else []
    return " ".join(groups[::-1]) + (" and " if 0 < rest < 100 else " " if rest else "") + "".join(last)


def _named_of_hundreds(hundreds: int, rest: int, to: str) -> str:
    """The same of at least 100 and less than 1000, or of a year of three or four digits."""
    if to == "year" and rest and (rest >= 10 or hundreds % 10):
        return f"{_named(hundreds)} {'oh-' if rest < 10 else ''}{_named(rest)}"
    if to == "year" and not hundreds % 10:
        return _named(100 * hundreds + rest)
    return f"{_named(hundreds)} hundred{f' and {_named(rest, to)}' if rest else 'th' if to == 'ordinal' else ''}"


def grouped(digits: str) -> str:
    """Words of a whole number whose separators show that it is no identifier: 1,234,567,890."""
    digits = digits.replace(",", "")
    return _named(int(digits)) if len(digits) <= MAX_CARDINAL_DIGITS else one_by_one(digits)


def ordinal(digits: str) -> str:
    """Words of a rank written in digits: 21 -> twenty-first."""
    digits = digits.replace(",", "")
    if len(digits) > MAX_CARDINAL_DIGITS:
        return one_by_one(digits)
    return _named(int(digits), "ordinal")


def year(digits: str) -> str:
    """1984 -> nineteen eighty-four, 2005 -> two thousand and five."""
    return _named(int(digits), "year")


@lru_cache(maxsize=4096)
def one_by_one(digits: str) -> str:
    """Each digit by its name; other characters part groups, which are read with a pause between them."""
    groups = re.findall(r"[0-9]+", digits)
    return ", ".join(" ".join(DIGITS[int(digit)] for digit in group) for group in groups)


def spelled(*groups: str) -> str:
    """Letters and the names of digits one by one, with a pause between groups."""
    return ", ".join(" ".join(DIGITS[int(each)] if each.isdigit() else each for each in group) for group in groups)


def in_pairs(digits: str) -> str:
    """Three or four digits as flights and models are read: 2490 -> twenty-four ninety, 737 -> seven thirty-seven."""
    if len(digits) not in (3, 4) or digits.startswith("0"):
        return one_by_one(digits) if digits.startswith("0") else cardinal(digits)
    head, tail = digits[:-2], digits[-2:]
    if digits.endswith("00"):
        return cardinal(digits) if digits.endswith("000") else f"{cardinal(head)} hundred"
    return f"{cardinal(head)} {'oh ' if tail[0] == '0' else ''}{cardinal(str(int(tail)))}"


def number(numeral: str) -> str:
    """A number with optional separators and decimals: 1,002.5 -> one thousand and two point five."""
    whole, point, decimals = numeral.partition(".")
    if not point:
        return grouped(whole) if "," in whole else cardinal(whole)
    return f"{cardinal(whole) + ' ' if whole else ''}point {one_by_one(decimals)}"


def year_or_number(numeral: str) -> str:
    """Four digits from 1100 to 2099 as a year, all else as a number."""
    is_year = len(numeral) == 4 and numeral.isdigit() and 1100 <= int(numeral) <= 2099
    return year(numeral) if is_year else number(numeral)


def two_digit_year(digits: str) -> str:
    """The year that two digits stand for: 69 and later are of the twentieth century."""
    return year(("20" if int(digits) < 69 else "19") + digits)


_DETERMINER = re.compile(
    r"(?<![A-Za-z'])(?:(?:an?|the|th(?:is|at|ese|ose)|his|her|my|your|our|their|its|every|each|another|any|no|some|several|both"
    r"|two|three|four|five|six|ten|[0-9]{1,2}|(?!(?:it|that|what|there|here|who|where|let|how|he|she)')[a-z]{2,15}'s?)"
    r"(?: (?:new|old|crisp|shiny|cheap|little|small|big|nice|tiny|mere|whole|same|first|second|last"
    r"|single|free|fake|plain"
    r"|simple|basic|good|great|cool|lovely|fancy|extra|full|flat|other|red|blue|green|black|white|own|usual|daily|weekly"
    r"|monthly|annual))?) \Z",
    re.IGNORECASE,
)
_GIVEN_HER = re.compile(
    r"\b(?:gave|give[sn]?|giving|paid|pays?|paying|owe[sd]?|owing|lent|lends?|sent|sends?|costs?|charged?|charges|handed|loaned"
    r"|tipped|offered|offers?|earned|saved?|saves|wired|fined|left|slipped|promised|refunded|won|made|got|gets?|took|takes?"
    r"|showed|allowed|bet|asked) her \Z",
    re.IGNORECASE,
)
"""Where "her" is who gets the amount."""

_NOUN = re.compile(
    r" (?!(?:and|or|to|for|per|in|of|from|at|on|with|as|by|than|but|is|was|are|were|the|if|when|while|off|out|over"
    r"|under|up|down|plus|minus|more|less|later|ago|away|each|every|apart|before|after|into|because|that|who|which|you|she"
    r"|they|has|had|have|will|would|can|could|should|may|might|must|did|does|not|now|then|today|tonight|tomorrow|yesterday"
    r"|back|again|instead|here|there|already|still|only|just|also|too|even|once|soon|first|last|left|total|altogether"
    r"|until|since|without|within|through|during|between|against|toward|towards|about|across|around|along|beyond|above|below"
    r"|buys|goes|covers|gets|pays|means|includes|comes|makes|helps|adds|works|lasts|went|came|bought|paid|made|got|took|covered"
    r"|became|seemed|seems|looks|looked|would've|extra|cheaper|richer|poorer|short|apiece|their|his|her|our|your|its|any"
    r"|some|this|these|those|what|why|how|where|thick|wide|tall|long|deep|high|north|south|east|west|times)\b)[a-z]{3}"
)
_JOINED = re.compile("-(?:an?|per|the)-[a-z]|-(?:bill|note|coin|ticket|plan|meal)")


def is_attribute(amount: re.Match[str]) -> bool:
    """Whether an amount stands between an article or the like and a noun, which needs the singular: "a $20 bill"."""
    text, start, end = amount.string, amount.start(), amount.end()
    if _JOINED.match(text, end):
        return True
    before = text[max(start - 32, 0) : start]
    return (
        _NOUN.match(text, end, end + 14) is not None
        and _DETERMINER.search(before) is not None
        and _GIVEN_HER.search(before) is None
    )


def with_unit(numeral: str, unit: tuple[str, str] | list[str]) -> str:
    """A number and its unit, in the singular after 1."""
    one, many = unit[0], unit[1]
    return f"{number(numeral)} {one if numeral == '1' else many}"


def fraction(over: str, under: str) -> str:
    """3/4 -> three quarters; unusual denominators are read "over"."""
    is_reading = int(over) > int(under) > 16  # 98/60: blood pressure, not sixtieths
    if len(under) > 2 or len(over) > 2 or int(under) < 2 or is_reading:
        return f"{number(over)} over {number(under)}"
    one, many = FRACTIONS.get(int(under), (ordinal(under), ordinal(under) + "s"))
    return f"{number(over)} {one if int(over) == 1 else many}"


def mixed_number(whole: str, over: str, under: str) -> str:
    """2 1/2 -> two and a half."""
    if int(over) >= int(under) or len(under) > 2 or int(under) < 2:
        return f"{number(whole)} {fraction(over, under)}"
    one = FRACTIONS.get(int(under), (ordinal(under), ""))[0]
    part = f"{'an' if one.startswith('eigh') else 'a'} {one}" if int(over) == 1 else fraction(over, under)
    return f"{number(whole)} and {part}"


def decade(digits: str) -> str:
    """1980 -> nineteen eighties, 80 -> eighties."""
    words = year_or_number(digits)
    return words[:-1] + "ies" if words.endswith("y") else words + "s"
