"""Text as people write it -> text as it is spoken: English words and basic punctuation, nothing else.

Upstream: whatever a person types or a book holds.  Downstream: `sentences`, then the prompt.
Letters A-Z and a-z, spaces and . , ? ! ; : ' - " come out. What has no English reading (emoji, other scripts) is left
out, and `reading.read_text` names it. The time is linear in the text, and normalizing twice changes nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from marstts.lazy import lazy_module
from marstts.text.blocks import Block, cut_blocks
from marstts.text.plain import cut_passages, is_spoken
from marstts.text.rules.characters import fold_characters
from marstts.text.rules.engine import Step, Trace
from marstts.text.rules.punctuation import tidy_punctuation
from marstts.text.sentences import close

if TYPE_CHECKING:
    from marstts.text.rules import order as rule_order
else:
    rule_order = lazy_module("marstts.text.rules.order")

MAX_PASSES = 12
"""Bound of the passes until nothing changes; each pass consumes what it reads, so a few suffice."""


def normalize(text: str) -> str:
    """`text` as it is spoken; empty where nothing in it can be.

    Line ends, headings and list items end sentences. The rules are repeated until nothing changes, since what one
    line leaves may be an abbreviation before the next.
    """
    spoken = text if is_spoken(text) else join_blocks(read_blocks([text]))
    return _repeat(lambda each: _read_spoken(each, Trace()), spoken)


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
    trace = Trace()
    spoken = _normalize_once(text, trace)
    if spoken != text:
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


def _normalize_once(text: str, trace: Trace) -> str:
    if not is_spoken(text):
        text = fold_characters(rule_order.read_markup(text, trace), trace)
    return _read_spoken(text, trace) if is_spoken(text) else _apply_rules(text, trace)


def _read_spoken(text: str, trace: Trace) -> str:
    """A text of words and marks; only its passages that are not plain are read by rules."""
    parts = []
    for passage, plain in cut_passages(text):
        if plain:
            parts.append(_with_letters(tidy_punctuation(passage)))
            continue
        spoken, steps, left_out = _read_passage(passage)
        trace.steps.extend(steps)
        trace.left_out.extend(left_out)
        parts.append(spoken)
    return " ".join(filter(None, parts))


@lru_cache(maxsize=4096)
def _read_passage(passage: str) -> tuple[str, tuple[Step, ...], tuple[str, ...]]:
    """The passage after one application of the rules, the steps, and what has no reading; most are seen twice."""
    trace = Trace()
    return _apply_rules(passage, trace), tuple(trace.steps), tuple(trace.left_out)


def _apply_rules(text: str, trace: Trace) -> str:
    return _with_letters(tidy_punctuation(rule_order.read_written_forms(text, trace)))


def _with_letters(text: str) -> str:
    return text if any(character.isalpha() for character in text) else ""
