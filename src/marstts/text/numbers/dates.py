"""Dates, decades and days of the week.

Upstream: text whose addresses are read.  Downstream: the rules of times, money, units and plain numbers.
"""

from __future__ import annotations

import re

from marstts.text.numbers.words import (
    END,
    RUN,
    cardinal,
    decade,
    is_attribute,
    number,
    ordinal,
    two_digit_year,
    year,
    year_or_number,
)
from marstts.text.rules.engine import Rule, rule
from marstts.text.rules.tables import either, table, word_set

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_MONTH_NAME = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)\b\.?)"
)
_MONTH = rf"(?P<month>{_MONTH_NAME})"
_DAY = r"(?P<day>0?[1-9]|[12][0-9]|3[01])(?:st|nd|rd|th)?"
_DASH = " ?(?:-|—) ?"
_YEAR = rf"(?P<year>[0-9]{{4}}){END}"
_DAYS = table("abbreviations")["weekdays"]
_COMMON_DENOMINATORS = frozenset({2, 3, 4, 5, 8, 16})
_DAY_NAME = f"(?:{either(_DAYS)})"


_BEFORE_DATES = word_set("names", "before_dates")
"""Words before a date of which only the month and the day are written."""


def _read_date(month: int, day: str, year_digits: str | None) -> str:
    return f"{MONTHS[month - 1]} {ordinal(day)}" + (f", {year_or_number(year_digits)}" if year_digits else "")


def _month_index(name: str) -> int:
    return next(index for index, month in enumerate(MONTHS, start=1) if month.startswith(name[:3].capitalize()))


def _read_iso_date(match: re.Match[str]) -> str | None:
    month, day = int(match["month"]), int(match["day"])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    words = _read_date(month, str(day), match["year"])
    return words + (", " if match["time"] else "")


def _read_numeric_date(match: re.Match[str]) -> str | None:
    """Month first as in America, unless only the second number can be a month or stops part them as in Europe."""
    first, second, digits = int(match["first"]), int(match["second"]), match["year"]
    day_first = first > 12 or (match["mark"] == "." and second <= 12)
    if match["mark"] == "." and len(digits) == 2 and not (match["second"][0] == "0" or first > 12):
        return None  # a version, perhaps
    month, day = (second, first) if day_first else (first, second)
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return " ".join(number(part) for part in re.split("[/.-]", match[0])) if match["mark"] == "/" else None
    if len(digits) == 2:
        return f"{MONTHS[month - 1]} {ordinal(str(day))}, {two_digit_year(digits)}"
    return _read_date(month, str(day), digits)


_NO_DATE_BEFORE = re.compile(
    r"\b(?:combination|combo|lock|code|codes|PIN|pin|serial|score|scores|scored|record|ratio|part|lot|batch|model|SKU|sizes?)"
    r"(?: is| was| of| no\.?| number|:)? \Z",
    re.IGNORECASE,
)


def _read_dashed_date(match: re.Match[str]) -> str | None:
    """17-05-24 -> the seventeenth of May, twenty twenty-four; the day is first where both orders are dates."""
    if _NO_DATE_BEFORE.search(match.string, max(match.start() - 24, 0), match.start()):
        return None
    first, second, third = match["first"], match["second"], match["third"]
    if 1 <= int(first) <= 31 and 1 <= int(second) <= 12:
        return f"the {ordinal(str(int(first)))} of {MONTHS[int(second) - 1]}, {two_digit_year(third)}"
    if 1 <= int(first) <= 12 and 1 <= int(second) <= 31:
        return f"{MONTHS[int(first) - 1]} {ordinal(str(int(second)))}, {two_digit_year(third)}"
    if int(first) > 31 and 1 <= int(second) <= 12 and 1 <= int(third) <= 31:
        return f"{MONTHS[int(second) - 1]} {ordinal(str(int(third)))}, {two_digit_year(first)}"
    return None


