"""Words of metrics: a text or a transcript as a list of plain words; repetition and truncation in transcripts.

Upstream: test-set texts and recognizers' hypotheses.  Downstream: `recognition`, `sphinx`.

The rules, in order: accents dropped; typographic apostrophes straightened; "&", "mr.", "mrs.", "dr.", "i.e." and "etc."
written out; whole numbers read by num2words ("1984" is "one thousand nine hundred and eighty four"); lower case;
everything that is not a letter or an apostrophe inside a word becomes a space, hyphens too. The normalizer is
independent of the front end that prepares text for synthesis, so that a change there cannot change the metrics.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from num2words import num2words

from marstts.errors import require

MAX_DIGITS = 300
"""Longer numbers are read digit by digit: num2words has no names for them."""

WRITTEN_OUT = {
    r"&": " and ",
    r"\bi\.\s?e\.": " that is ",
    r"\betc\b\.?": " et cetera ",
    r"\bmr\b\.?": " mister ",
    r"\bmrs\b\.?": " missus ",
    r"\bdr\b\.?": " doctor ",
}


def plain_words(text: str) -> list[str]:
    """Lower-case words of a-z and inner apostrophes; empty if the text contains none."""
    text = unicodedata.normalize("NFKD", text.replace("\u2019", "'").replace("\u2018", "'")).lower()
    text = "".join(character for character in text if not unicodedata.combining(character))
    for pattern, words in WRITTEN_OUT.items():
        text = re.sub(pattern, words, text)
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    text = re.sub(r"\d+", lambda found: f" {read_number(found.group())} ", text)
    return re.findall(r"[a-z]+(?:'[a-z]+)*", text)


def read_number(digits: str) -> str:
    """A whole number in words."""
    if len(digits) > MAX_DIGITS:
        return " ".join(num2words(int(digit)) for digit in digits)
    return str(num2words(int(digits)))


# Repetition and truncation: two failures of autoregressive models, found in a recognizer's transcript.
# Both depend on the recognizer: compare them with the same rates of the ground truth.

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
