"""Subtitles in a text (SRT and VTT): numbers and times of the lines that are shown, which nobody says.

Upstream: lines of a text.  Downstream: `blocks`, which passes over them and joins what goes on in the next subtitle.
"""

from __future__ import annotations

import re

TIMING = re.compile(
    r"\s*(?:[0-9]{1,3}:)?[0-9]{1,2}:[0-9]{2}[.,][0-9]{1,3}[ \t]*-{1,2}>[ \t]*"
    r"(?:[0-9]{1,3}:)?[0-9]{1,2}:[0-9]{2}[.,][0-9]{1,3}"
    r"(?:[ \t]+[\w-]+:\S{1,40}){0,8}\s*"
)
"""The line of times of a subtitle."""

NAME = re.compile(r"\s*[\w.:-]{1,40}\s*")
"""The line before, which numbers or names it."""

HEADER = re.compile("\ufeff?WEBVTT(?:[ \\t].*)?")
"""The first line of a VTT file."""

REMARK = re.compile(r"(?:NOTE|STYLE|REGION)(?:[ \t].*)?")
"""The first line of a passage of a VTT file that is not shown."""

PLACED = re.compile(
    r"\{\\[A-Za-z0-9&(),.\\]{1,60}\}"
    r"|</?(?:v|c|i|b|u|lang|ruby|rt)(?:\.[\w.-]{1,60})?(?:[ \t][^<>]{0,80})?>"
    r"|<(?:[0-9]{1,3}:)?[0-9]{2}:[0-9]{2}\.[0-9]{3}>"
)
"""Where, how, by whom or when a subtitle is shown: `{\\an8}`, `<v Bob>`, `<c.yellow>`, `<00:01.500>`."""