def _read_short_date(match: re.Match[str]) -> str | None:
    month, day = int(match["month"]), int(match["day"])
    month, day = (day, month) if month > 12 else (month, day)
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    before = match["before"].strip()
    return f"{_DAYS[before] + ',' if before in _DAYS else before} {_read_date(month, str(day), None)}"


def _read_short_span(match: re.Match[str]) -> str | None:
    """ "9/1-9/5" as two dates, but "1/2-3/4" as fractions."""
    dates = [(int(match["first_month"]), int(match["first_day"])), (int(match["month"]), int(match["day"]))]
    are_fractions = all(over < under and under in _COMMON_DENOMINATORS for over, under in dates)
    if are_fractions or not all(1 <= month <= 12 and 1 <= day <= 31 for month, day in dates):
        return None
    return " to ".join(_read_date(month, str(day), None) for month, day in dates)


def _read_month_day(match: re.Match[str]) -> str:
    words = _read_date(_month_index(match["month"]), match["day"], None)
    if match["last"]:
        words += f" to {ordinal(match['last'])}"
    return words + (f", {year_or_number(match['year'])}" if match["year"] else "")


def _read_day_month(match: re.Match[str]) -> str:
    is_holiday = match.start() == 0 and match[0].startswith("4th of July")
    words = f"{match['article'] or ('' if is_holiday else 'the ')}{ordinal(match['day'])}"
    if match["last"]:
        words += f" to {ordinal(match['last'])}"
    words += f" of {MONTHS[_month_index(match['month']) - 1]}"
    if match["short"]:
        return f"{words}, {two_digit_year(match['short'])}"
    return words + (f", {year_or_number(match['year'])}" if match["year"] else "")


def _read_month_year(match: re.Match[str]) -> str:
    return f"{MONTHS[_month_index(match['month']) - 1]} {year_or_number(match['year'])}"


def _read_month_span(match: re.Match[str]) -> str:
    return " to ".join(MONTHS[_month_index(match[name]) - 1] for name in ("first", "last"))


def _read_years(match: re.Match[str]) -> str | None:
    first, last = match["first"], match["last"]
    return f"{year(first)} to {year(last)}" if int(last) == int(first) + 1 else None


def _read_year_span(match: re.Match[str]) -> str | None:
    first, last = match["first"], match["last"]
    if int(last) <= int(first[2:]):
        return None
    return f"{year(first)} to {cardinal(last) if last[0] != '0' else 'oh ' + cardinal(last[1])}"


def _read_named_year(match: re.Match[str]) -> str:
    digits = match["year"]
    if digits.endswith("000"):
        return match["before"] + cardinal(digits)
    return match["before"] + year(digits)


def _read_era_year(match: re.Match[str]) -> str:
    return year(match["year"]) if not match["year"].endswith("000") else cardinal(match["year"])


_DURATION = re.compile("(?:hours?|minutes?|[0-9] ?(?:h|hrs?|m|mins?)),? (?:or|and|to) $")
_CHAIN_BEFORE = re.compile(r"(?:[0-9]{2,3}s(?:,? (?:and|or|to) |, | ?[-—/] ?)){1,4}\Z")
_CHAIN_AFTER = re.compile(r"(?:(?:,? (?:and|or|to) |, | ?[-—/] ?)'?[0-9]{2,3}s){1,4}")
_OF_DECADES = re.compile(
    r"(?:\b(?:the|early|mid|late|his|her|their|my|our|your|its|this|those|these|roaring|swinging|high|low|love[sd]?|like[sd]?"
    r"|'s)[ -]|(?<=[A-Za-z])-)\Z",
    re.IGNORECASE,
)
_BEFORE_SECONDS = re.compile(
    rf"\b{either(word_set('names', 'before_seconds'))}(?: for| about| at least| another| up to| only"
    rf"| to| another)?[:=]? \Z",
    re.IGNORECASE,
)
_AFTER_SECONDS = re.compile(rf" {either(word_set('names', 'after_seconds'))}(?![A-Za-z])| (?:x|\u00d7) ?[0-9]")
_AFTER_DECADES = re.compile(rf"[ -]{either(word_set('names', 'after_decades'))}(?![A-Za-z])| [A-Z][a-z]")
_SHORT_TIMES = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9]{0,3}[1-9]s|[0-9]{1,4} ?(?:ms|sec|secs|min|mins)|[0-9]{1,2}x)(?![A-Za-z0-9])"
)
_OPENS = re.compile(r"(?:^|[.!?;:(] ?|[,\"] )\Z")
_ENDS = re.compile(r"$|[.,;:!?)]|\"")


