"""Blocks: a text, whole or in pieces as they come, cut where a sentence is certain to end.

Upstream: text as people wrote it.  Downstream: `normalize`, which reads one block after another.
A line end is a boundary, except inside hard-wrapped prose. A cut never falls into a number, a date, a link or a
quotation. Where the text is cut does not depend on how it came in pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from typing import NamedTuple

from marstts.text.divided import is_divided, without_hyphen
from marstts.text.front_matter import FrontMatter
from marstts.text.markdown import LineKind, MarkdownLine, inline, read_line, read_numbered
from marstts.text.rules.tables import table, word_set
from marstts.text.subtitles import HEADER, NAME, PLACED, REMARK, TIMING
from marstts.text.tags import without_tags

MAX_BLOCK_CHARACTERS = 1000
"""Longer passages without a sentence end are cut at a clause or a space."""

LOOK_AHEAD = 120
"""Characters after the longest block that must be there before it is cut by force."""

SHORTEST_CUT = 3
"""Characters of the shortest passage that a sentence may end in: "! A"."""

LONGEST_WORD = 40
"""Characters before a stop that are looked at."""

MIN_WRAPPED_CHARACTERS = 50
MAX_WRAPPED_CHARACTERS = 120
"""Widths of lines that may be hard-wrapped prose."""


class Block(NamedTuple):
    """A passage that is read independently of the others."""

    text: str
    kind: LineKind
    is_closed: bool
    """Whether a sentence ends with it, whatever its last mark is."""

    is_cut_word: bool = False
    """Whether its last word continues in the next block: a word longer than a block."""

    goes_on: bool = False
    """Whether its line or paragraph goes on in the next block."""

    ends_paragraph: bool = False
    """Whether a blank line follows it."""

    quotes: tuple[tuple[int, int], ...] = ()
    """First characters and ends of what is said in quotation marks, where that was asked for (`dialogue`)."""


_LINE_END = re.compile("\r\n|[\n\r\v\f\x85\u2028\u2029]")
_SENTENCE_END = re.compile(
    "(?P<stop>[.?!…](?<![.?!…].)[.?!…]{0,8})[\"'”\u2019)\\]*_]{0,3}\\s{1,9}(?=[\"'“\u2018(\\[*_]{0,3}[A-Z])"
)
_LAST_WORD = re.compile(r"\S*$")
_SAFE_GAP = re.compile("[a-z][,;:]? (?=[a-z])")
_CLAUSE_GAP = re.compile("[a-z][,;:] (?=[a-z])")
_SPACE = re.compile(" ")
_MARKED_LINE = re.compile(r"\s*(?:[-*+•‣◦▪●\u2013>#|`~=_\[]|[0-9]{1,3}[.)]|[A-Za-z]{1,5}[.)])")


def cut_blocks(pieces: Iterable[str]) -> Iterator[Block]:
    """The blocks of the text that `pieces` make together; a scene break only between two others."""
    scene: Block | None = None
    has_begun = False
    for block in _all_blocks(pieces):
        if block.kind is LineKind.SCENE:
            scene = block if has_begun else None
            continue
        if scene is not None:
            yield scene
        scene, has_begun = None, True
        yield block


def _all_blocks(pieces: Iterable[str]) -> Iterator[Block]:
    cutter = BlockCutter()
    for piece in without_tags(pieces):
        yield from cutter.feed(piece)
    yield from cutter.flush()


class BlockCutter:
    """Cuts a text that comes in pieces; `feed` gives every block that is complete, `flush` what remains."""

    def __init__(self) -> None:
        self._line = ""  # of which the end has not come
        self._passage = ""
        self._last_line = ""  # of the passage
        self._width = 0  # of the longest line of the passage
        self._in_code = False
        self._scanned = 0
        self._list_number = 0
        self._matter = FrontMatter()
        self._in_subtitles = False
        self._in_remark = False  # of a VTT file, up to a blank line
        self._name = ""  # a line that may be the number of a subtitle
        self._after_blank = True
        self._open = False  # whether the incomplete line is part of the passage already

    def feed(self, piece: str) -> Iterator[Block]:
        """Blocks that `piece` completes."""
        text = self._line + piece
        held = "\r" if text.endswith("\r") else ""
        lines = _LINE_END.split(text[: len(text) - len(held)])
        for line in lines[:-1]:
            yield from self._take_line(line)
        self._line = lines[-1] + held
        if self._may_open(self._line):
            yield from self._open_line()

    def flush(self) -> Iterator[Block]:
        """The blocks of what has not been given yet."""
        yield from self._take_line(self._line.rstrip("\r"))
        self._line = ""
        for line in self._matter.given_back():
            yield from self._end_line(line)
        yield from self._give_name()
        yield from self._close_passage()

    def _may_open(self, line: str) -> bool:
        """Whether an incomplete line is plain prose long enough to be cut before its end comes."""
        if self._open:
            return bool(line)
        if self._matter.is_open or self._in_remark or TIMING.match(line) or HEADER.match(line):
            return False
        return not self._in_code and len(line) > 40 and _MARKED_LINE.match(line) is None

    def _open_line(self) -> Iterator[Block]:
        if not self._open:
            yield from self._give_name()
            yield from self._join_line(self._line, self._goes_on(self._line))
            self._open = True
        else:
            self._passage += self._line
            self._last_line += self._line
        self._line = ""
        yield from self._cut_passage()

    # What takes a line gives its blocks in a list, or as an iterator that must be used up before the next line: a text
    # may have a million lines, and most of them end in one block or in none.

    def _take_line(self, text: str) -> Iterable[Block]:
        """A line, unless it is of front matter or of the numbers and times of subtitles."""
        if self._open or self._in_code:
            self._after_blank = False
            return self._end_line(text)
        if not self._matter.is_over:
            return self._take_first_line(text)
        return self._take_text_line(text)

    def _take_first_line(self, text: str) -> Iterator[Block]:
        """A line that may be of the front matter."""
        was_open = self._matter.is_open
        if self._matter.take(text):
            return
        if was_open:
            for line in self._matter.given_back():
                yield from self._end_line(line)
        yield from self._take_text_line(text)

    def _take_text_line(self, text: str) -> Iterable[Block]:
        stripped = text.strip()
        if not stripped:
            self._in_remark, self._after_blank = False, True
            if self._in_subtitles:  # a sentence may go on in the next subtitle
                return ()
            return [*self._give_name(), *self._close_passage(ends_paragraph=True)]
        was_after_blank, self._after_blank = self._after_blank, False
        if "->" in text and TIMING.fullmatch(text):
            self._in_subtitles, self._name = True, ""
        elif ("WEBVTT" in text and HEADER.fullmatch(text)) or (
            self._in_subtitles and was_after_blank and REMARK.fullmatch(text)
        ):
            self._in_subtitles = self._in_remark = True
        elif self._in_remark:
            pass
        elif was_after_blank and (stripped.isdigit() or (self._in_subtitles and NAME.fullmatch(text))):
            named = [*self._give_name()]
            self._name = text
            return named
        else:
            text = PLACED.sub("", text) if self._in_subtitles else text
            return [*self._give_name(), *self._end_line(text)] if self._name else self._end_line(text)
        return ()

    def _give_name(self) -> Iterator[Block]:
        """The line that was kept back as the number of a subtitle, and is none."""
        if self._name:
            name, self._name = self._name, ""
            yield from self._end_line(name)

    def _end_line(self, text: str) -> Iterable[Block]:
        if self._open:
            self._passage += text
            self._last_line += text
            self._open = False
            self._width = max(self._width, len(self._last_line))
            return self._cut_passage()
        if self._in_code:
            return self._read_code(text)
        if not text.strip():
            return self._close_passage(ends_paragraph=True)
        line, goes_on = read_line(text), self._goes_on(text)
        if line.kind is LineKind.PLAIN and not goes_on and ("." in text or ")" in text):
            line = read_numbered(text) or line
        if line.kind is not LineKind.PLAIN:
            return self._end_marked_line(line)
        closed = self._join_line(line.text, goes_on if line.text is text else self._goes_on(line.text))
        self._width = max(self._width, len(line.text))
        return chain(closed, self._cut_passage()) if self._may_be_cut() else closed

    def _end_marked_line(self, line: MarkdownLine) -> Iterator[Block]:
        is_scene = line.kind is LineKind.SCENE and not self._passage
        yield from self._close_passage()
        if is_scene:
            yield Block("", LineKind.SCENE, True)
        self._in_code = line.kind is LineKind.FENCE
        if line.text:
            self._passage = line.text
            yield from self._cut_passage()
            yield from self._close_passage(line.kind)

    def _goes_on(self, line: str) -> bool:
        """Whether the passage goes on in a line, as wrapped prose does ("in\\n1984. Then")."""
        return bool(self._passage) and _is_wrapped(self._last_line, line, self._width)

    def _read_code(self, text: str) -> Iterator[Block]:
        if read_line(text).kind is LineKind.FENCE:
            self._in_code = False
            return
        code = text.strip().rstrip(")]};{")
        for start in range(0, len(code), MAX_BLOCK_CHARACTERS):
            yield Block(code[start : start + MAX_BLOCK_CHARACTERS], LineKind.CODE, True)

    def _join_line(self, line: str, goes_on: bool) -> list[Block]:
        """Append a plain line to the passage, or end the passage and begin another."""
        if not (self._passage and goes_on):
            closed = self._close_passage() if self._passage else []
            self._passage = self._last_line = line
            return closed
        if is_divided(self._passage, line):
            self._passage, glue = without_hyphen(self._passage), ""
            line = line.lstrip()
        else:
            glue = "" if self._passage.endswith((" ", "-")) else " "
        self._passage += glue + line
        self._last_line = line
        return []

    def _close_passage(self, kind: LineKind = LineKind.PLAIN, *, ends_paragraph: bool = False) -> list[Block]:
        text = self._passage.strip()
        self._passage, self._last_line, self._width, self._scanned = "", "", 0, 0
        if not text:
            return []
        is_heading = kind is LineKind.HEADING or ends_paragraph
        if is_heading and text in ("I", "I."):
            text = "1"  # the first chapter; elsewhere "I" is a word
        return [Block(inline(text), kind, True, ends_paragraph=ends_paragraph)]

    def _may_be_cut(self) -> bool:
        """Whether a sentence may end within the passage, or the passage is too long."""
        if len(self._passage) < SHORTEST_CUT:
            return False
        unscanned = max(self._scanned - LOOK_AHEAD, 0)
        if len(self._passage) >= MAX_BLOCK_CHARACTERS or _SENTENCE_END.search(self._passage, unscanned):
            return True
        self._scanned = len(self._passage)
        return False

    def _cut_passage(self) -> Iterator[Block]:
        """Take off every complete sentence."""
        start = 0
        text = self._passage
        position = max(self._scanned - LOOK_AHEAD, 0)
        while True:
            end = _next_end(text, start, position)
            if end is None:
                if len(text) - start < MAX_BLOCK_CHARACTERS + LOOK_AHEAD:
                    break
                end = _forced_end(text, start)
                is_cut_word = not text[end - 1].isspace()
                yield Block(inline(text[start:end].strip()), LineKind.PLAIN, False, is_cut_word, goes_on=True)
            else:
                yield Block(inline(text[start:end].strip()), LineKind.PLAIN, True, goes_on=True)
            start = position = end
        self._passage = text[start:]
        self._scanned = len(self._passage)


def _is_wrapped(line: str, following: str, width: int) -> bool:
    """Whether a line end is no boundary: the sentence continues in the following line."""
    last, following = line.rstrip()[-1:], following.lstrip()
    if not last or not following:
        return False
    if following[0].islower() or last == ",":
        return last not in ".?!:"
    if not MIN_WRAPPED_CHARACTERS <= len(line) <= MAX_WRAPPED_CHARACTERS:
        return False
    first_word = following.split(maxsplit=1)[0]
    return len(line) + 1 + len(first_word) > max(width, MIN_WRAPPED_CHARACTERS)


def _next_end(text: str, start: int, position: int) -> int | None:
    """Position where the first sentence after `start` is certain to end, searched from `position` on."""
    limit = start + MAX_BLOCK_CHARACTERS
    for match in _SENTENCE_END.finditer(text, max(position, start), limit + LOOK_AHEAD):
        if match.end() > limit:
            return None
        before = text[max(match.start() - LONGEST_WORD, start) : match.start()]
        if _ends_sentence(before, match["stop"]) and _is_balanced(text[start : match.end()]):
            return match.end()
    return None


def _ends_sentence(before: str, stop: str) -> bool:
    if stop != ".":
        return True
    word = _LAST_WORD.search(before)[0].lstrip("\"'“\u2018([*_")  # type: ignore[index]  # matches everywhere
    if not (len(word) >= 3 and word.isalpha() and word[1:].islower()):
        return False
    return word.lower() not in _short_forms()


def _is_balanced(text: str) -> bool:
    """Whether no bracket, quotation or emphasis is open at the end of `text`."""
    return (
        text.count("[") <= text.count("]")
        and text.count("(") <= text.count(")")
        and text.count('"') % 2 == 0
        and text.count("“") <= text.count("”")
        and text.count("*") % 2 == 0
        and text.count("`") % 2 == 0
    )


def _forced_end(text: str, start: int) -> int:
    """Position to cut a passage without sentence ends: after a clause, else between words, else anywhere."""
    end = start + MAX_BLOCK_CHARACTERS
    for pattern in (_CLAUSE_GAP, _SAFE_GAP, _SPACE):
        gaps = [match.end() for match in pattern.finditer(text, start + MAX_BLOCK_CHARACTERS // 2, end)]
        if gaps:
            return gaps[-1]
    return end


@cache
def _short_forms() -> frozenset[str]:
    """Every abbreviation that has a stop, in small letters."""
    data = table("abbreviations")
    groups = ("before_names", "ranks", "anywhere", "closing", "before_numbers", "streets", "weekdays")
    units = (unit.split(".")[0].lower() for unit in table("units")["plain"] if unit[0].isalpha())
    joined = (short.lower() for short in word_set("abbreviations", "joined"))
    return frozenset(short.lower() for group in groups for short in data[group]) | frozenset(units) | frozenset(joined)
