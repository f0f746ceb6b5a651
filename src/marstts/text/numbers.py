"""Numerals read out: "$3.50 on 5 May 1984 at 4:30" -> "three dollars and fifty cents on the fifth of May ...".

Upstream: text whose characters are folded (`characters`).  Downstream: `normalize`.
Each rule is a pattern and a function from its match to words.  Rules are tried over the whole text one after another,
the most specific first; a numeral that no rule claims is a plain number.  Every pattern starts only where a run of
digits starts and repeats only what is bounded or cannot match twice, so that the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from num2words import num2words

MAX_CARDINAL_DIGITS = 15
"""Longer numerals are read digit by digit."""

MIN_UNGROUPED_IDENTIFIER_DIGITS = 10
"""From here on, digits without separators are a telephone or account number, unless they end in 000."""

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

SCALES = {
    "k": "thousand", "thousand": "thousand",
    "m": "million", "mn": "million", "mln": "million", "million": "million",
    "b": "billion", "bn": "billion", "billion": "billion",
    "tn": "trillion", "trillion": "trillion",
}  # fmt: skip

CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"),
    "¥": ("yen", "yen", "sen", "sen"),
    "₹": ("rupee", "rupees", "paisa", "paise"),
}
"""Symbol -> one and many of the unit, one and many of its hundredth."""

UNITS = {
    "%": ("percent", "percent"),
    "¢": ("cent", "cents"),
    "°C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "°": ("degree", "degrees"),
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "kph": ("kilometer per hour", "kilometers per hour"),
    "mph": ("mile per hour", "miles per hour"),
    "m/s": ("meter per second", "meters per second"),
    "km": ("kilometer", "kilometers"),
    "cm": ("centimeter", "centimeters"),
    "mm": ("millimeter", "millimeters"),
    "nm": ("nanometer", "nanometers"),
    "m": ("meter", "meters"),
    "mi": ("mile", "miles"),
    "ft": ("foot", "feet"),
    "yd": ("yard", "yards"),
    "kg": ("kilogram", "kilograms"),
    "mg": ("milligram", "milligrams"),
    "g": ("gram", "grams"),
    "lb": ("pound", "pounds"),
    "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "ml": ("milliliter", "milliliters"),
    "mL": ("milliliter", "milliliters"),
    "l": ("liter", "liters"),
    "L": ("liter", "liters"),
    "hr": ("hour", "hours"),
    "hrs": ("hour", "hours"),
    "h": ("hour", "hours"),
    "min": ("minute", "minutes"),
    "mins": ("minute", "minutes"),
    "sec": ("second", "seconds"),
    "secs": ("second", "seconds"),
    "ms": ("millisecond", "milliseconds"),
    "Hz": ("hertz", "hertz"),
    "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"),
    "GHz": ("gigahertz", "gigahertz"),
    "kB": ("kilobyte", "kilobytes"),
    "KB": ("kilobyte", "kilobytes"),
    "MB": ("megabyte", "megabytes"),
    "GB": ("gigabyte", "gigabytes"),
    "TB": ("terabyte", "terabytes"),
    "dB": ("decibel", "decibels"),
    "V": ("volt", "volts"),
    "W": ("watt", "watts"),
    "kW": ("kilowatt", "kilowatts"),
    "kWh": ("kilowatt hour", "kilowatt hours"),
}
"""Abbreviation after a number -> one, many."""

FRACTIONS = {2: ("half", "halves"), 4: ("quarter", "quarters")}
"""Denominators whose name is not their ordinal."""

Reader = Callable[[re.Match[str]], str]


def read_numbers(text: str) -> str:
    """`text` with every numeral, and the symbols that belong to numerals, read out in words."""
    for pattern, reader in RULES:
        text = pattern.sub(_parted_from_letters(reader), text)
    return text


def cardinal(digits: str) -> str:
    """Words of a whole number written in digits, with or without thousands separators."""
    digits = digits.replace(",", "")
    is_code = len(digits) > 1 and digits.startswith("0")
    is_identifier = len(digits) >= MIN_UNGROUPED_IDENTIFIER_DIGITS and not digits.endswith("000")
    if is_code or is_identifier or len(digits) > MAX_CARDINAL_DIGITS:
        return one_by_one(digits)
    return num2words(int(digits)).replace(",", "")


def ordinal(digits: str) -> str:
    """Words of a rank written in digits: 21 -> twenty-first."""
    digits = digits.replace(",", "")
    if len(digits) > MAX_CARDINAL_DIGITS:
        return one_by_one(digits)
    return num2words(int(digits), to="ordinal").replace(",", "")


def year(digits: str) -> str:
    """1984 -> nineteen eighty-four, 2005 -> two thousand and five."""
    return num2words(int(digits), to="year").replace(",", "")


def one_by_one(digits: str) -> str:
    """Each digit by its name; other characters part groups, which are read with a pause between them."""
    groups = re.findall(r"[0-9]+", digits)
    return ", ".join(" ".join(DIGITS[int(digit)] for digit in group) for group in groups)


def number(numeral: str) -> str:
    """A number with optional separators and decimals: 1,002.5 -> one thousand and two point five."""
    whole, point, decimals = numeral.partition(".")
    if not point:
        return cardinal(whole)
    return f"{cardinal(whole) + ' ' if whole else ''}point {one_by_one(decimals)}"


def _parted_from_letters(reader: Reader) -> Reader:
    """`reader`, its words kept apart from letters that touched the numeral: MP3s -> MP three s."""

    def read(match: re.Match[str]) -> str:
        words, text = reader(match), match.string
        before = " " if match.start() > 0 and text[match.start() - 1].isalnum() else ""
        after = " " if match.end() < len(text) and text[match.end()].isalnum() else ""
        return before + words + after

    return read


def _read_telephone(match: re.Match[str]) -> str:
    plus = "plus " if match[0].startswith("+") else ""
    return plus + one_by_one(match[0])


def _read_date(month: int, day: str, year_digits: str | None) -> str:
    return f"{MONTHS[month - 1]} {ordinal(day)}" + (f", {_read_year_or_number(year_digits)}" if year_digits else "")


def _read_iso_date(match: re.Match[str]) -> str:
    return _read_date(int(match["month"]), match["day"], match["year"])


def _read_slash_date(match: re.Match[str]) -> str:
    """Month first as in America, unless only the second number can be a month."""
    first, second = int(match["first"]), int(match["second"])
    month, day = (first, second) if first <= 12 else (second, first)
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return " ".join(number(part) for part in match[0].split("/"))
    return _read_date(month, str(day), match["year"])


def _read_month_day(match: re.Match[str]) -> str:
    return _read_date(_month_index(match["month"]), match["day"], match["year"])


def _read_day_month(match: re.Match[str]) -> str:
    words = f"{match['article'] or 'the '}{ordinal(match['day'])} of {MONTHS[_month_index(match['month']) - 1]}"
    return words + (f", {_read_year_or_number(match['year'])}" if match["year"] else "")


def _month_index(name: str) -> int:
    return next(index for index, month in enumerate(MONTHS, start=1) if month.startswith(name[:3]))


def _read_time(match: re.Match[str]) -> str:
    hour, minute, second = int(match["hour"]), int(match["minute"]), match["second"]
    half_of_day = _half_of_day(match)
    if hour > 24 or minute > 59:
        return f"{number(match['hour'])} to {number(match['minute'])}"  # a score or a ratio
    words = cardinal(str(hour))
    if minute:
        words += f" {'oh ' if minute < 10 else ''}{cardinal(str(minute))}"
    elif not half_of_day and not second:
        words += " o'clock"
    if second:
        words += f" and {_with_unit(str(int(second)), ('second', 'seconds'))}"
    return words + half_of_day


def _read_hour(match: re.Match[str]) -> str:
    return cardinal(match["hour"]) + _half_of_day(match)


def _half_of_day(match: re.Match[str]) -> str:
    """' A M' or ' P M', keeping the stop of "p.m." where a sentence may end with it."""
    if not match["half"]:
        return ""
    stop = "." if match["half"].endswith(".") and ends_sentence(match.string, match.end()) else ""
    return f" {match['half'][0].upper()} M{stop}"


def ends_sentence(text: str, position: int) -> bool:
    """Whether an abbreviation's stop right before `position` may end a sentence too: a capital or nothing follows."""
    return _SENTENCE_MAY_START.match(text, position) is not None


