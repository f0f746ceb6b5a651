"""Times of day, time zones and durations.

Upstream: text whose dates are read.  Downstream: the rules of money, units and plain numbers.
"""

from __future__ import annotations

import re

from marstts.text.numbers.words import END, cardinal, number, with_unit
from marstts.text.rules.engine import Rule, rule
from marstts.text.rules.tables import either
from marstts.text.sentences import NUMBER_WORDS

_HALF = r"(?P<half>[ap]\.m\.|[AP]\.M\.|(?:am|pm|AM|PM|a\.m|p\.m)(?![A-Za-z]))"
_CLOCK = r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?"
_SENTENCE_MAY_START = re.compile(r"""["')\]]{0,3}(?:$| ["'(]?[A-Z])""")
_ZONE_FOLLOWS = re.compile(" (?:[A-Z]{1,4}T|UTC)(?![A-Za-z])")
_OPENS_WITH_TIME = re.compile(
    r"(?:^|[.!?][\"')]? )(?:At|By|On|Around|About|Until|From|Before|After|Since)(?: about| around| nearly)? $"
)
_BEFORE_CLOCK = re.compile(
    r"\b(?:at|by|until|till|since|before|after|from|around|about|to|it is|it's|time is|[0-9]T?|"
    rf"(?:{either(NUMBER_WORDS)}),?|(?<![0-9:])(?!0:)[0-9]{{1,2}}:[0-9]{{2}},) \Z",
    re.IGNORECASE,
)
"""What stands before a time of day with seconds: words, a date, or another time of day in a list."""

_BEFORE_LENGTH = re.compile(
    r"\b(?:in|took|takes?|lasts?|lasted|for|of|duration|length|runtime|elapsed|under|within)(?: is| was|:)? \Z",
    re.IGNORECASE,
)
_TOOK = re.compile(
    r"\b(?:took|takes|lasts?|lasted|duration|length|runtime|elapsed)(?: is| was| of|:)? \Z", re.IGNORECASE
)
_ARTICLE = re.compile(r"\b(?:an?|the|his|her|my|our|their|sub)[ -]\Z", re.IGNORECASE)
_NOUN = re.compile(" [a-z]{3}")
_DASH = " ?(?:-|—) ?"


def ends_sentence(text: str, position: int) -> bool:
    """Whether an abbreviation's stop right before `position` may end a sentence too: a capital or nothing follows."""
    return _SENTENCE_MAY_START.match(text, position) is not None


def _half_of_day(match: re.Match[str]) -> str:
    """' A M' or ' P M', keeping the stop of "p.m." where a sentence may end with it."""
    if not match["half"]:
        return ""
    text, end = match.string, match.end()
    keeps = match["half"].endswith(".") and ends_sentence(text, end) and not _ZONE_FOLLOWS.match(text, end)
    if keeps and text.startswith(" I ", end) and _OPENS_WITH_TIME.search(text, 0, match.start()):
        keeps = False  # "At 6 p.m. I left."
    return f" {match['half'][0].upper()} M{'.' if keeps else ''}"


def _minutes(digits: str) -> str:
    """Two digits after an hour: 05 -> " oh five"; nothing for 00."""
    return f" {'oh ' if digits[0] == '0' else ''}{cardinal(str(int(digits)))}" if int(digits) else ""


def _read_time(match: re.Match[str]) -> str:
    hour, minute, second = int(match["hour"]), int(match["minute"]), match["second"]
    half_of_day = _half_of_day(match)
    if hour > 24 or minute > 59:
        return f"{number(match['hour'])} to {number(match['minute'])}{half_of_day}"  # a score or a ratio
    words = cardinal(str(hour))
    if minute:
        words += _minutes(match["minute"])
    elif not half_of_day and not second:
        words += " hundred hours" if match["zulu"] else " o'clock"
    if second and int(second):
        words += f" and {with_unit(str(int(second)), ('second', 'seconds'))}"
    return words + half_of_day + (" U T C" if match["zulu"] else "")


