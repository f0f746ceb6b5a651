"""Heteronyms, which are said as their use in the sentence asks for: "a record", "to record", "I read it yesterday".

Upstream: `data/heteronyms.tsv`, `uses`.  Downstream: `words`, for models that read phones; respellings, for those of
letters.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal, NamedTuple

from marstts.text.pronunciation.uses import USES, Use, ends_with_s, log_odds, log_odds_with_tense

Phones = tuple[str, ...]


class Heteronym(NamedTuple):
    """The phones of a word, by its use; none where it has no such use."""

    noun: Phones
    adjective: Phones
    verb: Phones
    past: Phones

    def phones(self, use: Use) -> Phones:
        """The phones of this use."""
        return self[USES.index(use)]


class UsedWord(NamedTuple):
    """A heteronym in a text."""

    word: str
    """In small letters, as the table has it."""

    use: Use
    """The first of those with the same phones: an adjective that is said as the noun is a noun."""

    ending: Literal["", "s", "'s"]

    phones: Phones
    """Without those of the ending."""


def in_context(word: str, text: str, start: int) -> UsedWord | None:
    """The likeliest use of a word, which may have an ending, that begins at `start` in a text; None for other words."""
    word = word.lower()
    ending: Literal["", "s", "'s"] = ""
    if word not in table() and word.endswith("s"):
        ending = "'s" if word.endswith("'s") else "s"
        word = word.removesuffix(ending)
    heteronym = table().get(word)
    if heteronym is None:
        return None
    possible = [use for use in _uses_of_form(word, ending) if heteronym.phones(use)]
    if not possible:
        return None
    nats = (log_odds_with_tense if heteronym.past else log_odds)(word, text, start)
    phones = heteronym.phones(max(possible, key=lambda use: nats[use]))
    return UsedWord(word, next(use for use in USES if heteronym.phones(use) == phones), ending, phones)


def _uses_of_form(word: str, ending: str) -> tuple[Use, ...]:
    """The uses that a form may have."""
    if ending == "'s":
        return ("noun",)
    return ("noun", "verb") if ending == "s" or ends_with_s(word) else USES


@cache
def table() -> dict[str, Heteronym]:
    """The heteronyms by their letters."""
    lines = files(__package__).joinpath("data", "heteronyms.tsv").read_text(encoding="ascii").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return {
        word: Heteronym(*(() if phones == "-" else tuple(phones.split()) for phones in columns))
        for word, *columns in rows
    }
