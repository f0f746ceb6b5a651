"""Names made of letters and digits: verses of holy books, flights, postcodes, ions, parcels.

Upstream: folded text.  Downstream: the rules of telephones, abbreviations and times, which take other digits.
"""

from __future__ import annotations

import re

from marstts.text.numbers.words import cardinal, in_pairs, one_by_one, spelled
from marstts.text.rules.engine import rule
from marstts.text.rules.tables import either, table, word_set
from marstts.text.sentences import MONTHS, NEVER_LAST

_BOOKS = table("names")["books"]
_CODES = tuple(code for code in table("currencies")["codes"] if code.isupper())
_WORD_END = re.compile(r"([A-Za-z]+)[\"')]*(?:\.\.\.|[?!]{0,2}|\.)\Z")
_YEAR_END = re.compile(r"(?<![0-9.,$£€])(?:1[0-9]|20)[0-9]{2}\.\Z")
_BEFORE_YEAR = re.compile(
    r"(?:\b(?:in|of|since|by|until|till|from|to|before|after|during|and|early|late|mid|year|circa|c\.|spring|summer|autumn"
    rf"|winter|{either(MONTHS)}),?|,) \Z|[0-9]{{4}}[-—]\Z",
    re.IGNORECASE,
)
"""What stands before a year whose stop is followed by the number of a note."""

_POWERED = frozenset(
    ("sin", "cos", "tan", "log", "inch", "inches", "foot", "feet", "yard", "yards", "mile", "miles", "meter", "meters")
)
"""Words whose raised number is a power."""

_STATES = either(table("names")["states"])
_BEFORE_NUMBERS = NEVER_LAST | {short.lower() for short in table("abbreviations")["before_numbers"]}
_FIRST = {"1": "First ", "2": "Second ", "3": "Third ", "I": "First ", "II": "Second ", "III": "Third "}


def _read_verse(match: re.Match[str]) -> str:
    """1 Cor. 13:4-7 -> First Corinthians thirteen, four to seven."""
    words = f"{_FIRST.get(match['volume'], '')}{_BOOKS[match['book']]} {cardinal(match['chapter'])}"
    if match["verse"]:
        words += f", {cardinal(match['verse'])}"
    return words + (f" to {cardinal(match['last'])}" if match["last"] else "")


def _read_zip(match: re.Match[str]) -> str:
    state = table("names")["states"][match["state"]]
    return f"{match['mark']}{state} {one_by_one(match['zip'])}"


def _drop_note(match: re.Match[str]) -> str | None:
    """Nothing for the number of a note; a number after an abbreviation or after a quantity is none."""
    quoted = match.string[: match.start()]
    before = quoted.rstrip("\"'") if quoted.rstrip("\"'").endswith(").") else quoted.rstrip("\"')")
    if year := _YEAR_END.search(before):
        return "" if _BEFORE_YEAR.search(before[: year.start()]) else None
    if before.endswith(")."):
        return ""
    word = _WORD_END.search(before)
    if word is None or (before == quoted and word[1].lower() in _BEFORE_NUMBERS):
        return None
    return None if match["raised"] and not before.endswith((".", "?", "!")) and word[1].lower() in _POWERED else ""


def _spell(match: re.Match[str]) -> str:
    return spelled(match["code"].replace(" ", ""))


def _spell_hexadecimal(match: re.Match[str]) -> str | None:
    """Hexadecimal digits one by one; numbers with an abbreviation behind them are none: 10000BC, 5000000CAD."""
    return None if re.fullmatch("[0-9]+(?:AD|BC|CE|BCE|CAD|[A-Fa-f])", match["code"]) else spelled(match["code"])


def _spell_groups(match: re.Match[str]) -> str | None:
    """The digits and letters of an identifier one by one; None where all are digits, as in a telephone number."""
    if match["code"].replace("-", "").isdigit():
        return None
    return spelled(*match["code"].split("-"))


def _read_flight(match: re.Match[str]) -> str:
    return f"{match['before'] or ''}{spelled(match['airline'])} {in_pairs(match['digits'])}"


