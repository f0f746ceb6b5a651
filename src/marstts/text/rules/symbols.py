"""Symbols and operators: a <= b -> a less than or equal to b, ~5 -> about five; emoticons, markup, LaTeX.

Upstream: folded text (`MARKUP`, `EMOTICONS`), text whose numerals are read (`RULES`).  Downstream: `order`.
"""

from __future__ import annotations

import html
import re

from marstts.errors import DataError
from marstts.text.lexicon import respell
from marstts.text.rules.engine import Rule, Trace, rule
from marstts.text.rules.tables import either, table, word_set
from marstts.text.segments import VOICE_MARK

_LATEX = table("symbols")["latex"]
_DRIVE = re.compile("colon  ?backslash")
_ASSIGN = {"+": "plus", "-": "minus", "*": "times", "/": "divided by", "%": "modulo"}
_BLOCKS = word_set("markup", "blocks") | {"br"}
_TAGS = (_BLOCKS | word_set("markup", "inline")) - word_set("markup", "placeholders")
"""Tags that character references spell: `&lt;b&gt;`."""


def _read_entity(match: re.Match[str]) -> str:
    return html.unescape(match[0])


def _read_tag(match: re.Match[str]) -> str:
    return " " if match["name"] in _BLOCKS else ""


def _read_command(match: re.Match[str]) -> str:
    return f" {_LATEX[match['name']]} " if match["name"] in _LATEX else f" {match['name']} "


def _read_override(match: re.Match[str]) -> str:
    """The respelling of `[word]{respelling}`; the word itself where there is no such pronunciation."""
    try:
        return respell(match["say"].strip())
    except DataError:
        return match["word"]


MARKUP: list[Rule] = [
    rule("pause", r"\[[Pp][Aa][Uu][Ss][Ee](?::\s?[0-9.]{1,9}\s?(?:[Mm]?[Ss])?)?\]", ", ", parted=False),
    rule("voice", VOICE_MARK, " ", parted=False),
    rule("override", r"\[(?P<word>[^\[\]{}]{1,80})\]\{(?P<say>[^{}]{1,200})\}", _read_override, parted=False),
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
    rule(
        "latex.delimiter",
        r"(?<!\$)\$(?=[A-Za-z\\(])(?P<formula>[^$\n]{0,200}[^$\s])\$(?![0-9A-Za-z$])",
        r"\g<formula>",
        parted=False,
    ),
    rule("latex.fraction", r"\\[dt]?frac ?\{([^{}]{1,60})\} ?\{([^{}]{1,60})\}", r" \1 over \2 "),
    rule("latex.root", r"\\sqrt ?\{([^{}]{1,60})\}", r" square root of \1 "),
    rule("latex.text", r"\\(?:text|mathrm|mathbf|textbf|textit|emph|operatorname) ?\{([^{}]{1,80})\}", r" \1 "),
    rule("latex.exponent", r"\^\{([A-Za-z0-9+-]{1,9})\}", r"^\1", parted=False),
    rule(
        "latex.index",
        r"(?<=[A-Za-z])(?<![/.@][A-Za-z])(?!(?<=[oO])_[oO])_\{?([A-Za-z0-9])\}?(?![A-Za-z0-9_]|[+.-]?[A-Za-z0-9.+-]{0,30}@)",
        r" \1",
        parted=False,
    ),
    rule("latex.delimiter", r"\\[()\[\]]|\$\$", " ", parted=False),
    rule(
        "latex.command",
        rf"\\(?P<name>{'|'.join(sorted(_LATEX, key=len, reverse=True))})(?![A-Za-z])",
        _read_command,
        parted=False,
    ),
]


EMOTICONS: list[Rule] = [
    rule(
        "emoticon",
        r"(?<![^\s(])(?:[:;=]['^-]?[()DPpOo|\\/3*]{1,3}|8-\)|[:;]-?\]|<3+|</3|\^[_.]?\^|-_-|[oO]_[oO]|>[_.]<|T_T|xD|XD"
        r"|:'\(|>:\(|\\o/)(?![^\s.,!?;)])",
        " ",
        parted=False,
    ),
]


