"""Abbreviations in full: titles, common Latin, streets, months, days, keys: "Dr. Li, No. 5 Elm St" -> "Doctor Li, …".

Upstream: text whose addresses are read.  Downstream: the rules of dates and numbers.
"""

from __future__ import annotations

import re

from marstts.text.numbers.times import ends_sentence
from marstts.text.rules.engine import rule
from marstts.text.rules.tables import either, table, word_set
from marstts.text.sentences import SENTENCE_OPENERS

_DATA = table("abbreviations")
_WITH_STOP = _DATA["ranks"] | _DATA["anywhere"] | _DATA["closing"]
_START = r"(?<![A-Za-z0-9'])"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "Aug", "Sep", "Sept", "Oct", "Nov", "Dec")
_OPENER = re.compile(
    r"[\"')]{0,2} [\"'(]?(?:He|She|It|They|We|I|You|The|This|That|These|Those|There|But|And|So|Then|In|On|At|If"
    r"|When|His|Her"
    r"|Its|Their|Our|My|What|Who|Why|How|However|A|An)(?![A-Za-z.])"
)
_OPENED = re.compile("[a-z0-9][.?!][\"')]? $")
_NUMBERED = re.compile(r"\b[Nn]os?\. ?[0-9]{1,4},? (?:and|or) $|\b[Nn]os?\. ?[0-9]{1,4} [a-z]{1,12}, $|[0-9], $")
_NAME = re.compile(" (?P<name>[A-Z][A-Za-z]*)")
_SAINTS = word_set("names", "saints")
_BEFORE_SAINTS = word_set("names", "before_saints")
_STREET_NAMES = word_set("names", "streets")
_ANSWERED = re.compile(
    r"(?:\b(?:said|says|say|saying|answered|answers?|replied|reply|told (?:him|her|me|us|them|you)|is|was|a"
    r"|means?|meant"
    r"|voted|and|or|to|yes)|[,:\"'-]) ?[\"']?$"
)


def _read_before_number(match: re.Match[str]) -> str | None:
    short = match["short"]
    before = match.string[max(match.start() - 20, 0) : match.start()]
    if short == "no" and _ANSWERED.search(before) and not _NUMBERED.search(before):
        return None
    words: str = _DATA["before_numbers"][short]
    opens = short[0].isupper() and (
        match.start() == 0 or _OPENED.search(match.string, max(match.start() - 4, 0), match.start()) is not None
    )
    return (words[0].upper() + words[1:] if opens else words) + " "


def _read_with_stop(match: re.Match[str]) -> str:
    short = match["short"]
    if short in _DATA["closing"]:
        return _DATA["closing"][short] + _closing_stop(match)
    opens = short in _MONTHS and _OPENER.match(match.string, match.end()) is not None  # "in Sept. The rest"
    return _WITH_STOP[short] + ("." if opens else "")


def _closing_stop(match: re.Match[str]) -> str:
    return "." if ends_sentence(match.string, match.end()) else ""


def _read_saint_or_street(match: re.Match[str]) -> str | None:
    """Street after a name, Saint before one; between two names the saints and the streets that are known decide."""
    before, stop = match["before"] or "", match["stop"]
    name = _NAME.match(match.string, match.end())
    if not before or name is None:
        return f"{before}Street{_closing_stop(match) if stop else ''}" if before else "Saint" if name else None
    place = before.strip().removesuffix("'s")
    is_street = place in _STREET_NAMES or place[0].isdigit()
    if name["name"] in _SAINTS:
        is_saint = not is_street or (place in _BEFORE_SAINTS and not stop)
    else:
        opens_sentence = match.start() == 0 or match.string[max(match.start() - 2, 0)] in ".?!"
        is_saint = (
            (opens_sentence or place in _BEFORE_SAINTS) and not is_street and name["name"] not in SENTENCE_OPENERS
        )
    return f"{before}Saint" if is_saint else f"{before}Street{_closing_stop(match) if stop else ''}"