def _read_ion(match: re.Match[str]) -> str:
    charge = f"{cardinal(match['charge'][-1])} " if match["charge"] else ""
    element = " ".join(cardinal(each) if each.isdigit() else each for each in match["element"].upper())
    return f"{element} {charge}{'plus' if match['sign'] == '+' else 'minus'}"


def _read_item_number(match: re.Match[str]) -> str | None:
    """A number before an item of a list in one line: "Steps: 1. Mix. 2. Bake." -> "Steps: 1, Mix. 2, Bake."."""
    value, text = int(match["number"]), match.string
    previous = re.search(rf"(?:^|[.:!?] ){value - 1}(?:\. |, )(?=[A-Z])", text[: match.start()])
    follows = re.match(rf".{{1,200}}[.!?] {value + 1}\. [A-Z]", text[match.end() : match.end() + 210])
    is_item = previous is not None if value > 1 else follows is not None
    return f"{match['number']}, " if is_item else None


_CITED = r"[0-9]{1,3}[a-z]?(?: ?(?:,|;|-|—|\u2013|to|and) ?[0-9]{1,3}[a-z]?){0,9}"
_AUTHOR = (
    r"(?:(?:[Vv]an|[Vv]on|[Dd]er?|[Dd]en|[Dd]i|[Dd]u|[Ll][ae]) ){0,3}"
    r"(?!(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec|Spring|Summer|Autumn|Fall|Winter|January|February|March"
    r"|April|August|September|October|November|December|In|Since|Until|By|Before|After|From|About|Around|Circa|Late"
    r"|Early|Mid|Christmas|Easter|Emphasis|Translated|Updated?|Edited|Published|Retrieved|Accessed|Copyright|Year)\b)"
    r"(?:O['\u2019])?[A-Z\u00c0-\u00de][^\W\d_]{1,30}(?:['\u2019-][^\W\d_]{1,30}){0,2}"
)
"""The family name of an author; what stands before the year of a date is none."""

_YEAR_CITED = r"(?:(?:1[5-9]|20)[0-9]{2}[a-z]?|n\.d\.|in press|forthcoming)"
_AUTHORED = (
    rf"(?:(?:[Ss]ee|[Cc]f\.?|e\.g\.,?)(?: also)? )?{_AUTHOR}(?:(?:,? (?:and|&)|,) {_AUTHOR}){{0,4}}"
    rf"(?:,? et al\.?)?,? {_YEAR_CITED}(?:, ?(?:{_YEAR_CITED}|[a-z])){{0,4}}"
    r"(?:(?:, ?(?:pp?\.|ch\.|chap\.|sec\.|\u00a7) ?|: ?)[0-9]{1,4}(?:[-\u2013\u2014][0-9]{1,4})?)?"
)
"""A work by its authors and year, as within brackets: `Smith et al., 2019`."""

_KEEPS_BRACKETS = re.compile(
    r"(?:=|[<>+*/(\[,:]|\b(?:press|type|key|keys|enter|choose|option|select|button|number|step|item|line|row|column|index|list|array"
    r"|vector|range|interval|set|point|pair|matrix|returns?|in|see|of|from|by|ref|refs|reference|references|and|or|to|is|are|was"
    r"|at|with|between|version|page|chapter|figure|table|tuple|slot|channel|level|the|a))\s?\Z",
    re.IGNORECASE,
)
_CODE_NAME = re.compile(
    r"(?:\b[a-z]|\b(?:arr|array|list|data|items|args|argv|matrix|vector|values?"
    r"|dict|map|buf|buffer|nums|self|stack|queue"

                        r"|str|words|lines|rows|cols|tokens|ids|keys|x|y)|[a-z][A-Z][a-z]+|_\w+|\)|\])\Z")  # fmt: skip
_CODE_AFTER = re.compile(r" ?(?:[-+*/]?=|\+\+|[-+*/%<>] |\(|\{|\[(?![0-9])|\.[a-z])")


