"""Amounts of money: $5.50 -> five dollars and fifty cents, £3m -> three million pounds, USD 30 -> thirty dollars.

Upstream: text whose dates and identifiers are read.  Downstream: the rules of units and plain numbers.
"""

from __future__ import annotations

import re

from marstts.text.numbers.units import read_per
from marstts.text.numbers.words import (
    NUMBER,
    RUN,
    WHOLE,
    is_attribute,
    number,
    with_unit,
)
from marstts.text.rules.engine import rule
from marstts.text.rules.tables import either, table

_BEFORE_ONLY = {"Rs", "Rs."}
_SYMBOLS = table("currencies")["symbols"]
_CODES = table("currencies")["codes"]
_SCALES = table("currencies")["scales"]

_SYMBOL = rf"(?P<symbol>{either(_SYMBOLS)})"
_CODE = rf"(?P<symbol>{either(_CODES)})"
_SIGN = r"(?P<sign>(?<![\w.)-])-)?"
_SCALE = rf"(?:[ -]?(?P<scale>{either(_SCALES)}|[Mm]illion|[Bb]illion|[Tt]rillion)(?![A-Za-z0-9]))?"
_PER = r"(?P<per>/(?:sq\.? ?(?:ft|m|mi|yd|in)|[A-Za-z]{1,8}(?:\^[23](?![0-9]))?|100 ?k?[mg])(?![A-Za-z]))?"
_AMOUNT = rf"(?P<number>{WHOLE}[.,][0-9]{{2}}(?![0-9])|[0-9]{{1,3}}(?:\.[0-9]{{3}})+,[0-9]{{2}}(?![0-9])|{NUMBER})"


_SOON_SYMBOL = r"(?=[0-9.,]{1,40}[A-Za-z -]{0,11}[£€¥₹₩₽₺₴₪₫฿₦₱₿$])"
_SOON_CODE = r"(?=[0-9.,]{1,40}[A-Za-z -]{0,11}[A-Zrs])"
"""A quick look for what the pattern of an amount takes long to miss."""


def _read_money(match: re.Match[str]) -> str:
    minus = "minus " if match["sign"] else ""
    one, many, *hundredths = (_SYMBOLS | _CODES)[match["symbol"]]
    groups = match.groupdict()
    if is_attribute(match) and not groups.get("per"):
        many, hundredths = one, [hundredths[0], hundredths[0]]
    currency = [one, many, *hundredths]
    per = read_per(groups["per"][1:].replace("sq.", "sq")) if groups.get("per") else None
    after = f" {per}" if per else (groups.get("per") or "").replace("/", " ")
    if groups.get("low"):
        low = number(_with_thousands(groups["low"], match)) + (
            f" {_SCALES[groups['low_scale']]}" if groups["low_scale"] else ""
        )
        return f"{minus}{low} to {_amount(_with_thousands(match['number'], match), match['scale'], currency)}{after}"
    return f"{minus}{_amount(_with_thousands(match['number'], match), match['scale'], currency)}{after}"


def _amount(numeral: str, scale: str | None, currency: list[str]) -> str:
    one, many, one_hundredth, many_hundredths = currency
    numeral = _plain_decimals(numeral)
    if scale:
        return f"{number(numeral)} {_SCALES.get(scale, scale.lower())} {many}"
    whole, _, decimals = numeral.partition(".")
    if len(decimals) != 2 or not many_hundredths:
        return with_unit(numeral, (one, many))
    amounts = []
    if whole.strip("0") or not int(decimals):
        amounts.append(with_unit(whole or "0", (one, many)))
    if int(decimals):
        amounts.append(with_unit(str(int(decimals)), (one_hundredth, many_hundredths)))
    return " and ".join(amounts)


_WITH_POINTS = frozenset(
    (
        "€",
        "EUR",
        "kr",
        "SEK",
        "NOK",
        "DKK",
        "CHF",
        "PLN",
        "CZK",
        "HUF",
        "RUB",
        "₽",
        "TRY",
        "₺",
        "R$",
        "BRL",
        "₫",
        "UAH",
        "₴",
    )
)
"""Currencies of countries that part thousands with a point."""

_POINTED = re.compile(r"[1-9][0-9]{0,2}\.[0-9]{3}")
_PRICED = re.compile(r" ?(?:/|per |an? )(?:l|lit(?:er|re)|kWh|kg|m3|gallon|unit|share)\b| (?:each|apiece)\b")
"""What has a price with a thousandth of a euro."""


def _with_thousands(numeral: str, match: re.Match[str]) -> str:
    """€99.000 -> 99,000; a price of fuel keeps its three decimals."""
    groups = match.groupdict()
    is_price = groups.get("per") or _PRICED.match(match.string, match.end())
    if match["symbol"] in _WITH_POINTS and _POINTED.fullmatch(numeral) and not is_price:
        return numeral.replace(".", ",")
    return numeral


def _plain_decimals(numeral: str) -> str:
    """A numeral without thousands separators and with a point before its decimals: 1.234,50 -> 1234.50."""
    if re.fullmatch(r"[0-9.]+,[0-9]{2}", numeral):
        return numeral.replace(".", "").replace(",", ".")
    return numeral.replace(",", "")


_RANGE = rf"(?P<low>{NUMBER})(?P<low_scale>{either(_SCALES)})?(?: ?(?:-|—) ?| to )"

RULES = [
    rule("money.span", rf"(?P<low>{_SYMBOL}{NUMBER}(?:{either(_SCALES)})?)(?: ?— ?|-)(?=[$£€¥₹][0-9])", r"\g<low> to "),
    rule("money.range", rf"{_SIGN}{_SYMBOL}{_RANGE}(?![$£€¥])(?P<number>{NUMBER}){_SCALE}{_PER}", _read_money),
    rule("money.range", rf"{_SIGN}{_CODE} ?{_RANGE}(?P<number>{NUMBER}){_SCALE}{_PER}", _read_money),
    rule("money.symbol", rf"{_SIGN}{_SYMBOL} ?{_AMOUNT}{_SCALE}{_PER}", _read_money),
    rule("money.code", rf"(?<![A-Za-z]){_SIGN}{_CODE} ?{_AMOUNT}{_SCALE}{_PER}", _read_money),
    rule(
        "money.symbol",
        rf"{_SIGN}{RUN}{_SOON_SYMBOL}{_AMOUNT}{_SCALE} ?(?P<symbol>[£€¥₹₩₽₺₴₪₫฿₦₱₿]|\$(?![0-9]))(?![0-9]){_PER}",
        _read_money,
    ),
    rule(
        "money.code",
        rf"{_SIGN}{RUN}{_SOON_CODE}{_AMOUNT}{_SCALE} ?(?P<symbol>{either(set(_CODES) - _BEFORE_ONLY)})(?![A-Za-z0-9])"
        rf"{_PER}",
        _read_money,
    ),
]
