"""Intonation of questions: where the pitch rises at the end of a sentence, and where it falls.

Upstream: normalized sentences.  Downstream: `mars6.spelling`, which puts a mark before the final one.
Yes/no questions rise, questions with a question word and between alternatives fall (J. C. Wells, "English Intonation",
2006, chapter 2). A user decides with `[rising]` and `[falling]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from marstts.text.phones import FALLING, RISING

_QUESTION = re.compile(r"(?P<before>[^.?!;:]*)\?")
_FIRST_WORDS = 3
"""Words before a question that belong to none: "Well, Anna, is it late?"."""

_AUXILIARIES = frozenset(
    """
    am is are was were do does did can could will would shall should may might must have has had ain't
    isn't aren't wasn't weren't don't doesn't didn't can't cannot couldn't won't wouldn't shan't
    shouldn't mightn't mustn't haven't hasn't hadn't
    """.split()  # noqa: SIM905
)
_QUESTION_WORDS = frozenset(
    """
    who whom whose what which when where why how what's who's where's how's when's why's
    """.split()  # noqa: SIM905
)
_WORD = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)?")
_TAG = re.compile(
    rf",? (?:{'|'.join(sorted(_AUXILIARIES))})(?: not)? (?:I|you|he|she|it|we|they|there|one)$"
    r"|, (?:right|okay|eh|yes|no)$",
    re.IGNORECASE,
)
_ALTERNATIVE = re.compile(r"\bor (?!not\b|so\b)", re.IGNORECASE)
_MAX_WORDS_OF_STATEMENT = 8
"""Longer sentences with a question mark and the order of a statement stay as a model reads them."""


def final_contours(text: str) -> Iterator[tuple[int, str]]:
    """Places of question marks in a text, and the mark of their contour; those that no rule knows are left out."""
    for question in _QUESTION.finditer(text):
        before = question["before"]
        if before and before[-1] in (RISING, FALLING):
            continue
        contour = contour_of(before.strip().strip("\"'").rstrip())
        if contour is not None:
            yield question.end() - 1, contour


def rises_at_end(text: str) -> bool:
    """Whether a normalized sentence ends with a question whose pitch rises, by rule or by the user's mark."""
    said = text.rstrip().rstrip("\"'")
    if said[-2:-1] in (RISING, FALLING):
        return said[-2] == RISING
    found = list(final_contours(said))
    return bool(found) and found[-1] == (len(said) - 1, RISING)


def contour_of(question: str) -> str | None:
    """The contour of a question without its mark; None where it cannot be told."""
    words = [word.lower() for word in _WORD.findall(question)]
    if not words:
        return None
    tag = _TAG.search(question)
    if tag and (tag[0].startswith(",") or words[0] not in _QUESTION_WORDS):  # "Where is it?" has no tag
        return RISING
    clause = [word.lower() for word in _WORD.findall(question.rsplit(",", 1)[-1])] or words
    for start in (words[: _FIRST_WORDS + 1], clause[: _FIRST_WORDS + 1]):
        if start[0] in _AUXILIARIES:
            return FALLING if _ALTERNATIVE.search(question) else RISING
    if any(word in _QUESTION_WORDS for word in (*words[:_FIRST_WORDS], *clause[:_FIRST_WORDS])):
        return FALLING
    if _ALTERNATIVE.search(question):
        return FALLING
    return RISING if len(words) <= _MAX_WORDS_OF_STATEMENT else None