def _drop_citation(match: re.Match[str]) -> str | None:
    """Nothing for [3] or [4–6] behind a word; an index of code and what a sentence needs stay."""
    before = match.string[max(match.start() - 24, 0) : match.start()]
    touches = match[0].startswith("[")
    if re.search(r"(?<![0-9])0(?![0-9])", match["cited"]) or _CODE_AFTER.match(match.string, match.end()):
        return None
    if touches and _CODE_NAME.search(before) and not before.endswith((")", "]")):
        return None
    if not touches and _KEEPS_BRACKETS.search(before):
        return None
    return ""


BRACKETS = [
    rule(
        "note.citation",
        rf"(?<=[A-Za-z0-9.,;:!?)\"'”\u2019\]])(?P<cited>(?: ?\[{_CITED}(?:, ?pp?\. ?[0-9]{{1,4}}"
        rf"(?:[-\u2013—][0-9]{{1,4}})?)?\](?:[,\u2013—-] ?(?=\[[0-9])| and(?= \[[0-9]))?){{1,9}})"
        r"(?![A-Za-z0-9{(])",
        _drop_citation,
        parted=False,
    ),
    rule(
        "note.citation",
        r" ?\[(?:(?:see|cf\.?|e\.g\.,?) )?-?@[A-Za-z0-9_:.#$%&+?<>~/-]{1,60}[^\[\]]{0,120}\]|"
        r"(?<=\w) ?\[(?:citation needed|note [0-9]{1,3}"
        r"|n [0-9]{1,2}|clarification needed|better source needed|when\?|who\?|according to whom\?)\]",
        "",
        parted=False,
    ),
    rule(
        "note.citation",
        rf"(?:^|(?<=[A-Za-z0-9.,;:!?)\"'”\u2019\]]))(?P<cited> ?\[{_AUTHORED}"
        rf"(?:; ?{_AUTHORED}){{0,9}}\])(?![A-Za-z0-9{{(])",
        _drop_citation,
        parted=False,
    ),
    rule(
        "note.mark",
        r"(?<=[A-Za-z0-9.,;:!?)\"'”\u2019])(?:[†‡]{1,3}|\[[†‡*§¶]{1,3}\]|(?<=[a-z.,!?])[*]{1,3}(?=[\s.,;:!?)]|$))(?![A-Za-z0-9])",
        "",
        parted=False,
    ),
]
"""Citations in brackets and marks of notes, before brackets become commas: "It grew [3]." """

NOTES = [
    rule(
        "note.mark",
        r"(?:(?<=[A-Za-z][a-z][.?!])|(?<=[a-z][?!][?!])|(?<=[a-z]\.\.\.)|(?<=[A-Za-z][a-z][.?!][\"')])|(?<=[A-Za-z][a-z][\"')][.?!])|(?<=[a-z0-9]\)\.)|(?<=[a-z0-9]\)\.\")|(?<=[0-9]{4}\.))"
        r"(?P<raised>\^?)[0-9]{1,3}(?:[,—-] ?[0-9]{1,3}){0,3}(?= [\"'(]?[A-Z]|$)(?!(?<=[0-9]{4}\.[0-9])$)",
        _drop_note,
        parted=False,
    ),
    rule("note.mark", r"(?<=[a-z]{2}\")(?P<raised>\^?)[0-9]{1,2}(?=[ .,;:?!)]|$)", _drop_note, parted=False),
    rule("note.mark", r"(?<=[a-z]{3})(?P<raised>\^)[0-9]{1,2}(?=[ .,;:?!)]|$)", _drop_note, parted=False),
]
"""Marks of notes that touch the word before them: "It sank.2 Then"."""

