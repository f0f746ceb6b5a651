"""Symbols and operators: a <= b -> a less than or equal to b, ~5 -> about five; emoticons, markup, LaTeX.

Upstream: folded text (`MARKUP`, `EMOTICONS`), text whose numerals are read (`RULES`).  Downstream: `order`.
"""

from __future__ import annotations

import html
import re

from marstts.text.lexicon import OVERRIDE, read_as_text, read_override
from marstts.text.phones import PHONE_CHARACTERS
from marstts.text.rules.engine import Trace, rule
from marstts.text.rules.forms import rules_of
from marstts.text.rules.tables import either, table, word_set
from marstts.text.segments import VOICE_MARK

_DRIVE = re.compile("colon  ?backslash")
_BLOCKS = word_set("markup", "blocks") | {"br"}
_TAGS = (_BLOCKS | word_set("markup", "inline")) - word_set("markup", "placeholders")
"""Tags that character references spell: `&lt;b&gt;`."""


def _read_entity(match: re.Match[str]) -> str:
    return html.unescape(match[0])


def _read_tag(match: re.Match[str]) -> str:
    return " " if match["name"] in _BLOCKS else ""


def _read_override(match: re.Match[str]) -> str:
    said = read_override(match)
    return read_as_text(match) if said is None else said


MARKUP = [
    rule("pause", r"\[[Pp][Aa][Uu][Ss][Ee](?::\s?[0-9.]{1,9}\s?(?:[Mm]?[Ss])?)?\]", ", ", parted=False),
    rule("voice", VOICE_MARK, " ", parted=False),
    rule("override", OVERRIDE, _read_override, parted=False),
    rule(
        "markup.entity",
        r"&(?:[a-zA-Z]{2,8}|#[0-9]{1,7}"
        r"|#x[0-9A-Fa-f]{1,6});",
        _read_entity,
        parted=False,
    ),
    rule(
        "markup.tag",
        rf"</?(?P<name>{either(_TAGS)})(?:\s[^<>=]{{1,40}}=[^<>]{{0,300}})?\s?/?>",
        _read_tag,
        parted=False,
    ),
    *rules_of("latex"),
]


EMOTICONS = rules_of("emoticons")

OPERATORS = (
    rule(
        "symbol.absolute",
        r"(?<![\w|])\|(?P<of>-?[A-Za-z0-9]{1,3}(?:\.[0-9]{1,3})?(?: ?[+*/-] ?[A-Za-z0-9]{1,3}){0,2})\|(?![\w|])",
        lambda match: f"the absolute value of {match['of'].replace('-', ' minus ')}",
        parted=False,
    ),
    *rules_of("operators"),
)


def _read_backslash(match: re.Match[str]) -> str:
    """The backslash of a path whose drive was read before it; elsewhere it parts words as a slash does."""
    return " backslash " if _DRIVE.search(match.string) else " "


def _read_minus(match: re.Match[str]) -> str | None:
    return " minus " if "=" in match.string or " than or equal to " in match.string else None


RULES = [
    rule("symbol.backslash", r"(?<=\w)\\+(?=\w)", _read_backslash, parted=False),
    *rules_of("symbols"),
    rule("symbol.minus", r"(?<=[0-9)]) - (?=[a-z](?![A-Za-z']))", _read_minus, parted=False),
    rule("symbol.minus", r"(?<=\b[a-z]) ?- (?=[0-9a-z](?![A-Za-z']))", _read_minus, parted=False),
    rule("symbol.minus", r"(?<=[0-9][a-z]) - (?=[0-9a-z](?![A-Za-z']))", _read_minus, parted=False),
    rule(
        "symbol.over",
        r"(?<![A-Za-z0-9])(?P<over>[a-z])/(?P<under>[a-z])(?![A-Za-z0-9/])",
        lambda match: f"{match['over']} over {match['under']}" if "=" in match.string else None,
        parted=False,
    ),
]


# Names of the symbols that no rule has read: @ -> at; brackets become commas, and what has no name is left out.

_NAMED = table("symbols")["named"]
_NAMED_SYMBOL = re.compile(f"[{re.escape(''.join(_NAMED))}]")
_BRACKETS = re.compile(r"[()\[\]{}]+")
_NOT_READ = re.compile(rf"[^A-Za-z{PHONE_CHARACTERS}.,?!;:'\" -]")


def name_symbols(text: str, trace: Trace) -> str:
    """Symbols with a name are read; brackets part like commas; the others part like spaces and are left out."""
    if _NOT_READ.search(text) is None:
        return text

    def name(match: re.Match[str]) -> str:
        trace.record("symbol.named", match[0], _NAMED[match[0]])
        return f" {_NAMED[match[0]]} "

    def drop(match: re.Match[str]) -> str:
        trace.leave_out(match[0])
        return " "

    text = _NAMED_SYMBOL.sub(name, text)
    text = _BRACKETS.sub(" , ", text)
    text = text.replace("—", " - ")
    return _NOT_READ.sub(drop, text)