def _read_money(match: re.Match[str]) -> str:
    """$5.50 -> five dollars and fifty cents, £3m -> three million pounds."""
    minus = "minus " if match["sign"] else ""
    one, many, one_hundredth, many_hundredths = CURRENCIES[match["symbol"]]
    numeral = match["number"].replace(",", "")
    if match["scale"]:
        return f"{minus}{number(numeral)} {SCALES[match['scale'].lower()]} {many}"
    whole, _, decimals = numeral.partition(".")
    if len(decimals) != 2:
        return f"{minus}{_with_unit(numeral, (one, many))}"
    amounts = []
    if _is_nonzero(whole) or not int(decimals):
        amounts.append(_with_unit(whole or "0", (one, many)))
    if int(decimals):
        amounts.append(_with_unit(str(int(decimals)), (one_hundredth, many_hundredths)))
    return minus + " and ".join(amounts)


def _is_nonzero(digits: str) -> bool:
    return bool(digits.strip("0"))


def _read_ordinal(match: re.Match[str]) -> str:
    return ordinal(match["number"])


def _read_decade(match: re.Match[str]) -> str:
    """1980s -> nineteen eighties, '80s -> eighties."""
    words = _read_year_or_number(match["decade"])
    return words[:-1] + "ies" if words.endswith("y") else words + "s"


