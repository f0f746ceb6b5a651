"""Tags in plain text: those of HTML, of SSML and of chat models. What is no speech goes with its content.

Upstream: a text, whole or in pieces as they come.  Downstream: `blocks`, which cuts what is left.
Block tags end sentences, `<break>` becomes a pause mark, `<sup>` a power or nothing, `<laugh>` the mark `[laugh]`.
A name without attributes that no list holds is a tag where its end follows, else a placeholder: "Replace <name>".
The result does not depend on how the text came in pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from marstts.text.mathml import MathReader
from marstts.text.rules.tables import word_set, words
from marstts.text.segments import BREAK_SECONDS
from marstts.text.stage_directions import SOUNDS
from marstts.text.xhtml import Tag as MathTag
from marstts.text.xhtml import read_xhtml

MAX_TAG_CHARACTERS = 500
MAX_WAIT_CHARACTERS = 2000
"""Characters within which the end of an unknown tag must follow."""

_SILENT = word_set("markup", "silent")
_BLOCKS = word_set("markup", "blocks")
_ITEMS = word_set("markup", "items")
_INLINE = word_set("markup", "inline")
_KNOWN = _SILENT | _BLOCKS | _INLINE | word_set("markup", "others") | SOUNDS
_SURE = _KNOWN - word_set("markup", "placeholders")

_TAG = re.compile(
    r"<(?P<end>/?)(?P<name>[A-Za-z][\w:.-]{0,40})(?P<rest>[\s=](?:[^<>\"']*?(?:(?:\"[^\"<]*\"|'[^'<]*')[^<>\"']*?)*?"
    r"|(?P<loose>[^<>]*?)))?\s?(?P<empty>/?)>|(?P<comment><!--)|<\|(?P<token>[A-Za-z_/]{1,40})\|>(?:(?:assistant|system|tool|user)(?=\s|<\|))?"
    r"|(?P<declaration><!(?:doctype|DOCTYPE)\s[^<>]*>|<\?[a-z]{2,10}\s[^<>]*\?>)"
)
"""Values of attributes may hold `>` between quotation marks; `loose` is a rest with an odd mark."""
_UNFINISHED = re.compile(
    r"<(?:\|[A-Za-z_/]{0,40}\|?|/?(?:[A-Za-z][\w:.-]{0,40}(?:[\s=][^<>]*)?\s?/?)?|!-?"
    r"|(?:![A-Za-z]{1,7}|\?[a-z]{0,10})(?:\s[^<>]*)?)\Z"
)
_ROLE_MAY_FOLLOW = re.compile(r"<\|[A-Za-z_/]{1,40}\|>[a-z]{0,9}<?\Z")
"""After a token of a chat model, which the name of a speaker may follow."""

_ATTRIBUTE = re.compile(r"(?P<name>[A-Za-z:-]{1,40})\s?=\s?[\"']?(?P<value>[^\"'<>]{0,200})")
_SECONDS = re.compile(r"\+?([0-9]{1,5}(?:\.[0-9]{1,3})?|\.[0-9]{1,3})(ms|s)")
_INNER_TAG = re.compile(r"<[^<>]{0,200}>")

_POWER = re.compile(
    r"(?:(?<![0-9])(?!(?:1[0-9]|20)[0-9]{2}\Z)[0-9.,]*[0-9]|(?<![A-Za-z])(?:[A-Za-z]|[kcmdn]m|ft|in|yd|mi)"
    r"|\([A-Za-z0-9 ]{1,8}[-+*/=^\u2212][-+*/=^\u2212A-Za-z0-9 ]{1,8}\))\Z"
)
"""What a raised number is a power of: a number that is no year, a letter, a unit of length, a sum in brackets."""

_RAISED_NUMBER = re.compile("[-+\u2212]?(?:[0-9]{1,3}|[nxk])")
_NOTE_MARK = re.compile(r"[\W\d_]{1,12}|\[[a-z]\]")
_CHARGE, _ELEMENT = re.compile("[2-9]?[+\u2212-]"), re.compile(r"(?:(?<![a-z])[A-Z][a-z]?[0-9]{0,2}|\))\Z")
"""The charge of an ion, and the element or the group that it stands behind: Ca^2+, SO4^2-."""

_OLD_RANK = re.compile("(?<![0-9])(?:[2-9](?=[23]))?[23]\\Z")
"""Numbers whose rank was written with a raised d: 2^d, 3^d, 23^d."""

_NOTE_LETTERS = "abcdefgivx"
"""Letters that mark notes; others are the end of a shortened word: Rob^t, Will^m."""

_LONGEST_LISTED = 5
"""Letters of the longest words in the list of words."""

_LAST_LETTERS = re.compile(r"(?<![^\W_])[^\W\d_]{1,12}\Z")
_VARIABLE = re.compile(r"(?<![^\W_])[abcepqrtuvz]\Z")


def raised(before: str, content: str) -> str:
    """What raised characters read as after `before`: a power (10^3), a part of the word (21st), nothing for a note."""
    content = " ".join(content.split())
    if _RAISED_NUMBER.fullmatch(content):
        return "^" + content.replace("\u2212", "-") if _POWER.search(before[-24:]) else ""
    if _CHARGE.fullmatch(content) and _ELEMENT.search(before[-24:]):
        return "^" + content.replace("\u2212", "-")
    if _NOTE_MARK.fullmatch(content) or (content in ("TM", "SM", "R") and before[-1:].isalnum()):
        return ""
    return content if len(content) > 1 else _raised_letter(before[-24:], content)


def _raised_letter(before: str, letter: str) -> str:
    """The end of a shortened word (M^c, S^t, y^e, Sam^l), an exponent (e^t), or nothing: the mark of a note (sea^a)."""
    if letter == "d" and (rank := _OLD_RANK.search(before)) is not None:
        return "nd" if rank[0].endswith("2") else "rd"
    found = _LAST_LETTERS.search(before)
    word = found[0] if found is not None else ""
    if not word or (letter.isupper() and len(word) > 1):
        return ""
    if _VARIABLE.search(before) or (letter.isupper() and word + letter != "MC"):
        return f"^{letter}"
    is_known = len(word) > _LONGEST_LISTED or word.lower() in words()
    return "" if letter in _NOTE_LETTERS and is_known else letter


def lowered(before: str, content: str) -> str:
    """What lowered characters read as after `before`: a part of the word (CO2), letters apart from it (x n)."""
    content = " ".join(content.split())
    return f" {content}" if content[:1].isalpha() and before[-1:].isalnum() else content


def without_tags(pieces: Iterable[str]) -> Iterator[str]:
    """The text that `pieces` make together, without tags."""
    reader = TagReader()
    for piece in pieces:
        yield reader.feed(piece)
    yield reader.flush()


class TagReader:
    """Reads the tags of a text that comes in pieces; `feed` gives what is certain, `flush` what remains."""

    def __init__(self) -> None:
        self._held = ""  # from a tag on whose end has not come
        self._silent = ""  # name of the element whose content is passed over
        self._content: list[str] = []  # of that element
        self._attributes: dict[str, str] = {}  # of that element
        self._formula = ""  # words of the formula that was passed over
        self._unclosed: set[str] = set()  # names of elements that are known to have no end
        self._before = ""  # the last characters given
        self._in_row = False  # whether the line that was begun is a row of a Markdown table

    def feed(self, piece: str) -> str:
        """The text up to what `piece` leaves open."""
        if not (self._held or self._silent or "<" in piece):
            return self._give(piece)
        return self._read(self._held + piece, is_last=False)

    def flush(self) -> str:
        """The rest; content of an element that never ended is text after all, except for a model's thoughts."""
        text = self._read(self._held, is_last=True)
        while self._silent:
            is_thought, content = self._silent in word_set("markup", "thoughts"), "".join(self._content)
            self._unclosed.add(self._silent)
            self._silent, self._content = "", []
            text += "" if is_thought else self._read(content, is_last=True)
        return text

    def _give(self, text: str) -> str:
        if text:
            start = text.rfind("\n") + 1
            if start or not self._before or self._before.endswith("\n"):
                self._in_row = text[start:].lstrip().startswith("|")
            self._before = (self._before + text)[-32:]
        return text

    def _read(self, text: str, *, is_last: bool) -> str:
        given: list[str] = []
        place = 0
        while place < len(text):
            if self._silent:
                place = self._skip(text, place, is_last)
                if self._silent:
                    break
                given.append(self._give(f" {self._formula} "))
                self._formula = ""
                continue
            opening = text.find("<", place)
            if opening < 0:
                given.append(self._give(text[place:]))
                place = len(text)
                break
            given.append(self._give(text[place:opening]))
            end, words = self._tag(text, opening, is_last)
            if end == opening:
                place = opening
                break
            given.append(self._give(words))
            place = end
        self._held = text[place:]
        return "".join(given)

    def _skip(self, text: str, place: int, is_last: bool) -> int:
        """Pass over the content of the silent element; return where it ends, or where the search continues."""
        ending = _end_of(self._silent).search(text, place)
        if ending is not None:
            if self._silent.rpartition(":")[2] == "math":
                content = "".join([*self._content, text[place : ending.end()]])
                self._formula = _read_formula(content, self._attributes)
            self._silent, self._content = "", []
            return ending.end()
        kept = len(text) if is_last else max(place, len(text) - 64)
        self._content.append(text[place:kept])
        return kept

    def _tag(self, text: str, opening: int, is_last: bool) -> tuple[int, str]:
        """Where the tag at `opening` ends, and what is read for it; `opening` again where more text must come."""
        tag = _TAG.match(text, opening, opening + MAX_TAG_CHARACTERS)
        may_go_on = not is_last and len(text) - opening < MAX_TAG_CHARACTERS
        if may_go_on and (_UNFINISHED.match(text, opening) if tag is None else tag["loose"] is not None):
            return opening, ""
        if may_go_on and _ROLE_MAY_FOLLOW.match(text, opening):
            return opening, ""
        if tag is None:
            return opening + 1, "<"
        if tag["comment"]:
            return self._enter("!--", tag.end()) if "!--" not in self._unclosed else (tag.end(), " ")
        if tag["token"] or tag["declaration"]:
            return tag.end(), " "
        if tag.end() == len(text) and not is_last:
            return opening, ""
        if self._before.endswith("`") and text.startswith("`", tag.end()):
            return tag.end(), tag["name"]
        name = tag["name"].lower()
        is_tag = self._is_tag(tag, name, is_last)
        if is_tag is None:
            return opening, ""
        if not is_tag:
            return opening + 1, "<"
        if name == "sub" and (alias := _attributes(tag).get("alias")) and "sub" not in self._unclosed:
            return self._enter("sub", tag.end())[0], alias
        if name in ("sup", "sub") and not tag["end"]:
            return self._shift(text, tag, opening, is_last)
        is_silent = name.rpartition(":")[2] in _SILENT
        if is_silent and name not in self._unclosed and not tag["end"] and not tag["empty"]:
            return self._enter(name, tag.end(), _attributes(tag))
        return tag.end(), self._words(name, tag)

    def _enter(self, name: str, place: int, attributes: dict[str, str] | None = None) -> tuple[int, str]:
        self._silent, self._content, self._attributes = name, [], attributes or {}
        return place, ""

    def _is_tag(self, tag: re.Match[str], name: str, is_last: bool) -> bool | None:
        """Whether it is a tag, and no comparison or placeholder; None where more text must come."""
        rest = tag["rest"] or ""
        if name in _SURE:
            return not rest.strip() or "=" in rest or len(name) > 2
        if tag["end"] or tag["empty"] or "=" in rest or (name in _KNOWN and rest.strip()):
            return True
        limit = tag.end() + MAX_WAIT_CHARACTERS
        if _end_of(name).search(tag.string, tag.end(), limit):
            return True
        return None if not is_last and len(tag.string) < limit else False

    def _shift(self, text: str, tag: re.Match[str], opening: int, is_last: bool) -> tuple[int, str]:
        """The content of `<sup>` or `<sub>`, which is short."""
        name, limit = tag["name"].lower(), tag.end() + MAX_TAG_CHARACTERS
        ending = _end_of(name).search(text, tag.end(), limit)
        if ending is None:
            return (opening, "") if not is_last and len(text) < limit else (tag.end(), "")
        content = text[tag.end() : ending.start()]
        if name == "sub":
            return ending.end(), lowered(self._before, _INNER_TAG.sub("", content))
        is_note = "<a" in content.lower()
        return ending.end(), "" if is_note else raised(self._before, _INNER_TAG.sub("", content))

    def _words(self, name: str, tag: re.Match[str]) -> str:
        if name == "break":
            return "" if tag["end"] else f" [pause:{_pause_seconds(_attributes(tag)):g}s] "
        if name in SOUNDS:
            return "" if tag["end"] else f" [{name}] "
        if name == "br":
            return " " if self._in_row else "\n"
        if name == "hr":
            return "\n\n* * *\n\n"
        if name in _ITEMS:
            return "\n" if tag["end"] or name == "tr" else "\n- "
        if name in _BLOCKS:
            is_heading = len(name) == 2 and name[0] == "h" and name[1].isdigit() and not tag["end"]
            return "\n\n# " if is_heading else "\n\n"
        return "" if name in _INLINE else " "


def _read_formula(content: str, attributes: dict[str, str]) -> str:
    """The words of a formula in MathML, from behind its `<math>`, which has `attributes`, to its end."""
    reader = MathReader(MathTag("math", starts=True, ends=False, attributes=attributes))
    for found in read_xhtml(content):
        if reader.feed(found):
            break
    return reader.words()


@cache
def _end_of(name: str) -> re.Pattern[str]:
    return re.compile("-->" if name == "!--" else rf"</{re.escape(name)}\s{{0,9}}>", re.IGNORECASE)


def _attributes(tag: re.Match[str]) -> dict[str, str]:
    return {match["name"].lower(): match["value"].strip() for match in _ATTRIBUTE.finditer(tag["rest"] or "")}


def _pause_seconds(attributes: dict[str, str]) -> float:
    """Seconds of a break; one whose time cannot be read is a medium one."""
    time = _SECONDS.fullmatch(attributes.get("time", ""))
    if time is not None:
        return float(time[1]) / (1000 if time[2] == "ms" else 1)
    return BREAK_SECONDS.get(attributes.get("strength", "medium"), BREAK_SECONDS["medium"])