def _read_length(match: re.Match[str]) -> str | None:
    """2:59:30 -> two hours fifty-nine minutes and thirty seconds; None where it is a time of day."""
    before = match.string[max(match.start() - 30, 0) : match.start()]
    hours = match["hours"]
    is_length = hours == "00" or len(hours) != 2 or int(hours) > 24
    if not (_BEFORE_LENGTH.search(before) or (is_length and not _BEFORE_CLOCK.search(before))):
        return None
    seconds = f"{int(match['seconds'])}{match['decimals'] or ''}"
    values = (str(int(hours)), str(int(match["minutes"])), seconds)
    if _ARTICLE.search(before) and _NOUN.match(match.string, match.end()):
        return " ".join(number(value) for value in values)  # "a two fifty-nine thirty marathon"
    return _join_length(values)


def _read_short_length(match: re.Match[str]) -> str | None:
    """0:45 -> forty-five seconds; "it took 7:30" -> seven minutes and thirty seconds."""
    before = match.string[max(match.start() - 30, 0) : match.start()]
    if match["minutes"] != "0" and not _TOOK.search(before):
        return None
    return _join_length(("0", str(int(match["minutes"])), str(int(match["seconds"]))))


def _join_length(values: tuple[str, str, str]) -> str:
    names = (("hour", "hours"), ("minute", "minutes"), ("second", "seconds"))
    parts = [with_unit(value, name) for value, name in zip(values, names, strict=True) if float(value)]
    if len(parts) < 2:
        return parts[0] if parts else "zero seconds"
    return f"{' '.join(parts[:-1])} and {parts[-1]}"


def _read_race_time(match: re.Match[str]) -> str:
    """1:05.32 -> one minute, five point three two seconds."""
    seconds = f"{int(match['second'])}.{match['decimals']}"
    return f"{with_unit(match['minute'], ('minute', 'minutes'))} {number(seconds)} seconds"


def _read_hour(match: re.Match[str]) -> str:
    return cardinal(match["hour"]) + _half_of_day(match)


def _read_hour_span(match: re.Match[str]) -> str:
    """8-10am, 9:30-10:45 p.m.: the first time without its half of the day, and "to"."""
    hour, minute = match["first"], match["first_minute"]
    return f"{cardinal(hour)}{_minutes(minute or '00')} to "


def _read_first_hour(match: re.Match[str]) -> str:
    return f"{cardinal(match['hour'])}{_minutes(match['minute'] or '00')} {match['half'][0].upper()} M to "


def _read_military(match: re.Match[str]) -> str:
    hour, minute = match["hour"], match["minute"]
    words = f"{'zero ' if hour[0] == '0' else ''}{cardinal(str(int(hour)))}"
    if minute == "00":
        return words + " hundred hours"
    return f"{words}{_minutes(minute)} hours"


def _read_duration(match: re.Match[str]) -> str:
    names = (("hours", "hour"), ("minutes", "minute"), ("seconds", "second"))
    parts = [with_unit(match[many], (one, many)) for many, one in names if match[many]]
    return " ".join(parts)


def _read_offset(match: re.Match[str]) -> str:
    zone, sign, hours, minutes = match["zone"], match["sign"], match["hours"], match["minutes"]
    words = f"{' '.join(zone)} {'plus' if sign == '+' else 'minus'} {cardinal(str(int(hours)))}"
    return words + (f" {cardinal(minutes)}" if minutes and int(minutes) else "")


def _read_utc_offset(match: re.Match[str]) -> str:
    hours, minutes = int(match["hours"]), int(match["minutes"])
    if not hours and not minutes:
        return " U T C"
    words = f" U T C {'plus' if match['sign'] == '+' else 'minus'} {cardinal(str(hours))}"
    return words + (f" {cardinal(str(minutes))}" if minutes else "")