OPERATORS: list[Rule] = [
    rule("symbol.placeholder", r"(?<![\w<)\]])<([A-Za-z][a-z]+(?:[-_][a-z]+)*)>(?!\w)", r"\1", parted=False),
    rule(
        "symbol.absolute",
        r"(?<![\w|])\|(?P<of>-?[A-Za-z0-9]{1,3}(?:\.[0-9]{1,3})?(?: ?[+*/-] ?[A-Za-z0-9]{1,3}){0,2})\|(?![\w|])",
        lambda match: f"the absolute value of {match['of'].replace('-', ' minus ')}",
        parted=False,
    ),
    rule("symbol.arrow", r"(?<=[\w)\]\"'.!?%]) ?<=+> ?(?=[\w(\[\"'])", " if and only if ", parted=False),
    rule("symbol.arrow", r"(?<=[\w)\]\"'.!?%]) ?<-+> ?(?=[\w(\[\"'])", " to and from ", parted=False),
    rule(
        "symbol.less-or-equal",
        r"(?<=[\w)\]}%\"']) ?<= ?(?=[\w(.$£€+-])",
        " less than or equal to ",
        parted=False,
    ),
    rule(
        "symbol.greater-or-equal",
        r"(?<=[\w)\]}%\"']) ?>= ?(?=[\w(.$£€+-])",
        " greater than or equal to ",
        parted=False,
    ),
    rule("symbol.at-most", r"<=", " at most ", parted=False),
    rule("symbol.at-least", r">=", " at least ", parted=False),
    rule("symbol.identical", r"(?<=[\w)\]\"']) ?!== ?(?=\S)", " is not identical to ", parted=False),
    rule("symbol.identical", r"(?<=[\w)\]\"']) ?=== ?(?=\S)", " is identical to ", parted=False),
    rule(
        "symbol.not-equal",
        r"(?:!=|=/=|<>"
        r"(?= ?\w))",
        " is not equal to ",
        parted=False,
    ),
    rule(
        "symbol.arrow",
        r"(?<=[\w)\]\"'.!?%°€£¢]) ?(?:-{1,3}>+) ?(?=[\w"
        r"(\[\"'$£€#@+-])",
        " to ",
        parted=False,
    ),
    rule(
        "symbol.arrow",
        r"(?<=[\w)\]\"'.!?%]) ?(?:={1,3}>) ?(?=[\w"
        r"(\[\"'{$£€#@+-])",
        " arrow ",
        parted=False,
    ),
    rule("symbol.arrow", r"(?<=[\w)\]\"']) ?<-{1,2} ?(?=[\w(\[\"'])", " left arrow ", parted=False),
    rule("symbol.arrow", r"-{1,3}>|={1,3}>|<-{1,3}|<={2,3}", " ", parted=False),
    rule(
        "symbol.assign",
        r"(?<=[\w)\]\"']) ?(?P<operator>[+*/%-])= ?(?=\S)",
        lambda match: f" {_ASSIGN[match['operator']]} equals ",
        parted=False,
    ),
    rule("symbol.assign", r"(?<=[\w)\]]) ?:= ?(?=\S)", " is defined as ", parted=False),
    rule("symbol.increment", r"(?<=[a-z])\+\+(?![+\w])", " plus plus", parted=False),
    rule("symbol.increment", r"(?<=\b[a-z])--(?=[;,.)]|$)", " minus minus", parted=False),
    rule("symbol.logic", r" ?&& ?", " and ", parted=False),
    rule("symbol.logic", r"(?<=[\w)\]]) ?\|\| ?(?=[\w(!])", " or ", parted=False),
    rule("symbol.logic", r"(?<![\w.,!?])!(?=[A-Za-z_(])", " not ", parted=False),
    rule(
        "symbol.less",
        r"(?<=[\w)\]%] )<(?= ?[\w(.$£€+-])|(?<=[\w)])<(?=\w|\.[0-9])(?![A-Za-z]{2})",
        " less than ",
        parted=False,
    ),
    rule(
        "symbol.greater",
        r"(?<=[\w)\]%] )>(?= ?[\w(.$£€+-])|(?<=[\w)])>(?=\w|\.[0-9])(?![A-Za-z]{2})",
        " greater than ",
        parted=False,
    ),
    rule("symbol.less", r"(?<![\w<])<(?= ?[0-9$£€.+-])", " less than ", parted=False),
    rule("symbol.greater", r"(?<![\w>])>(?= ?[0-9$£€.+-])", " more than ", parted=False),
    rule("symbol.approximately", r"(?<=[\w)]) ?≈ ?(?=[\w(.$-])", " is approximately ", parted=False),
    rule("symbol.about", r"(?<=about )[~≈] ?(?=[$£€]?[0-9.])", "", parted=False),
    rule("symbol.about", r"(?<![\w~])~ ?(?=[$£€]?[0-9.])", "about "),
]


