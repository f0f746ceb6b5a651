"""Dialogue: which part of a text is said by somebody, and which part the narrator says.

Upstream: `blocks`.  Downstream: `reading`, which gives what is said a voice of its own.
What is said stands in double or single quotation marks, straight or curly. Words and titles in quotation marks within
a sentence are quoted, not said. A speech that goes on over paragraphs opens anew in each of them. Apostrophes, inches
and marks that are never closed open nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from marstts.text.blocks import Block
from marstts.text.markdown import LineKind
from marstts.text.rules.tables import word_set

DOUBLE, SINGLE = '"\u201c\u201d\u201e', "'\u2018\u2019"
MIN_SAID_WORDS = 5
"""Words from which on a quotation within a sentence is taken as said, whatever stands around it."""

MAX_NEAR = 40
"""Characters around a quotation that are looked at."""

_BEFORE_OPENING = re.compile(r"(?:^|[\s(\[{*_/\u2013\u2014\u2026\"'\u2018\u201c-])\Z")
_SAID_MARKS = ",.?!\u2026\u2013\u2014-;:"
_CLOSING = "\"'\u2019\u201d)]*_"
_WORD = re.compile(r"[A-Za-z]+")


def with_quotes(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks with the places of what is said in them; a paragraph waits for the one after it."""
    passages = _passages(blocks)
    passage = next(passages, None)
    while passage is not None:
        following = next(passages, None)
        yield from _marked(passage, following[0].text if following else "")
        passage = following


def _passages(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """The blocks of each line or paragraph."""
    passage: list[Block] = []
    for block in blocks:
        passage.append(block)
        if not block.goes_on:
            yield passage
            passage = []
    if passage:
        yield passage


def _marked(passage: list[Block], following: str) -> Iterator[Block]:
    if passage[0].kind in (LineKind.HEADING, LineKind.CODE):
        yield from passage
        return
    said = quotes_in(" ".join(block.text for block in passage), following)
    start = number = 0
    for block in passage:
        end = start + len(block.text)
        inside: list[tuple[int, int]] = []
        while number < len(said) and said[number][0] < end:
            first, last = said[number]
            if last > start:
                inside.append((max(first, start) - start, min(last, end) - start))
            if last > end:
                break
            number += 1
        yield block._replace(quotes=tuple(inside))
        start = end + 1


def quotes_in(text: str, following: str = "") -> list[tuple[int, int]]:
    """First characters and ends of what is said in a paragraph, marks included; `following` is the next paragraph."""
    said: list[tuple[int, int]] = []
    place = 0
    while (opening := _next_opening(text, place)) is not None:
        marks = DOUBLE if text[opening] in DOUBLE else SINGLE
        end, is_closed = _end_of(text, opening, marks)
        if is_closed:
            if _is_said(text, opening, end):
                said.append((opening, end))
            place = end
        elif end == len(text) and following[:1] in marks and following[:1] and _opens(following, 0):
            said.append((opening, end))
            place = end
        else:
            place = opening + 1
    return said


def _next_opening(text: str, place: int) -> int | None:
    return next((i for i in range(place, len(text)) if text[i] in DOUBLE + SINGLE and _opens(text, i)), None)


def _opens(text: str, place: int) -> bool:
    """Whether the mark at `place` can begin a quotation."""
    mark, after = text[place], text[place + 1 : place + 2]
    if mark in "\u201d\u2019" or not after.strip() or _BEFORE_OPENING.search(text[max(0, place - 1) : place]) is None:
        return False
    if mark in DOUBLE:
        return True
    word = _WORD.match(text, place + 1)
    return not after.isdigit() and (word is None or word[0].lower() not in word_set("dialogue", "elided"))


def _end_of(text: str, opening: int, marks: str) -> tuple[int, bool]:
    """Where the quotation ends, and whether a mark closes it; else where another one opens, or the end of the text."""
    for place in range(opening + 1, len(text)):
        if text[place] not in marks:
            continue
        if _opens(text, place) and (marks == SINGLE or text[place - 1].isspace()):
            return place, False
        if _closes(text, place, marks):
            return place + 1, True
    return len(text), False


def _closes(text: str, place: int, marks: str) -> bool:
    before, after = text[place - 1], text[place + 1 : place + 2]
    if marks == SINGLE:  # after a letter it is an apostrophe
        return (before in _SAID_MARKS or before in '"\u201d)') and not after.isalnum()
    if before.isdigit() and text[place] in '"\u201d':  # inches, where another mark closes the quotation
        return not _closes_later(text, place, marks)
    return not before.isspace() or not after.strip()


def _closes_later(text: str, place: int, marks: str) -> bool:
    """Whether the next mark is one that closes as well."""
    later = next((i for i in range(place + 1, len(text)) if text[i] in marks), None)
    return later is not None and not _opens(text, later)


def _is_said(text: str, opening: int, end: int) -> bool:
    """Whether a quotation is said, and no word or title that a sentence quotes."""
    inside, after = text[opening + 1 : end - 1], text[end : end + MAX_NEAR]
    before = text[max(0, opening - MAX_NEAR) : opening].rstrip()
    ends = inside.rstrip(_CLOSING)[-1:] in _SAID_MARKS
    is_alone = not before and len(text) - end < MAX_NEAR and not any(map(str.isalnum, after))
    is_fresh = not before or not before[-1].isalnum()
    is_announced = before.endswith((",", ":")) and not after.lstrip()[:1].isalnum()
    if is_alone or (is_fresh and ends) or is_announced or len(inside.split()) >= MIN_SAID_WORDS:
        return True
    near = [*_WORD.findall(before)[-2:], *_WORD.findall(after)[:2]]
    return any(word.lower() in _verbs() for word in near)


@cache
def _verbs() -> frozenset[str]:
    return word_set("dialogue", "verbs")
