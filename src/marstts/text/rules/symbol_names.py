"""Names of the symbols that no rule has read: @ -> at; brackets become commas, and what has no name is left out.

Upstream: text whose written forms are read.  Downstream: `initialisms`.
"""

from __future__ import annotations

import re

from marstts.text.rules.engine import Trace
from marstts.text.rules.tables import table

_NAMED = table("symbols")["named"]
_NAMED_SYMBOL = re.compile(f"[{re.escape(''.join(_NAMED))}]")
_BRACKETS = re.compile(r"[()\[\]{}]+")
_NOT_READ = re.compile(r"[^A-Za-z.,?!;:'\" -]")


def name_symbols(text: str, trace: Trace) -> str:
    """Symbols with a name are read; brackets part like commas; the others part like spaces and are left out."""

    def name(match: re.Match[str]) -> str:
        trace.record("symbol.named", match[0], _NAMED[match[0]])
        return f" {_NAMED[match[0]]} "

    def drop(match: re.Match[str]) -> str:
        trace.leave_out(match[0])
        return " "

    text = _NAMED_SYMBOL.sub(name, text)
    text = _BRACKETS.sub(" , ", text)
    text = text.replace("—", " - ")
    return _NOT_READ.sub(drop, text)