RULES: list[Rule] = [
    rule(
        "time.dotted",
        rf"(?<![0-9.,:$£€])(?P<hour>1[0-2]|[1-9])\.(?P<minute>[0-5][0-9])(?P<second>)?(?P<zulu>(?!))? ?{_HALF}",
        _read_time,
    ),
    rule("time.noon", rf"\b(?P<start>[Nn]oon|[Mm]idnight){_DASH}(?=[0-9])", r"\g<start> to "),
    rule("time.noon", rf"(?<=[0-9m.]){_DASH}(?P<end>noon|midnight)\b", r" to \g<end>"),
    rule(
        "time.race",
        rf"(?<![0-9:])(?P<minute>[0-9]{{1,2}}):(?P<second>[0-5][0-9])\.(?P<decimals>[0-9]{{1,3}}){END}",
        _read_race_time,
    ),
    rule(
        "time.span",
        rf"(?<![0-9.,:$£€/-])(?P<first>1[0-2]|[1-9])(?::(?P<first_minute>[0-5][0-9]))?{_DASH}(?=(?:1[0-2]|[1-9])"
        rf"(?::[0-5][0-9])? ?{_HALF})",
        _read_hour_span,
    ),
    rule(
        "time.span",
        rf"(?<![0-9.,:$£€/-])(?P<hour>1[0-2]|[1-9])(?::(?P<minute>[0-5][0-9]))? ?{_HALF}{_DASH}(?=(?:1[0-2]"
        rf"|[1-9])(?![0-9]))",
        _read_first_hour,
    ),
    rule(
        "time.offset",
        r"(?<=:[0-9]{2})(?:(?<=:[0-9]{2}:[0-9]{2})| ?(?=\+)| (?=-[0-9]{4}(?![0-9])))"
        r"(?P<sign>[+-])(?P<hours>[01][0-9]):?(?P<minutes>00|15|30|45)(?![0-9:])",
        _read_utc_offset,
    ),
    rule(
        "time.span",
        rf"(?<=[0-9]:[0-9]{{2}}){_DASH}(?=[0-9]{{1,2}}(?::[0-9]{{2}})?"
        rf"(?![0-9]))",
        " to ",
    ),
    rule(
        "time.length",
        r"(?<![0-9:.])(?P<hours>[0-9]{1,3}):(?P<minutes>[0-5][0-9]):(?P<seconds>[0-5][0-9])(?P<decimals>\.[0-9]{1,3})?"
        rf"(?![0-9:]|\.[0-9]|Z\b|[+-][0-9]| ?{_HALF}| (?:UTC|GMT|[ECMP][SD]?T)\b)",
        _read_length,
    ),
    rule(
        "time.length",
        rf"(?<![0-9:.])(?P<minutes>[0-9]{{1,2}}):(?P<seconds>[0-5][0-9])(?![0-9:]|\.[0-9]| ?{_HALF})",
        _read_short_length,
    ),
    rule("time.clock", rf"(?<![0-9:]){_CLOCK}(?P<zulu>Z\b)?{END}(?: ?{_HALF})?", _read_time),
    rule("time.hour", rf"(?<![0-9.,:$£€])(?P<hour>1[0-2]|[1-9]) ?{_HALF}", _read_hour),
    rule(
        "time.military",
        r"(?<![0-9.,:$£€])(?P<hour>[01][0-9]|2[0-4])(?P<minute>[0-5][0-9]) ?(?:hours|hrs)\b",
        _read_military,
    ),
    rule(
        "time.military",
        r"(?<![0-9.,:$£€])(?P<hour>0[0-9])(?P<minute>[0-5][0-9])(?= ?(?:GMT|UTC|Zulu|BST|[CEWM]ES?T|[ECMP][SD]T)\b)",
        lambda match: _read_military(match).removesuffix(" hours"),
    ),
    rule(
        "time.zone",
        r"\b(?P<zone>UTC|GMT) ?(?P<sign>[+-])(?P<hours>[01]?[0-9])(?::?(?P<minutes>[0-9]{2}))?(?![0-9])",
        _read_offset,
    ),
    rule(
        "time.duration",
        r"(?<![0-9.,:])(?:(?P<hours>[0-9]{1,3}) ?(?:h|hr|hrs) ?(?P<minutes>[0-5]?[0-9]) ?(?:m|min|mins)?(?: ?"
        r"(?P<seconds>[0-5]?[0-9]) ?(?:s|sec|secs))?)(?![A-Za-z0-9])",
        _read_duration,
    ),
    rule(
        "time.duration",
        r"(?<![0-9.,:])(?P<hours>(?!))?(?P<minutes>[0-9]{1,3}) ?(?:m|min) ?(?P<seconds>[0-5]?[0-9]) ?(?:s|sec)"
        r"(?![A-Za-z0-9])",
        _read_duration,
    ),
    rule(
        "time.seconds",
        r"(?P<before>\b(?:after|for|within|every|lasts?|took|takes?|wait|waits|timeout|under|over|about|only|just"
        r"|at|another) )(?P<number>[0-9]{1,4})s(?![A-Za-z0-9'])",
        lambda match: match["before"] + with_unit(match["number"], ("second", "seconds")),
    ),
]