def _read_fraction(match: re.Match[str]) -> str:
    """3/4 -> three quarters, 2 1/2 -> two and a half; unusual denominators are read "over"."""
    whole, over, under = match["whole"], match["over"], match["under"]
    if len(under) > 2 or len(over) > 2 or int(under) < 2 or (whole and int(over) >= int(under)):
        return f"{number(whole) + ' ' if whole else ''}{number(over)} over {number(under)}"
    one, many = FRACTIONS.get(int(under), (ordinal(under), ordinal(under) + "s"))
    if not whole:
        return f"{number(over)} {one if int(over) == 1 else many}"
    part = f"a {one}" if int(over) == 1 else f"{number(over)} {many}"
    return f"{number(whole)} and {part}"


def _read_dotted(match: re.Match[str]) -> str:
    return " point ".join(cardinal(part) for part in match[0].split("."))


def _read_plain(match: re.Match[str]) -> str:
    minus = "minus " if match["sign"] else ""
    numeral, unit = match["number"], match["unit"]
    if unit:
        return minus + _with_unit(numeral, UNITS[unit])
    return minus + (number(numeral) if minus else _read_year_or_number(numeral))


def _read_year_or_number(numeral: str) -> str:
    is_year = len(numeral) == 4 and numeral.isdigit() and 1100 <= int(numeral) <= 2099
    return year(numeral) if is_year else number(numeral)


def _with_unit(numeral: str, unit: tuple[str, str]) -> str:
    one, many = unit
    return f"{number(numeral)} {one if numeral == '1' else many}"


def _alternatives(words: dict[str, tuple[str, str]]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_SENTENCE_MAY_START = re.compile(r"""["')\]]{0,3}(?:$| ["'(]?[A-Z])""")

_RUN = r"(?<![0-9])"  # where a run of digits may start
_END = r"(?![0-9])"
_WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,8}(?![0-9])|[0-9]+)"
_NUMBER = rf"(?:{_WHOLE}(?:\.[0-9]+)?|(?<![A-Za-z0-9.])\.[0-9]+)"
_MONTH = (
    r"(?P<month>January|February|March|April|May|June|July|August|September|October|November|December"
    r"|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)\b\.?)"
)
_DAY = r"(?P<day>0?[1-9]|[12][0-9]|3[01])(?:st|nd|rd|th)?"
_YEAR = rf"(?P<year>[0-9]{{4}}){_END}"
_HALF = r"(?P<half>[ap]\.m\.|[AP]\.M\.|(?:am|pm|AM|PM)(?![A-Za-z]))"
_CLOCK = r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?"
_SYMBOL = rf"(?P<symbol>[{re.escape(''.join(CURRENCIES))}])"
_SIGN = r"(?P<sign>(?<![\w.)-])-)?"
_SCALE = rf"(?: ?(?P<scale>(?i:{'|'.join(sorted(SCALES, key=len, reverse=True))}))(?![A-Za-z]))?"
_UNIT = rf"(?:[ -]?(?P<unit>{_alternatives(UNITS)})(?![A-Za-z0-9'])(?:\.(?= [a-z]))?)?"