def _read_saints(match: re.Match[str]) -> str | None:
    """ "Sts. Peter and Paul", "Ste. Anne", "St-Denis", "ST. LOUIS"."""
    if match["name"].capitalize() not in _SAINTS:
        return None
    word = "Saints" if match["short"] in ("Sts", "SS") else "SAINT" if match["short"] == "ST" else "Saint"
    return f"{word} {match['name']}"


def _read_address_street(match: re.Match[str]) -> str:
    """ "12 N. Maple Dr." -> "12 North Maple Drive"."""
    point = match["point"]
    compass = f"{_DATA['compass'][point]} " if point else ""
    kind = match["kind"]
    street = (_DATA["streets"] | _DATA["closing"]).get(kind, kind)
    stop = _closing_stop(match) if match["stop"] else ""
    number = re.sub("(?<=[0-9])(?=[A-Z])", " ", match["number"])
    return f"{number} {compass}{match['name']} {street}{stop}"


def _read_street_after_name(match: re.Match[str]) -> str:
    return f"{match['before']}{_DATA['streets'][match['kind']]}{_closing_stop(match) if match['stop'] else ''}"


def _read_senor(match: re.Match[str]) -> str:
    return f"{match['before']}Senor "


def _read_weekend(match: re.Match[str]) -> str:
    return f"{match['before']}{_DATA['weekdays'][match['day']]}{_closing_stop(match)}"


def _read_with(match: re.Match[str]) -> str:
    word = "without" if match["out"] else "with"
    return (word.capitalize() if match["first"] == "W" else word) + " "


def _read_small_initialism(match: re.Match[str]) -> str:
    """ "my tv" -> "my T V"."""
    return " ".join(match["short"].upper()) + ("'s" if match["plural"] else "")


def _read_dotted_initials(match: re.Match[str]) -> str:
    """ "the U.S. Army" -> "the U S Army"; the stop stays where the text ends."""
    letters = " ".join(match["letters"].replace(".", "").upper())
    at_end = (
        match.end() == len(match.string)
        or (letters in ("A M", "P M") and _closing_stop(match) == ".")
        or (match["stop"] and _OPENER.match(match.string, match.end()) is not None)
    )
    touches = match.end() < len(match.string) and match.string[match.end()].isalnum()
    if match["plural"]:
        return letters + "'s"
    return letters + (match["stop"] if at_end else "") + (" " if touches else "")


def _read_dotted_degree(match: re.Match[str]) -> str:
    """ "B.Sc." -> "B S C"."""
    letters = " ".join(match["letters"].replace(".", "").upper())
    return letters + ("." if match.end() == len(match.string) else "")


_BARE = _DATA["bare"]
_SMALL = word_set("initialisms", "small")
_KEYS = _DATA["keys"]
_MIXED = _DATA["mixed"]
_STREET_FORMS = frozenset(_DATA["streets"]) | {"Ave", "Rd", "Blvd", "Ln", "Ct", "Sq", "Pkwy", "Hwy", "Way"}
_STREETS = either(_STREET_FORMS)