def _is_time(match: re.Match[str]) -> bool:
    """Whether 30s are seconds, "rest 30s", and no decade, "in her 30s"."""
    text = match.string
    if match[0].startswith("'"):
        return False
    before, after = text[max(0, match.start() - 60) : match.start()], text[match.end() : match.end() + 60]
    first, last = _CHAIN_BEFORE.search(before), _CHAIN_AFTER.match(after)
    before = before[: first.start()] if first else before
    after = after[last.end() :] if last else after
    is_alone = first is None and last is None
    is_counted = _AFTER_SECONDS.match(after) is not None
    if _OF_DECADES.search(before):
        return (
            is_counted
            and _AFTER_DECADES.match(after) is None
            and not after.startswith((" on", " or", " then", " until", " more", " extra", " passed"))
        )
    if match["decade"] in ("10", "100") and after.startswith(" of "):
        return False
    if _BEFORE_SECONDS.search(before):
        return True
    if _AFTER_DECADES.match(after):
        return False
    if is_counted or len(match["decade"]) == 3 or (before.endswith(("in ", "by ")) and _ENDS.match(after)):
        return True
    if _SHORT_TIMES.search(text):
        return True
    stands_alone = is_alone and _OPENS.search(before) is not None and _ENDS.match(after) is not None
    return stands_alone or after.startswith(" of ")


def _read_decade(match: re.Match[str]) -> str | None:
    """90s -> nineties, or ninety seconds where it is a time; None after durations, which another rule reads."""
    before = match.string[max(0, match.start() - 30) : match.start()]
    if not match[0].startswith("'") and _DURATION.search(before):
        return None
    if len(match["decade"]) <= 3 and "'" not in match[0] and _is_time(match):
        return f"{cardinal(match['decade'])} second{'' if is_attribute(match) else 's'}"
    return decade(match["decade"])


def _read_quarter(match: re.Match[str]) -> str:
    digits = match["year"]
    words = "fiscal year " + (year_or_number(digits) if len(digits) == 4 else cardinal(digits))
    return f"{words} to {cardinal(match['last'])}" if match["last"] else words


def _read_day_span(match: re.Match[str]) -> str:
    words = match["days"].replace("—", "-")
    return " to ".join(_DAYS[day.strip(" .")] for day in words.split("-"))


def _read_lone_day(match: re.Match[str]) -> str:
    return _DAYS[match["day"]] + match["mark"]


