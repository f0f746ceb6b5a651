"""Written forms whose rule is data: a pattern and its reading, from `data/forms.toml`.

Upstream: raw text (`RAW`), folded text (`EARLY`), text whose abbreviations are read (`LATE`).  Downstream: the rules of
`normalize`; most forms only bring a text into the shape that another rule reads.
"""

from __future__ import annotations

import re
from typing import Any

from marstts.text.rules.engine import Rule, rule
from marstts.text.rules.tables import table

_GROUP = re.compile(r"\\([0-9])")


def rules_of(stage: str, prefix: str = "") -> tuple[Rule, ...]:
    """The rules of a table in the file, in its order; `prefix` comes before their names."""
    return tuple(_rule_of(form, prefix) for form in table("forms")[stage])


def _rule_of(form: dict[str, Any], prefix: str) -> Rule:
    """The rule of one entry; `say` replaces what a group matched by a word."""
    say: dict[str, str] = form.get("say", {})
    template = form["read"]

    def read(match: re.Match[str]) -> str:
        return _GROUP.sub(lambda group: _said(match[int(group[1])], say), template)

    return rule(prefix + form["name"], form["pattern"], read, parted=form.get("parted", False))


def _said(written: str | None, say: dict[str, str]) -> str:
    return say.get(written, written) if written else ""


RAW, EARLY, LATE = (rules_of(stage, "form.") for stage in ("raw", "early", "late"))