RULES = [
    rule(
        "abbreviation.with",
        r"(?<![A-Za-z0-9'/.])(?P<first>[wW])/(?P<out>o)?(?![A-Za-z0-9/]{1,2}(?![A-Za-z]))(?= ?[A-Za-z0-9\"'])",
        _read_with,
    ),
    rule(
        "initialism.small",
        rf"(?<![A-Za-z0-9'/.-])(?<!dot )(?<!slash )(?<!at )(?<!dash )(?<!colon )(?<!underscore )"
        rf"(?P<short>{either(_SMALL)})(?P<plural>s?)(?![A-Za-z0-9'/-]|\.[A-Za-z0-9]| (?:dot|slash|underscore|colon)\b)",
        _read_small_initialism,
    ),
    rule(
        "abbreviation.bare",
        rf"(?<![A-Za-z0-9'/.])(?P<short>{either(set(_BARE) - set(_WITH_STOP))})(?![A-Za-z0-9'/]|\.[A-Za-z0-9])",
        lambda match: _BARE[match["short"]],
    ),
    rule(
        "abbreviation.bare",
        rf"(?<![A-Za-z0-9'/.])(?P<short>{either(set(_BARE) & set(_WITH_STOP))})(?![A-Za-z0-9'/.])",
        lambda match: _BARE[match["short"]],
    ),
    rule(
        "abbreviation.key",
        rf"(?<=[a-z]\+)(?P<key>{either(_KEYS)})(?![A-Za-z0-9+])",
        lambda match: _KEYS[match["key"]],
        parted=False,
    ),
    rule(
        "abbreviation.key",
        rf"(?<![A-Za-z0-9])(?P<key>{either(_KEYS)})(?P<mark> ?\+ ?|-)(?=[A-Za-z0-9])",
        lambda match: f"{_KEYS[match['key']]} {'plus ' if '+' in match['mark'] else ''}",
        parted=False,
    ),
    rule(
        "abbreviation.key",
        r"(?<![A-Za-z0-9])(?P<key>Alt|Shift|Tab|Enter|Option|Win|Fn|Control|Command|Escape|Delete|Del|Esc)"
        r"(?P<mark> ?\+ ?)(?=[A-Z0-9])",
        lambda match: f"{_KEYS.get(match['key'], match['key'])} plus ",
        parted=False,
    ),
    rule(
        "abbreviation.mixed",
        rf"(?<![A-Za-z0-9])(?P<word>{either(_MIXED)}|IPv(?=[46]))(?![A-Za-z])",
        lambda match: _MIXED.get(match["word"], "I P version "),
    ),
    rule("abbreviation.plural", r"(?<=[A-Za-z]{2})\((?P<end>s|es)\)", r"\g<end>", parted=False),
    rule(
        "abbreviation.number",
        rf"{_START}(?P<short>{either(_DATA['before_numbers'])})\. ?(?=#?\(?'?[0-9])",
        _read_before_number,
    ),
    rule(
        "abbreviation.number",
        rf"{_START}(?P<short>{either(_DATA['before_numbers'])})\. (?=(?:the )?[a-z])"
        r"(?<=[Mm]ax\. |[Mm]in\. )(?<![0-9][ -]min\. )",
        _read_before_number,
    ),
    rule(
        "abbreviation.number",
        rf"{_START}(?P<short>{either(_DATA['before_numbers_bare'])}) ?(?=[0-9])",
        lambda match: f"{_DATA['before_numbers_bare'][match['short']].strip()} ",
    ),
    rule(
        "abbreviation.number",
        rf"{_START}(?P<short>[Vv]ol|[Cc]h|[Ss]ec|[Pp]t|[Aa]rt|[Ff]ig|Sect|Chap|Bk|App|Tab|Pl|Ser|Ep|Lect)\. "
        r"(?=[IVXL]{1,6}(?![A-Za-z]))",
        _read_before_number,
    ),
    rule("abbreviation.edition", r"(?<=st |nd |rd |th )ed\.(?![A-Za-z])", "edition", parted=False),
    rule("abbreviation.reigned", r"(?<![A-Za-z0-9'])r\. (?=[0-9]{3,4}[-—][0-9]{2,4})", "reigned ", parted=False),
    rule("abbreviation.cups", r"(?<=/[2348] )c\. (?=[a-z])", "cup ", parted=False),
    rule(
        "abbreviation.address",
        rf"(?<![0-9A-Za-z.,])(?P<number>[0-9]{{1,5}}[A-Z]?) (?:(?P<point>[NSEW])\.? )?(?P<name>"
        rf"(?:[A-Z][a-z]{{2,15}}|[0-9]{{1,3}}(?:st|nd|rd|th))(?: [A-Z][a-z]{{2,15}})?) (?P<kind>{_STREETS})"
        rf"(?P<stop>\.?)(?![A-Za-z0-9'])",
        _read_address_street,
    ),
    rule(
        "abbreviation.compass",
        r"(?<![A-Za-z0-9.'])(?P<point>[NSEW])\. (?=of )",
        lambda match: f"{_DATA['compass'][match['point']]} ",
        parted=False,
    ),
    rule(
        "abbreviation.compass",
        r"(?<![A-Za-z0-9.'])(?P<point>[NSEW])\. (?=(?:[A-Z][a-z]{2,15}|[0-9]{1,3}(?:st|nd|rd|th)) (?:St|Street"
        r"|Ave|Avenue|Rd|Road|Blvd|Dr|Drive|Lane|Ln)\b)",
        lambda match: f"{_DATA['compass'][match['point']]} ",
    ),
    rule(
        "abbreviation.saint",
        rf"{_START}(?P<short>Sts|SS|Ste|ST|St(?=\.?-))(?:\.[ -]?| |-)(?P<name>[A-Z][A-Za-z]{{2,20}})(?![A-Za-z])",
        _read_saints,
        parted=False,
    ),
    rule(
        "abbreviation.saint",
        rf"(?P<before>{_START}(?:[A-Z0-9][A-Za-z0-9]{{1,20}}(?:'s)?) )?\bSt(?P<stop>\.?)(?![A-Za-z0-9'])",
        _read_saint_or_street,
        parted=False,
    ),
    rule(
        "abbreviation.street",
        rf"(?P<before>{_START}[A-Z][a-z]{{2,20}} )(?P<kind>Dr|Pl|Ter)(?P<stop>\.)(?![A-Za-z0-9'])(?! [A-Z])",
        _read_street_after_name,
        parted=False,
    ),
    rule(
        "abbreviation.title",
        rf"{_START}(?P<short>{either(_DATA['before_names'])}|MRS|MR|DR)(?:\.|(?= [A-Z]))(?![a-z])",
        lambda match: _DATA["before_names"][match["short"].capitalize()] + " ",
        parted=False,
    ),
    rule(
        "abbreviation.senor",
        r"(?P<before>(?:^|[a-z,;:&(] |[.?!] )['\"(]?)Sr\. (?=[A-Z][a-z])",
        _read_senor,
        parted=False,
    ),
    rule(
        "abbreviation.weekend",
        r"(?P<before>(?:\b(?:[Oo]n|[Ee]very|[Tt]his|[Nn]ext|[Ll]ast|[Uu]ntil|[Bb]y|[Tt]ill?|and|or|to|through)|,"
        r"|&) |^)(?P<day>Sat|Sun)\.(?![A-Za-z0-9])",
        _read_weekend,
        parted=False,
    ),
    rule(
        "abbreviation.weekend",
        r"(?P<before>)(?P<day>Sat|Sun)\.(?=,| (?:and|or|to|at|from|through|the|is|was|will"
        r"|brunch|lunch|dinner|school|night|morning"
        r"|afternoon|evening|we|I|[0-9]))",
        _read_weekend,
        parted=False,
    ),
    rule(
        "abbreviation.stop", rf"{_START}(?P<short>{either(_WITH_STOP)})\.(?![A-Za-z0-9])", _read_with_stop, parted=False
    ),
]

INITIALS = [
    rule(
        "abbreviation.unit",
        rf"(?<![A-Za-z0-9'/.])(?P<unit>{either(_DATA['late'])})(?![A-Za-z0-9'/])",
        lambda match: _DATA["late"][match["unit"]],
    ),
    rule(
        "abbreviation.degree",
        r"(?<![A-Za-z0-9.'])(?P<letters>[A-Z]\.(?:Sc|Ed|Eng|Phil|Mus|Com|Tech|Arch|Litt))\.?(?![A-Za-z0-9])",
        _read_dotted_degree,
        parted=False,
    ),
    rule(
        "abbreviation.initials",
        r"(?<![A-Za-z0-9.'])(?P<letters>[A-Za-z](?:\.[A-Za-z])+)(?![A-Za-z0-9])(?P<stop>\.?)(?P<plural>'?s(?![A-Za-z]))?",
        _read_dotted_initials,
        parted=False,
    ),
]
