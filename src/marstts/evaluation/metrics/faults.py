"""What autoregressive models do wrong: saying things twice, and breaking off. Found in what a recogniser heard.

Upstream: the text and what `recognition` heard, as plain words.  Downstream: `judges`. Both depend on the recogniser:
read them beside the same figures of the real recordings.
"""

from __future__ import annotations

from collections.abc import Sequence

from marstts.errors import require

MAX_REPEATED_WORDS = 4
"""Longest run of words looked for twice in a row."""

CUT_SHARE, CUT_WORDS = 0.2, 2
"""A take is cut short if this share of the text, and at least so many words, are missing at its end."""


def repeats_itself(text: Sequence[str], heard: Sequence[str]) -> bool:
    """Whether some run of 1 to 4 words is heard twice in a row, and is not so in the text."""
    return bool(runs_said_twice(heard) - runs_said_twice(text))


def runs_said_twice(words: Sequence[str]) -> set[tuple[str, ...]]:
    """All runs of 1 to 4 words that are followed by themselves."""
    return {
        tuple(words[start : start + length])
        for length in range(1, MAX_REPEATED_WORDS + 1)
        for start in range(len(words) - 2 * length + 1)
        if list(words[start : start + length]) == list(words[start + length : start + 2 * length])
    }


def breaks_off(text: Sequence[str], heard: Sequence[str]) -> bool:
    """Whether the last words of the text (a fifth of it, at least two or all there are) were not heard."""
    missing = words_missing_at_the_end(text, heard)
    return missing >= min(len(text), max(CUT_WORDS, CUT_SHARE * len(text)))


def words_missing_at_the_end(text: Sequence[str], heard: Sequence[str]) -> int:
    """How many words at the end of the text have no counterpart, right or wrong, in the alignment (jiwer)."""
    if not heard:
        return len(text)
    [alignment] = require("jiwer", "eval").process_words(" ".join(text), " ".join(heard)).alignments
    last = alignment[-1]
    return last.ref_end_idx - last.ref_start_idx if last.type == "delete" else 0