RULES = [
    rule("number.item", r"(?:^|(?<=[.:!?] ))(?P<number>[1-9][0-9]?)\. (?=[A-Z][a-z])", _read_item_number, parted=False),
    rule(
        "number.verse",
        rf"(?<![A-Za-z0-9])(?:(?P<volume>[123]|I{{1,3}}) )?(?P<book>{either(_BOOKS)})\.? (?P<chapter>[0-9]{{1,3}}):"
        r"(?P<verse>[0-9]{1,3})(?:[-—](?P<last>[0-9]{1,3}))?(?![0-9]|[:.][0-9]| ?[ap]\.?m)",
        _read_verse,
    ),
    rule(
        "number.verse",
        r"(?<![A-Za-z0-9])(?P<volume>[123]|I{1,3}) (?P<book>Samuel|Kings|Chronicles|Corinthians|Thessalonians|Timothy"
        r"|Peter) (?P<chapter>[0-9]{1,2})(?P<verse>(?!))?(?P<last>(?!))?(?![0-9]|:[0-9])",
        _read_verse,
    ),
    rule(
        "number.postcode",
        r"(?<![A-Za-z0-9])(?P<code>[A-Z]{1,2}[0-9][0-9A-Z]? [0-9][A-Z]{2}|[A-Z][0-9][A-Z] [0-9][A-Z][0-9])"
        r"(?![A-Za-z0-9])",
        _spell,
    ),
    rule("number.zip", rf"(?P<mark>, )(?P<state>{_STATES}),? (?P<zip>[0-9]{{5}}(?:-[0-9]{{4}})?)(?![0-9])", _read_zip),
    rule(
        "number.flight",
        r"(?P<before>\b[Ff]lights? )(?P<airline>[A-Z][A-Z0-9]) ?(?P<digits>[1-9][0-9]{0,3})(?![0-9A-Za-z]|[.,][0-9])",
        _read_flight,
    ),
    rule(
        "number.flight",
        rf"(?P<before>)(?<![A-Za-z0-9])(?P<airline>{either(word_set('names', 'airlines'))}) ?"
        r"(?P<digits>[1-9][0-9]{2,3})"
        r"(?![0-9A-Za-z]|[.,][0-9])",
        _read_flight,
    ),
    rule(
        "money.pair",
        rf"(?<![A-Za-z0-9/])(?P<code>(?:{either(_CODES)})/(?:{either(_CODES)}))(?![A-Za-z0-9/])",
        lambda match: " ".join(match["code"].replace("/", "")),
    ),
    rule(
        "number.parcel",
        r"(?<![A-Za-z0-9])(?=[A-Z0-9]{0,20}[0-9]{4})(?=[0-9]{0,20}[A-Z])(?P<code>[A-Z0-9]{10,30})(?![A-Za-z0-9])",
        _spell,
    ),
    rule(
        "number.hash",
        r"(?<![A-Za-z0-9-])(?=[0-9a-f]{0,39}[a-f])(?=[a-f]{0,39}[0-9])(?P<code>[0-9a-f]{7,40})(?![A-Za-z0-9-])",
        _spell,
    ),
    rule(
        "number.hash",
        r"(?<![A-Za-z0-9.,$£€-])(?=[0-9]{0,63}[A-Fa-f])(?=[A-Fa-f]{0,63}[0-9])(?P<code>[0-9A-Fa-f]{7,128})(?![A-Za-z0-9-])",
        _spell_hexadecimal,
    ),
    rule(
        "number.hash",
        rf"(?P<before>\b(?:{either(word_set('names', 'before_hexadecimal'))}"
        rf"|{either(map(str.capitalize, word_set('names', 'before_hexadecimal')))}"
        r"|SHA|MD5|CRC|ID|UID|GUID|UUID)(?: is| was|:| =)? )"
        r"(?=[0-9A-Fa-f-]{0,40}[A-Fa-f])(?=[A-Fa-f-]{0,40}[0-9])(?P<code>[0-9A-Fa-f]{4,64}(?:-[0-9A-Fa-f]{2,12}){0,6})(?![A-Za-z0-9-])",
        lambda match: match["before"] + spelled(*match["code"].split("-")),
    ),
    rule(
        "number.uuid",
        r"(?<![A-Za-z0-9-])(?P<code>[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){1,4}(?:[0-9A-Fa-f]{8})?)(?![A-Za-z0-9-])",
        _spell_groups,
    ),
    rule(
        "number.ion",
        r"(?<![A-Za-z0-9])(?P<element>Na|Ca|Mg|Fe|Cu|Zn|Li|Al|Ag|Cl|Br|OH|HCO3|NO3|SO4|PO4|NH4)(?P<charge>\^?[2-4])?(?P<sign>[+-])(?![A-Za-z0-9])",
        _read_ion,
    ),
]