def _read_backslash(match: re.Match[str]) -> str:
    """The backslash of a path whose drive was read before it; elsewhere it parts words as a slash does."""
    return " backslash " if _DRIVE.search(match.string) else " "


def _read_minus(match: re.Match[str]) -> str | None:
    return " minus " if "=" in match.string or " than or equal to " in match.string else None


RULES: list[Rule] = [
    rule("symbol.plus-or-minus", r"\+ ?/ ?[-—]", " plus or minus ", parted=False),
    rule("symbol.backslash", r"(?<=\w)\\+(?=\w)", _read_backslash, parted=False),
    rule("symbol.divided", r"(?<=\b[a-z]) / (?=[a-z0-9](?![A-Za-z]))", " divided by ", parted=False),
    rule("symbol.times", r"(?<![A-Za-z0-9])x(?!86|64)(?=[0-9]{1,3}(?![0-9A-Za-z.]))(?<=[a-z)] x)(?<!= x)", "times "),
    rule(
        "symbol.times",
        r"(?<=[0-9)]) ?[*\u00d7·] ?(?=[0-9(a-z-])"
        r"(?!\*)",
        " times ",
        parted=False,
    ),
    rule("symbol.times", r"(?<=\b[A-Za-z0-9]) [*] (?=[A-Za-z0-9](?![A-Za-z]{2}))", " times ", parted=False),
    rule("symbol.divided", r"(?<=[0-9)]) / (?=[0-9(])", " divided by ", parted=False),
    rule("symbol.divided", r"(?<=\b[a-z)])/(?=[0-9])", " over ", parted=False),
    rule("symbol.minus", r"(?<=[0-9)]) - (?=[0-9(])", " minus ", parted=False),
    rule("symbol.minus", r"(?<=[0-9)]) - (?=[a-z](?![A-Za-z']))", _read_minus, parted=False),
    rule("symbol.minus", r"(?<=\b[a-z]) ?- (?=[0-9a-z](?![A-Za-z']))", _read_minus, parted=False),
    rule("symbol.minus", r"(?<=[0-9][a-z]) - (?=[0-9a-z](?![A-Za-z']))", _read_minus, parted=False),
    rule(
        "symbol.grade",
        r"(?P<before>\b(?:[Aa]n?|[Gg]rades?:?|[Gg]ot|of) )(?P<grade>[A-F])-(?=[\s.,;!?)]|$)",
        r"\g<before>\g<grade> minus",
        parted=False,
    ),
    rule("symbol.grade", r"(?P<before>^|, )(?P<grade>[A-F])-(?=[.,;)]|$)", r"\g<before>\g<grade> minus", parted=False),
    rule(
        "symbol.root",
        r"(?<![A-Za-z0-9])sqrt\((?P<of>[A-Za-z0-9+*. -]{1,20})"
        r"\)",
        r"square root of \g<of>",
    ),
    rule(
        "symbol.over",
        r"(?<![A-Za-z0-9])(?P<over>[a-z])/(?P<under>[a-z])(?![A-Za-z0-9/])",
        lambda match: f"{match['over']} over {match['under']}" if "=" in match.string else None,
        parted=False,
    ),
    rule("symbol.percent", r"(?<=[a-z] )%(?= [a-z0-9])", "modulo", parted=False),
    rule("symbol.citation", r"(?<=[.,;)\"'])(?:\[[0-9]{1,3}\]){1,5}", " ", parted=False),
]


# Names of the symbols that no rule has read: @ -> at; brackets become commas, and what has no name is left out.

_NAMED = table("symbols")["named"]
_NAMED_SYMBOL = re.compile(f"[{re.escape(''.join(_NAMED))}]")
_BRACKETS = re.compile(r"[()\[\]{}]+")
_NOT_READ = re.compile(r"[^A-Za-z.,?!;:'\" -]")


def name_symbols(text: str, trace: Trace) -> str:
    """Symbols with a name are read; brackets part like commas; the others part like spaces and are left out."""

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
