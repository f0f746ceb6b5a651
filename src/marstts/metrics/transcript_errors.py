"""Repetition and truncation: two failures of autoregressive models, found in a recognizer's transcript.

Upstream: the text and the transcript of `recognition`, as plain words.  Downstream: `panel`. Both depend on the
recognizer: compare them with the same rates of the ground truth.
"""

from __future__ import annotations

from collections.abc import Sequence

from marstts.errors import require

MAX_REPEATED_WORDS = 4
"""Longest run of words that is searched for."""

TRUNCATED_RATIO, TRUNCATED_WORDS = 0.2, 2
"""A take is truncated if this fraction of the text, and at least this many words, are missing at its end."""


def has_repetition(text: Sequence[str], transcript: Sequence[str]) -> bool:
    """Whether a run of 1 to 4 words occurs twice in a row in the transcript and not in the text."""
    return bool(repeated_runs(transcript) - repeated_runs(text))


def repeated_runs(words: Sequence[str]) -> set[tuple[str, ...]]:
    """All runs of 1 to 4 words that are followed by themselves."""
    return {
        tuple(words[start : start + length])
        for length in range(1, MAX_REPEATED_WORDS + 1)
        for start in range(len(words) - 2 * length + 1)
        if list(words[start : start + length]) == list(words[start + length : start + 2 * length])
    }


def is_truncated(text: Sequence[str], transcript: Sequence[str]) -> bool:
    """Whether the last words of the text (a fifth of it, at least two or all there are) are missing."""
    missing = words_missing_at_end(text, transcript)
    return missing >= min(len(text), max(TRUNCATED_WORDS, TRUNCATED_RATIO * len(text)))


def words_missing_at_end(text: Sequence[str], transcript: Sequence[str]) -> int:
    """Number of words at the end of the text without a counterpart, right or wrong, in jiwer's alignment."""
    if not transcript:
        return len(text)
    [alignment] = require("jiwer", "eval").process_words(" ".join(text), " ".join(transcript)).alignments
    last = alignment[-1]
    return last.ref_end_idx - last.ref_start_idx if last.type == "delete" else 0