RULES: list[tuple[re.Pattern[str], Reader]] = [
    (re.compile(pattern), reader)
    for pattern, reader in [
        (r"\+[0-9]{1,3}(?:[ .-]?\(?[0-9]{2,5}\)?){2,5}(?![0-9])", _read_telephone),
        (rf"{_RUN}(?:[0-9]-)?\([0-9]{{3,5}}\)[ -]?[0-9]{{3,4}}(?:[ .-][0-9]{{3,4}})?{_END}", _read_telephone),
        (rf"{_RUN}(?:[0-9][.-])?[0-9]{{3}}[.-][0-9]{{3}}[.-][0-9]{{4}}{_END}", _read_telephone),
        (r"(?<![0-9.,$£€-])[0-9]{3}-[0-9]{4}(?![0-9-])", _read_telephone),
        (rf"{_RUN}(?P<year>[0-9]{{4}})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12][0-9]|3[01]){_END}", _read_iso_date),
        (rf"(?<![0-9/])(?P<first>[0-9]{{1,2}})/(?P<second>[0-9]{{1,2}})/{_YEAR}", _read_slash_date),
        (rf"\b{_MONTH} {_DAY}(?![0-9A-Za-z:/]|[,.][0-9]{{3}}(?![0-9]))(?:,? {_YEAR}(?!,[0-9]))?", _read_month_day),
        (
            rf"(?P<article>\b[Tt]he )?(?<![0-9.,:/$£€-]){_DAY} (?:of )?{_MONTH}(?![A-Za-z])(?:,? {_YEAR})?",
            _read_day_month,
        ),
        (rf"(?<![0-9:]){_CLOCK}{_END}(?: ?{_HALF})?", _read_time),
        (rf"(?<![0-9.,:$£€])(?P<hour>1[0-2]|[1-9]) ?{_HALF}", _read_hour),
        (rf"{_RUN}24/7{_END}", lambda match: "twenty-four seven"),
        (rf"{_RUN}([0-9]{{1,4}}):(?=[0-9]{{1,4}}{_END})", lambda match: f"{number(match[1])} to "),
        (r"(?<=[0-9])(?: ?— ?|-)(?=[$£€]?[0-9])", lambda match: " to "),
        (rf"{_SIGN}{_SYMBOL} ?(?P<number>{_NUMBER}){_SCALE}", _read_money),
        (rf"{_SIGN}{_RUN}(?P<number>{_NUMBER}){_SCALE} ?{_SYMBOL}(?![0-9])", _read_money),
        (rf"{_RUN}(?P<number>{_WHOLE})(?:st|nd|rd|th|ST|ND|RD|TH)(?![A-Za-z0-9])", _read_ordinal),
        (r"(?<![0-9.,])'?(?P<decade>[0-9]{1,3}0)'?s(?![A-Za-z0-9])", _read_decade),
        (
            r"(?<![0-9/.,])(?:(?P<whole>[0-9]{1,4}) )?(?P<over>[0-9]{1,6})/(?P<under>[0-9]{1,6})(?![0-9/])",
            _read_fraction,
        ),
        (r"(?<![0-9.])[0-9]{1,9}(?:\.[0-9]{1,9}){2,7}(?![0-9])", _read_dotted),
        (rf"{_SIGN}{_RUN}(?P<number>{_NUMBER}){_UNIT}", _read_plain),
    ]
]
