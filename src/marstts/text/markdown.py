"""Markdown as people and chat models send it: which kind each line is, and its text without marks.

Upstream: lines of a text.  Downstream: `blocks`, which joins and cuts lines.
Not a library: the reader must take linear time on any input, give plain text back unharmed, and work on a
stream, which parsers of the whole CommonMark standard do not guarantee.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from marstts.text.lexicon import ATTRIBUTES
from marstts.text.rules.latex import without_formulas
from marstts.text.rules.tables import word_set
from marstts.text.stage_directions import is_direction


class LineKind(str, Enum):
    """Kind of a line."""

    __hash__ = str.__hash__  # of every block, which is looked up by it; that of `Enum` takes longer

    PLAIN = "text"
    HEADING = "heading"
    ITEM = "list item"
    NUMBERED = "numbered item"
    TABLE = "table row"
    CODE = "code"
    RULE = "rule"
    SCENE = "scene break"
    FENCE = "fence"


class MarkdownLine(NamedTuple):
    """A line without the marks of its kind."""

    kind: LineKind
    text: str


_QUOTE = re.compile(r"^ {0,3}(?:> ?)+(?=[^\s>=0-9$-]|$)")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(?P<text>.*?)[ \t]*#*[ \t]*$")
_ITEM = re.compile(r"\s*[-*+•‣◦▪●\u2013][ \t]+(?:\[[ xX]\][ \t]+)?(?P<text>\S.*)$")
_NUMBERED = re.compile(r"\s*(?P<number>[0-9]{1,3}|[a-zA-Z]|[ivx]{2,5})(?P<mark>[.)])[ \t]+(?P<text>\S.*)$")
_FORUM_ITEM = re.compile(r"\s*\[\*\][ \t]*(?P<text>\S.*)$")
_CHECKBOX = re.compile(r"\s*\[[ xX]\][ \t]+(?P<text>\S.*)$")
_DIVISION = re.compile(rf" {{0,3}}:{{3,}}[ \t]*(?:{ATTRIBUTES}|[\w-]{{0,40}})[ \t]*:*[ \t]*$")
"""A line that opens or closes a division of Pandoc: `::: {.note}`."""

_TABLE = re.compile(r"\s*\|.*\|\s*$")
_TABLE_RULE = re.compile(r"\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*$")
_FENCE = re.compile(r"\s*(?:```|~~~)[^`]{0,100}$")
_SCENE = re.compile(r"\s*(?:(?:[-*_~•·][ \t]*){3,}|={3,}|[\u2042\u2766\u2767\u2619]|#)\s*$")
"""A line between scenes, or below a heading."""

_NO_MARK = r"(?!(?:[Vv][Oo][Ii][Cc][Ee]|[Pp][Aa][Uu][Ss][Ee])[:\]])"
"""The brackets of a pause or a voice are no part of a link."""

_NOTED = rf"(?:{ATTRIBUTES})?"
"""Attributes of Pandoc behind a link, code or a heading."""

_CODE_NOTED = re.compile(rf"(?<=`){ATTRIBUTES}")
_HEADING_NOTED = re.compile(rf"[ \t]*{ATTRIBUTES}[ \t]*\Z")
_IMAGE = re.compile(
    r"!\[" + _NO_MARK + r"(?P<text>[^\[\]]{0,500})\]"
    r"\([^()\s]{0,2000}(?:\([^()\s]{0,500}\)[^()\s]{0,500})?(?:\s\"[^\"]{0,200}\")?\)" + _NOTED
)
_LINK = re.compile(
    r"(?<!!)\[" + _NO_MARK + r"(?P<text>[^\[\]]{1,500})\]"
    r"\((?:<[^<>]{0,2000}>|[^()\s]{0,2000}(?:\([^()\s]{0,500}\)[^()\s]{0,500})?)(?:\s[\"'][^\"']{0,200}[\"'])?\)"
    + _NOTED
)
_PRONOUNCED = re.compile(r"(?<!!)\[(?P<word>[^\[\]{}]{1,80})\]\((?P<phones>/(?=[^/()]*[^\x00-\x7f])[^/()]{1,200}/)\)")
"""A word and its phones in IPA, of which one at least is no ASCII: `[Watts](/wˈɑts/)`; `[About](/about/)` is a link."""

_REFERENCE_LINK = re.compile(r"\[" + _NO_MARK + r"(?P<text>[^\[\]]{1,500})\]\[" + _NO_MARK + r"[^\[\]]{0,100}\]")
_DEFINITION = re.compile(r" {0,3}\[" + _NO_MARK + r"[^\[\]]{1,100}\]:[ \t]+(?:<\S+>|\S*[/.#@]\S*)(?:[ \t]+[\"'(].*)?$")
_FOOTNOTE = re.compile(r"\[\^[A-Za-z0-9_-]{1,30}\]")
_AUTOLINK = re.compile(r"<(?P<text>(?:https?://|mailto:)[^<>\s]{1,2000})>")
_STRONG = re.compile(r"(?<![\w*\\])\*{1,3}(?=[^\s*])(?P<text>[^*\n]{1,500}?)(?<=[^\s*])\*{1,3}(?![\w*])")
_STRONG_INSIDE = re.compile(
    r"\*\*(?=[^\s*])(?:(?<![A-Za-z0-9)]..)|(?![0-9]))(?P<text>[^*\n]{1,500}?)(?<=[^\s*])\*\*(?![0-9])"
)
_UNDERLINED = re.compile(r"(?<![\w\\])_{1,3}(?=[^\s_])(?P<text>[^_\n]{1,500}?)(?<=[^\s_])_{1,3}(?!\w)")
_STRUCK = re.compile(r"~~(?P<text>[^~\n]{1,500})~~")
_ESCAPED = re.compile(r"\\(?=[*_#\[\]`~|<>])")


_FORUM = "|".join(sorted(word_set("markup", "forum"), key=len, reverse=True))
_FORUM_MARK = re.compile(rf"\[(?P<end>/?)(?P<name>{_FORUM}|\*)(?P<value>[=\s](?:[^\[\]]{{1,300}}))?\]", re.IGNORECASE)
_FORUM_PICTURE = re.compile(
    r"\[(?P<name>img|image|youtube|video|media|attach|attachment)(?:[=\s][^\[\]]{0,100})?\][^\[\]]{0,500}\[/(?P=name)\]",
    re.IGNORECASE,
)
_FORUM_END = re.compile(rf"\[/(?P<name>{_FORUM})\]", re.IGNORECASE)


def _without_forum_marks(text: str) -> str:
    """`text` without the marks of forums (BBCode): `[b]Bold[/b]`; what no mark ends is none, but for a lone one."""
    ended = {end["name"].lower() for end in _FORUM_END.finditer(text)}

    def read(mark: re.Match[str]) -> str:
        name = mark["name"].lower()
        before, after = text[mark.start() - 1 : mark.start()], text[mark.end() : mark.end() + 1]
        is_item = name == "*" and ("list" in ended or not before.strip())
        opens = len(name) == 1 and not before.isalnum() and (after.isalnum() or after in "\"'[“") and after != ""
        stands_alone = mark[0].strip() == text.strip()
        value = mark["value"] or ""
        if is_item:
            return " . " if before else ""
        if len(name) == 1 and not mark["end"] and before.isalnum():
            return mark[0]  # an index: a[i]
        if mark["end"] or name in ended or value.startswith("=") or (opens and name != "*") or stands_alone:
            return " " if name in ("br", "hr", "quote", "code", "list", "table", "tr", "td", "th", "center") else ""
        return mark[0]

    return _FORUM_MARK.sub(read, _FORUM_PICTURE.sub(" ", text))


def read_line(line: str) -> MarkdownLine:
    """The kind and the text of one line that stands outside of code."""
    if line.lstrip()[:1].isalnum():
        return MarkdownLine(LineKind.PLAIN, line)
    return _read_signed_line(line)


@lru_cache(maxsize=1024)
def _read_signed_line(line: str) -> MarkdownLine:
    """The same of a line that begins with a sign, as every mark does."""
    line = _QUOTE.sub("", line, count=1)
    if _FENCE.fullmatch(line):
        return MarkdownLine(LineKind.FENCE, "")
    if heading := _HEADING.fullmatch(line):
        return MarkdownLine(LineKind.HEADING, inline(_HEADING_NOTED.sub("", heading["text"])))
    if _SCENE.fullmatch(line):
        return MarkdownLine(LineKind.SCENE, "")
    if _DIVISION.fullmatch(line) or _TABLE_RULE.fullmatch(line) or _DEFINITION.fullmatch(line):
        return MarkdownLine(LineKind.RULE, "")
    if _TABLE.fullmatch(line):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        return MarkdownLine(LineKind.TABLE, inline(", ".join(cell for cell in cells if cell)))
    if box := _CHECKBOX.fullmatch(line):
        return MarkdownLine(LineKind.ITEM, inline(box["text"]))
    if item := _FORUM_ITEM.fullmatch(line):
        return MarkdownLine(LineKind.ITEM, inline(item["text"]))
    if item := _ITEM.fullmatch(line):
        return MarkdownLine(LineKind.ITEM, inline(item["text"]))
    return MarkdownLine(LineKind.PLAIN, line)


def read_numbered(line: str) -> MarkdownLine | None:
    """A numbered item: its number becomes a part of its sentence; None where the line is none."""
    numbered = _NUMBERED.fullmatch(line)
    if numbered is None:
        return None
    if numbered["number"].isalpha() and numbered["mark"] == "." and not _is_lettered_item(numbered):
        return None
    return MarkdownLine(LineKind.NUMBERED, f"{numbered['number'].lstrip('0') or '0'}, {inline(numbered['text'])}")


def _is_lettered_item(numbered: re.Match[str]) -> bool:
    """Whether "a. Word" begins an item: small letters before a capital, so that no initial ("J. Smith") does."""
    return numbered["number"].islower() and numbered["text"][0].isupper()


def inline(text: str) -> str:
    """`text` without the marks of links, emphasis and code; links and pictures leave their words, formulas stay."""
    return without_formulas(text, _inline)


def _inline(text: str) -> str:
    if "[" in text:
        text = _without_forum_marks(text)
        text = _IMAGE.sub(r"\g<text>", text)
        text = _PRONOUNCED.sub(r"[\g<word>]{\g<phones>}", text)
        text = _LINK.sub(r"\g<text>", text)
        text = _FOOTNOTE.sub("", text)
        text = _REFERENCE_LINK.sub(lambda link: link[0] if is_direction(f"[{link['text']}]") else link["text"], text)
    if "`{" in text:
        text = _CODE_NOTED.sub("", text)
    if "<" in text:
        text = _AUTOLINK.sub(r"\g<text>", text)
    if "~~" in text:
        text = _STRUCK.sub(r"\g<text>", text)
    if "*" in text:
        text = _STRONG.sub(r"\g<text>", text)
        text = _STRONG_INSIDE.sub(r"\g<text>", text)
    if "_" in text:
        text = _UNDERLINED.sub(r"\g<text>", text)
    return _ESCAPED.sub("", text) if "\\" in text else text
