"""Front matter: lines of `key: value` between two `---` (or `+++`) at the beginning of a text, no words of it.

Upstream: the first lines of a text.  Downstream: `blocks` and `books`, which pass over it.
"""

from __future__ import annotations

import re

MAX_LINES = 200

_FENCE = re.compile("(?:---|\\+\\+\\+)[ \\t]*")
_END = re.compile("(?:---|\\.\\.\\.|\\+\\+\\+)[ \\t]*")
_LINE = re.compile(
    r"\s*(?:[#\]}].*)?|[\w][\w .-]{0,60}[ \t]*[:=](?:[ \t].*)?|[ \t]*-(?:[ \t].*)?|[ \t]+\S.*"
    r"|\[{1,2}[\w. -]{1,60}\]{1,2}[ \t]*"
)
_KEY = re.compile(r"[\w][\w .-]{0,60}[ \t]*[:=](?:[ \t].*|$)")


class FrontMatter:
    """Takes the first lines of a text; `take` tells whether it keeps a line, `given_back` what was no front matter."""

    def __init__(self) -> None:
        self.is_open = False
        self.is_over = False
        self._lines: list[str] = []

    def take(self, line: str) -> bool:
        """Whether the line is, or may yet be, part of the front matter."""
        if self.is_over:
            return False
        if not self.is_open:
            if not line.strip():
                return False
            self.is_open = _FENCE.fullmatch(line.lstrip("\ufeff")) is not None
            self.is_over = not self.is_open
            self._lines = [line] if self.is_open else []
            return self.is_open
        if _END.fullmatch(line) and any(map(_KEY.match, self._lines)):
            self._lines, self.is_open, self.is_over = [], False, True
            return True
        if len(self._lines) >= MAX_LINES or _LINE.fullmatch(line) is None or _END.fullmatch(line):
            self.is_open, self.is_over = False, True
            return False
        self._lines.append(line)
        return True

    def given_back(self) -> list[str]:
        """The lines that were kept although they are none of front matter."""
        lines, self._lines = self._lines, []
        self.is_open, self.is_over = False, True
        return lines


def without_front_matter(text: str) -> tuple[str, dict[str, str]]:
    """The text behind its front matter, and the values of one line in that, by key in small letters."""
    matter = FrontMatter()
    rows = text.splitlines(keepends=True)
    stated: dict[str, str] = {}
    for number, row in enumerate(rows):
        line = row.rstrip("\r\n")
        was_open = matter.is_open
        if not matter.take(line):
            if line.strip():
                break
            continue
        if was_open and not matter.is_open:
            return "".join(rows[number + 1 :]), stated
        key, mark, value = line.partition(":" if ":" in line else "=")
        if mark:
            stated.setdefault(key.strip().lower(), value.strip().strip("\"'"))
    return text, {}
