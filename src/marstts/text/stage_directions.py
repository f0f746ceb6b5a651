"""Stage directions that no model here can act: `[laugh]`, `[sighs softly]`, `(whispers)`, `[tone: sad]`.

Upstream: one block of text as it was written.  Downstream: `normalize`, which leaves them out and says so.
Marks of speakers, `[S1]`, are left out as well. Brackets may hold a sound or a style; parentheses, which prose has
too, only what a person does: "(laughs)".
"""

from __future__ import annotations

import re

from marstts.text.rules.engine import Trace
from marstts.text.rules.tables import word_set

SOUNDS = word_set("markup", "sounds")
"""Names that the tags of other programs have as well: `<laugh>`."""

_IN_PARENTHESES = word_set("markup", "acts")
_IN_BRACKETS = SOUNDS | _IN_PARENTHESES | word_set("markup", "bracketed")
_MANNERS = word_set("markup", "manners")
_MARK = re.compile(
    r"\[(?P<kind>emotion|mood|music|sfx|sound|style|tone)\s?[:=][^\[\]\n]{1,60}\]"
    r"|\[(?P<speaker>S|speaker[ _]?)[0-9]{1,2}\]:?"
    r"|\[(?P<bracket>[a-z][a-z_,' -]{2,50})\]|\((?P<round>[a-z][a-z,' -]{2,50})\)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[a-z_]+")


def is_direction(mark: str) -> bool:
    """Whether these brackets or parentheses, with what they hold, are a stage direction."""
    match = _MARK.fullmatch(mark)
    if match is None or match["kind"] or match["speaker"]:
        return match is not None
    words = _WORD.findall((match["bracket"] or match["round"]).lower())
    acts = _IN_BRACKETS if match["bracket"] else _IN_PARENTHESES
    return not acts.isdisjoint(words) and acts.union(_MANNERS).issuperset(words)


def leave_out_directions(text: str, trace: Trace) -> str:
    """`text` without stage directions; each is left out in `trace`."""

    def read(match: re.Match[str]) -> str:
        if not is_direction(match[0]):
            return match[0]
        trace.leave_out(match[0])
        is_turn = match["speaker"] and match.string[: match.start()].rstrip()[-1:].isalnum()
        return ". " if is_turn else " "  # another speaker, another sentence

    return _MARK.sub(read, text) if "[" in text or "(" in text else text
