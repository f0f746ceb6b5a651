"""Heteronyms whose noun and verb differ: "a record", "to record".

Upstream: `data/heteronyms.tsv`.  Downstream: `words`, for models that read phones; respellings, for those of letters.
The word before decides: an article or a preposition makes a noun (or an adjective), "to" or a pronoun a verb. Where it
says nothing, a heteronym has no phones, and the model reads its letters.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Literal, NamedTuple

_BEFORE = re.compile(r"([A-Za-z]+(?:'[A-Za-z]+)*) $")

_BEFORE_NOUNS = frozenset(
    (  # noqa: SIM905
        "a an the this these those my your his her its our their no any some every each another one two of in on for "
        "with by from at into without under about such new old first last next great good bad big small whole same "
        "other own more most very too"
    ).split()
)
_BEFORE_VERBS = frozenset(
    (  # noqa: SIM905
        "to will would shall should can could may might must cannot not never do does did i we you they who let's "
        "don't doesn't didn't can't couldn't won't wouldn't shouldn't i'll we'll you'll they'll he'll she'll it'll i'd "
        "we'd you'd they'd he'd she'd please"
    ).split()
)
_CONTRACTED = frozenset("it's he's she's that's there's here's what's who's where's how's let's".split())  # noqa: SIM905
"""Words with "is" or "us", which are no possessives: what follows may be anything."""

_BEFORE_VERBS_WITH_S = frozenset(["he", "she", "it", "who", "which"])


Use = Literal["noun", "verb"]
"""Adjectives count as nouns."""


class Heteronym(NamedTuple):
    """The phones of a word, by its use."""

    noun: tuple[str, ...]
    """Of adjectives as well."""

    verb: tuple[str, ...]

    def phones(self, use: Use) -> tuple[str, ...]:
        """The phones of this use."""
        return self.noun if use == "noun" else self.verb


class UsedWord(NamedTuple):
    """A heteronym in a text."""

    word: str
    """In small letters, as the table has it."""

    use: Use
    ending: Literal["", "s", "'s"]

    @property
    def phones(self) -> tuple[str, ...]:
        """Without those of the ending."""
        return table()[self.word].phones(self.use)


def in_context(word: str, text_before: str) -> UsedWord | None:
    """The use of a heteronym, which may have an ending, after this text.

    None for other words, and where the text does not tell.
    """
    word = word.lower()
    ending: Literal["", "s", "'s"] = ""
    if word.endswith("s"):
        ending = "'s" if word.endswith("'s") else "s"
        ending = ending if word.removesuffix(ending) in table() else ""
    heteronym = word.removesuffix(ending)
    before = _BEFORE.search(text_before) if heteronym in table() else None
    if before is None:
        return None
    last = before[1].lower()
    is_possessive = last.endswith("'s") and last not in _CONTRACTED
    if ending == "'s" or is_possessive or last in _BEFORE_NOUNS:
        return UsedWord(heteronym, "noun", ending)
    is_verb = last in (_BEFORE_VERBS_WITH_S if ending else _BEFORE_VERBS)
    return UsedWord(heteronym, "verb", ending) if is_verb else None


@cache
def table() -> dict[str, Heteronym]:
    """The heteronyms by their letters."""
    lines = files(__package__).joinpath("data", "heteronyms.tsv").read_text(encoding="ascii").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return {word: Heteronym(tuple(noun.split()), tuple(verb.split())) for word, noun, verb in rows}
