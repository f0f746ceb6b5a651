"""Text as people write it -> text as it is spoken: English words and basic punctuation, nothing else.

Upstream: whatever a person types or a book holds.  Downstream: `sentences`, then the prompt.
Letters A-Z and a-z, spaces and . , ? ! ; : ' - " come out. What has no English reading (emoji, other scripts) is left
out, and `reading.read_text` names it. The time is linear in the text, and normalizing twice changes nothing more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from types import ModuleType

from marstts.text.blocks import Block, cut_blocks
from marstts.text.numbers.words import year_or_number
from marstts.text.placeholders import read_placeholders
from marstts.text.rules.characters import fold_characters
from marstts.text.rules.engine import Step, Trace
from marstts.text.rules.punctuation import tidy_punctuation
from marstts.text.sentences import NUMBER_WORDS, ORDINALS, close
from marstts.text.stage_directions import leave_out_directions

MAX_PASSES = 12
"""Bound of the passes until nothing changes; each pass consumes what it reads, so a few suffice."""


_PLAIN = re.compile(r"[A-Za-z][a-z]*(?:(?:[,;:.?!]? |-|')[A-Za-z][a-z]*)*[.?!]?")
"""Words and marks that stay as they are where no rule reads them, such as the words of a number: nothing to tidy, no
symbol, no initialism."""


_LETTERS = re.compile(r"[A-Za-z]+(?:(?:[,;:.?!]? |-|')[A-Za-z]+)*[.?!]?")
"""The same with capitals anywhere, of which initialisms alone are read where no rule reads them."""

_PLAIN_NUMBER = re.compile("(?P<digits>0|(?!911(?![0-9]))[1-9][0-9]{0,30})(?P<mark>[.,;:!?]?)")
"""Digits alone in a block, with one mark at most, which the last rule reads unless they are a telephone number: a text
may be lines of numbers, each of which is a new one."""

_WORD = re.compile("[^ ,.;:?!-]+")
AMOUNT_WORDS = (NUMBER_WORDS - ORDINALS) | {"and", "point", "minus", "to", "dollar", "dollars", "cent", "cents"}
"""Words that no rule reads, in any order: what is spoken of a text of numbers is often nothing else."""

_OTHER_SCRIPTS = re.compile(
    "(?P<letters>[\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]+)[\u3002\uff0c\uff01\uff1f]?"
)
"""Kana, Chinese characters and Hangul alone in a block, of which nothing is read: a line may be one character."""


def normalize(text: str) -> str:
    """`text` as it is spoken; empty where nothing in it can be.

    Line ends, headings and list items end sentences. The rules are repeated until nothing changes, since what one
    line leaves may be an abbreviation before the next.
    """
    return _repeat(lambda each: join_blocks(read_blocks([each])), text)


def _repeat(read: Callable[[str], str], text: str) -> str:
    """`text` after as many readings as change it."""
    for _ in range(MAX_PASSES):
        again = read(text)
        if again == text:
            break
        text = again
    return text


def read_blocks(pieces: Iterable[str]) -> Iterator[tuple[Block, str, Trace]]:
    """The blocks of a text that comes in pieces, how each is spoken, and which rules read it."""
    for block in cut_blocks(pieces):
        trace = Trace()
        yield block, normalize_block(block.text, trace), trace


def normalize_block(text: str, trace: Trace) -> str:
    """One block of text as it is spoken; empty where nothing in it can be."""
    spoken, steps, left_out = _read_block(text)
    trace.steps.extend(steps)
    trace.left_out.extend(left_out)
    return spoken


@lru_cache(maxsize=1024)
def _read_block(text: str) -> tuple[str, tuple[Step, ...], tuple[str, ...]]:
    """The spoken block, the steps of its first reading, and what has no reading in it."""
    if number := _PLAIN_NUMBER.fullmatch(text):
        spoken = year_or_number(number["digits"])
        return spoken + number["mark"], (Step("number.plain", number["digits"], spoken),), ()
    if unspoken := _OTHER_SCRIPTS.fullmatch(text):
        return "", (), tuple(unspoken["letters"])
    trace = Trace()
    spoken = _normalize_once(text, trace)
    if spoken and spoken != text:
        spoken = _repeat(lambda each: _normalize_once(each, trace), spoken)
    return spoken, tuple(trace.steps), tuple(trace.left_out)


def join_blocks(blocks: Iterable[tuple[Block, str, Trace]]) -> str:
    """The spoken blocks in one line; a block that ends a line gets a stop, except for the last."""
    parts: list[str] = []
    before: Block | None = None
    for block, spoken, _ in blocks:
        if not spoken:
            continue
        if before is not None:
            parts[-1] = close(parts[-1]) if before.is_closed else parts[-1]
            parts.append("" if before.is_cut_word and spoken[0].isalnum() else " ")
        parts.append(spoken)
        before = block
    return "".join(parts)


def _is_of_amounts(text: str) -> bool:
    """Whether a plain text has words of amounts only; prose is known by its first word."""
    first = _WORD.match(text)
    return first is not None and first[0] in AMOUNT_WORDS and AMOUNT_WORDS.issuperset(_WORD.findall(text))


@cache
def _order() -> ModuleType:
    """The module of all rules, imported for the first text: it takes 0.2 s, and to look it up some microseconds."""
    from marstts.text.rules import order

    return order


def _normalize_once(text: str, trace: Trace) -> str:
    order = _order()
    is_plain = _PLAIN.fullmatch(text) is not None
    if is_plain and _is_of_amounts(text):
        return text
    if (is_plain or _LETTERS.fullmatch(text)) and not order.may_be_read(text):
        text = text if is_plain else order.spell_initialisms(text, trace)
        return text if is_plain or _PLAIN.fullmatch(text) else tidy_punctuation(text)
    text = read_placeholders(leave_out_directions(text, trace), trace)
    text = fold_characters(order.read_markup(text, trace), trace)
    if not text:
        return ""
    text = order.read_written_forms(text, trace)
    if _PLAIN.fullmatch(text):
        return text
    text = order.read_signs(text, trace)
    if _PLAIN.fullmatch(text):
        return text
    text = tidy_punctuation(text)
    return text if any(character.isalpha() for character in text) else ""
