"""Punctuation of spoken text: one mark where several meet, none at the start, spaces where print has them.

Upstream: text that holds letters, spaces and . , ? ! ; : ' - " only.  Downstream: `sentences`.
"""

from __future__ import annotations

import re
from functools import lru_cache

_MARK = r"(?:[.,;:?!]|(?<= )-(?= ))"
_MARKS = re.compile(rf"[.,;:?!](?: ?{_MARK})+| {_MARK}(?: ?{_MARK})*")
"""Pattern of marks that are not one mark right after a word."""

_DOT_INSIDE = re.compile(r"(?<=[A-Za-z])\.(?=[a-z])")
_QUOTES = re.compile(r'""+')
_APOSTROPHES = re.compile("''+")
_DASHES = re.compile(r"(?<![A-Za-z'])-+|-+(?![A-Za-z'])|--+")
_SPACES = re.compile("  +")
_TIGHT_MARK = re.compile(r"([.,;:?!])(?=[A-Za-z])")


def tidy_punctuation(text: str) -> str:
    """One mark where several meet, none at the start, spaces where print has them."""
    text = _DOT_INSIDE.sub(" dot ", text) if "." in text else text  # file names and the like
    text = _QUOTES.sub('"', text) if '""' in text else text
    text = _APOSTROPHES.sub("'", text) if "''" in text else text
    text = _DASHES.sub(" - ", text) if "-" in text else text
    text = f" {_one_space(text).strip()} "
    text = _MARKS.sub(lambda match: _strongest(match[0]), text)
    text = _TIGHT_MARK.sub(r"\1 ", text)
    return _one_space(text).strip(" -").lstrip(" .,;:?!-")


def _one_space(text: str) -> str:
    return _SPACES.sub(" ", text) if "  " in text else text


@lru_cache(maxsize=1024)
def _strongest(marks: str) -> str:
    """The mark that replaces a run of them."""
    if "?" in marks or "!" in marks:
        return ("?" if "?" in marks else "") + ("!" if "!" in marks else "")
    if ".." in marks.replace(" ", ""):
        return "..."
    return next((mark for mark in ".;:," if mark in marks), " -")