RULES: list[Rule] = [
    rule("date.pair", r"(?<![0-9/])9/11(?![0-9/])", "nine eleven"),
    rule("date.pair", r"(?<![0-9/.,$£€-])50-50(?![0-9-])", "fifty-fifty"),
    rule("date.pair", r"(?<![0-9/])4/20(?![0-9/])", "four twenty"),
    rule(
        "date.pair",
        rf"{RUN}24/7(?P<days>/365)?{END}",
        lambda match: "twenty-four seven" + (" three sixty-five" if match["days"] else ""),
    ),
    rule("date.range", rf"(?<=[0-9])(?: ?— ?| ?- ?)(?={_MONTH_NAME} ?[0-9])", " to "),
    rule("date.range", rf"\b(?P<first>{_MONTH_NAME}) ?[-—] ?(?P<last>{_MONTH_NAME})(?![A-Za-z])", _read_month_span),
    rule("date.quarter", r"\b(?P<part>[QH][1-4]) ?'(?P<year>[0-9]{2})(?![0-9])", r"\g<part> \g<year>"),
    rule(
        "date.iso",
        rf"{RUN}(?P<year>[12][0-9]{{3}})([-/.])(?P<month>[01]?[0-9])\2(?P<day>[0-3]?[0-9])(?:(?P<time>T"
        rf"(?=[0-9]{{2}}:))|(?![0-9]|[/.-][0-9]))",
        _read_iso_date,
    ),
    rule(
        "date.numeric",
        rf"(?<![0-9/.-])(?P<first>[0-9]{{1,2}})(?P<mark>[/.-])(?P<second>[0-9]{{1,2}})(?P=mark)"
        rf"(?P<year>[12][0-9]{{3}}){END}",
        _read_numeric_date,
    ),
    rule(
        "date.numeric",
        r"(?<![0-9/.$-])(?P<first>[0-9]{1,2})(?P<mark>[/.])(?P<second>[0-9]{1,2})(?P=mark)(?P<year>[0-9]{2})(?![0-9/]|\.[0-9])",
        _read_numeric_date,
    ),
    rule(
        "date.numeric",
        r"(?<![0-9A-Za-z/.,:$£€-])(?P<first>[0-9]{2})-(?P<second>[0-9]{2})-(?P<third>[0-9]{2})(?![0-9A-Za-z/-]|[.,:][0-9])",
        _read_dashed_date,
    ),
    rule(
        "date.numeric",
        r"(?P<before>\b(?:[Oo]n|[Bb]y|[Dd]ue|[Dd]ated|[Ss]ince|[Uu]ntil|[Bb]orn|[Ff]rom) )(?P<first>[0-9]{1,2})-"
        r"(?P<second>[0-9]{1,2})-(?P<third>[0-9]{2})(?![0-9A-Za-z/-]|[.,:][0-9])",
        lambda match: None if (date := _read_dashed_date(match)) is None else match["before"] + date,
    ),
    rule(
        "date.short",
        rf"(?P<before>\b(?:(?:{either(_BEFORE_DATES)}):?|[Oo]n|[Bb]y|[Uu]ntil|[Ss]ince|[Ff]rom|[Dd]ue|[Dd]ated|[Bb]efore"
        r"|[Aa]fter|[Ww]eek of|[Ss]ee you"
        r"|[Aa]s of|[Ee]ffective|[Tt]oday is|[Dd]eadline:|[Dd]ate:|Mon|Tues?|Weds?"
        r"|Thu|Thurs?|Fri|Sat|Sun|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day,?) )"
        r"(?P<month>[0-9]{1,2})/(?P<day>[0-9]{1,2})(?![0-9/])(?! (?:of|cup|inch|mile|share|chance|majority))",
        _read_short_date,
    ),
    rule(
        "date.short",
        r"(?<![0-9/.$-])(?P<first_month>1?[0-9])/(?P<first_day>[0-9]{1,2})(?: ?(?:-|—) ?| to )"
        r"(?P<month>1?[0-9])/(?P<day>[0-9]{1,2})(?![0-9/\"'])(?! ?(?:of|cup|inch|in|mile|lb|oz|tsp|tbsp)\b)",
        _read_short_span,
    ),
    rule(
        "date.weekdays",
        rf"\b(?P<days>{_DAY_NAME}\.?{_DASH}{_DAY_NAME})(?![A-Za-z])\.?(?= [a-z0-9]|[,;)])",
        _read_day_span,
    ),
    rule("date.weekdays", rf"\b(?P<days>{_DAY_NAME}{_DASH}{_DAY_NAME})(?![A-Za-z])", _read_day_span),
    rule(
        "date.weekday",
        rf"\b(?P<day>{_DAY_NAME})\.?(?P<mark>,? )(?=(?:the )?(?:[0-3]?[0-9](?:st|nd|rd|th)?\b|{_MONTH_NAME} [0-9]))",
        _read_lone_day,
    ),
    rule(
        "date.weekday",
        rf"\b(?P<day>{_DAY_NAME})(?P<mark>, |/| and | or | & )(?={_DAY_NAME}(?![A-Za-z]))",
        lambda match: _DAYS[match["day"]] + match["mark"].replace("/", " or "),
    ),
    rule(
        "date.weekday",
        rf"(?P<before>day(?:, |,? and | or | & ))(?P<day>{_DAY_NAME})(?![A-Za-z'])",
        lambda match: match["before"] + _DAYS[match["day"]],
        parted=False,
    ),
    rule(
        "date.month-day",
        rf"\b{_MONTH} {_DAY}(?:{_DASH}(?P<last>[12][0-9]|3[01]|[1-9])(?:st|nd|rd|th)?)?(?![0-9A-Za-z/]|:[0-9]"
        rf"|[,.][0-9]{{3}}(?![0-9]))(?:,? {_YEAR}(?!,[0-9]))?",
        _read_month_day,
    ),
    rule(
        "date.day-month",
        rf"(?P<article>\b[Tt]he )?(?<![0-9.,:/$£€-]){_DAY}(?:{_DASH}(?P<last>[12][0-9]|3[01]|[1-9])(?:st|nd|rd"
        rf"|th)?)?(?: | of |-){_MONTH}(?![A-Za-z])(?:(?:, | |,|-){_YEAR}|-(?P<short>[0-9]{{2}})(?![0-9-]))?",
        _read_day_month,
    ),
    rule(
        "date.month-year",
        rf"\b(?P<month>(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)\b)\.?[ '-]+{_YEAR}",
        _read_month_year,
    ),
    rule(
        "date.fiscal-year", r"\bFY ?'?(?P<year>[0-9]{4}|[0-9]{2})(?:[-—/](?P<last>[0-9]{2}))?(?![0-9])", _read_quarter
    ),
    rule(
        "date.years",
        r"(?<![0-9./-])(?P<first>1[0-9]{3}|20[0-9]{2})[-—/](?P<last>[0-9]{2})(?![0-9/-]|\.[0-9])",
        _read_year_span,
    ),
    rule(
        "date.years",
        r"(?<![0-9./-])(?P<first>1[0-9]{3}|20[0-9]{2})/(?P<last>1[0-9]{3}|20[0-9]{2})(?![0-9/-]|\.[0-9])",
        _read_years,
    ),
    rule(
        "date.year",
        rf"(?P<before>\b[Yy]ear (?:was |is |of )?|\bA\.?D\.? |\bcirca |\b[Ii]n the year )(?P<year>1[0-9]{{3}}"
        rf"|2[0-9]{{3}}){END}(?![,.][0-9])",
        _read_named_year,
    ),
    rule(
        "date.year",
        rf"(?P<before>\b(?:[Ii]n|[Ss]ince|[Uu]ntil|[Bb]efore|[Aa]fter|[Bb]y) )(?P<year>10[0-9]{{2}})"
        rf"(?=[,;:)]|\.(?: |$)| (?:the|he|she|they|it)\b| (?:and|or|to) 1[0-9]{{3}}{END}| [A-Z])(?![,.][0-9])",
        _read_named_year,
    ),
    rule("date.year", rf"{RUN}(?P<year>[1-9][0-9]{{3}})(?= (?:B\.?C|A\.?D|C\.?E)\b)", _read_era_year),
]

DECADES: list[Rule] = [
    rule("date.range", r"(?<=[0-9]s)[-—](?='?[0-9]{2,4}s)", " to "),
    rule("date.decade", r"(?<![0-9.,])'?(?P<decade>[0-9]{1,3}0)'?s(?![A-Za-z0-9])", _read_decade),
]
