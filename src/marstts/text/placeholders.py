"""Placeholders of templates, read as their names: `${name}`, `{{ first_name }}`, `{userName}`, `%{count}`.

Upstream: one block of text as it was written.  Downstream: `normalize`, before formulas and brackets are read.
Braces behind a letter, a bracket or a sign of LaTeX are an argument, and a single letter in plain braces may be a set.
"""

from __future__ import annotations

import re

from marstts.text.rules.engine import Trace
from marstts.text.rules.latex import without_formulas

_NAME = r"[A-Za-z][A-Za-z0-9]{0,40}(?:[_.-]{1,2}[A-Za-z0-9]{1,40}){0,8}"
_FORMAT = r"(?:![rsa])?(?::[<>^=+#0-9.,-]{0,8}[bcdeEfFgGnosxX%]?|:[-=?+][^{}]{0,60}|\s?\|[^{}]{0,60})?"
"""How the value is shown, a default for it, or filters: `{price:.2f}`, `${name:-you}`, `{{ name | title }}`."""

_MARKED = re.compile(
    rf"(?<!\\)(?:[$#%@]\{{\s?(?P<signed>{_NAME}){_FORMAT}\s?\}}"
    rf"|(?<![\w\\^_{{}}\])])\{{(?P<more>\{{{{1,2}})\s?(?P<doubled>{_NAME}){_FORMAT}\s?\}}{{2,3}})"
)
_PLAIN = re.compile(rf"(?<![\w\\^_{{}}\])$])(?<!\] )\{{\s?(?P<name>(?![A-Za-z]\s?\}}){_NAME}){_FORMAT}\s?\}}(?![{{}}])")
_PART = re.compile(r"[_.-]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def read_placeholders(text: str, trace: Trace) -> str:
    """`text` with the names of its placeholders in their place."""
    if "{" not in text or "}" not in text:
        return text

    def read(match: re.Match[str]) -> str:
        words = words_of(next(name for name in match.groupdict().values() if name and name[0] != "{"))
        trace.record("placeholder", match[0], words)
        before, after = match.string[match.start() - 1 : match.start()], match.string[match.end() : match.end() + 1]
        is_apart_before, is_apart_after = not before.isalnum(), not (after.isalnum() or after in ("{", "$", "#", "%"))
        return ("" if is_apart_before else " ") + words + ("" if is_apart_after or not after else " ")

    text = _MARKED.sub(read, text)
    return without_formulas(text, lambda each: _PLAIN.sub(read, each)) if "{" in text else text


def words_of(name: str) -> str:
    """The words of a name as programs have them: first_name, firstName -> first name; user.ID -> user ID."""
    parts = [part for part in _PART.split(name) if part]
    return " ".join(part if part.isupper() else part.lower() for part in parts)
