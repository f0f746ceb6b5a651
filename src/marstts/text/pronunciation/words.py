"""Words of a sentence in phones: which words, and by what.

Upstream: `dictionary`, `letters_to_sounds`.  Downstream: `mars6.spelling` (synthesis), `mixing` (training).
After K. Kastner et al., "Representation Mixing for TTS Synthesis" (arXiv:1811.07240): a model reads letters and phones,
mixed word by word. Heteronyms have the phones of their use in the sentence (`heteronyms`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from marstts.text.phones import PHONE_RUN, as_characters, as_phones
from marstts.text.pronunciation import graphones, heteronyms
from marstts.text.pronunciation.dictionary import Pronunciation, look_up
from marstts.text.pronunciation.graphones import graphones_of
from marstts.text.pronunciation.letters_to_sounds import guess

WORD = re.compile(r"(?<![A-Za-z'])[A-Za-z]+(?:'[A-Za-z]+)*")

_POSSESSIVE_PHONES = rf"(?P<phones>{PHONE_RUN.pattern})(?P<possessive>'s(?![A-Za-z]))?"
_PIECE = re.compile(rf"{_POSSESSIVE_PHONES}|(?P<word>{WORD.pattern})")

QUOTED_WORD = re.compile(r"(?<![A-Za-z])(?<![A-Za-z]')[A-Za-z]+(?:'[A-Za-z]+)*")
"""A word, also one after a quotation mark."""

_ANY_PIECE = re.compile(rf"{_POSSESSIVE_PHONES}|(?P<word>{QUOTED_WORD.pattern})")
_SIBILANTS = frozenset(["S", "Z", "SH", "ZH", "CH", "JH"])
_VOICELESS = frozenset(["P", "T", "K", "F", "TH"])


class PhoneUse(str, Enum):
    """Words that a model reads in phones."""

    NONE = "none"
    """A model of letters: phones that a user gives become letters (`lexicon.respell`)."""

    CONTOURS = "contours"
    """The same, but the model reads the marks of intonation (`text.intonation`)."""

    GIVEN = "given"
    """Words whose pronunciation a user gives."""

    KNOWN = "known"
    """All words of the table, heteronyms by their use, and those that the letter-to-sound model reads."""

    GRAPHONES = "graphones"
    """The same words, each letter with its phone (`graphones`); words whose pronunciation a user gives are phones."""

    @property
    def has_phones(self) -> bool:
        """Whether the model reads phones at all."""
        return self in (PhoneUse.GIVEN, PhoneUse.KNOWN, PhoneUse.GRAPHONES)


class PhoneWord(NamedTuple):
    """A word of a text that is read in phones."""

    start: int
    end: int
    """First character of the text and last + 1."""

    characters: str
    """Its phones, or its letters with phones, as characters."""


def word_pieces(text: str) -> Iterator[tuple[str, int, str]]:
    """The words of a text in order, where they begin, and the phones, as characters, of those that a user gave."""
    for piece in _ANY_PIECE.finditer(text):
        yield piece[0], piece.start(), given_phones(piece) if piece["phones"] else ""


def given_phones(piece: re.Match[str]) -> str:
    """The characters of a word that a user gave, with its ending."""
    return piece["phones"] + (as_characters(possessive(as_phones(piece["phones"]))) if piece["possessive"] else "")


OtherLetters = Callable[[str, str, int], str | None]
"""The letters that a model reads better in place of those of a word, which begins at a place of a text, or None."""


def phone_words(text: str, use: PhoneUse, other_letters: OtherLetters | None = None) -> Iterator[PhoneWord]:
    """The words of a text that a model reads in phones, in order; those that a user gave have characters already.

    `other_letters`: for graphones, which keep the phones of the word.
    """
    for piece in _PIECE.finditer(text):
        if piece["phones"]:
            yield PhoneWord(*piece.span(), given_phones(piece))
        elif use in (PhoneUse.KNOWN, PhoneUse.GRAPHONES):
            word = piece["word"]
            phones = phones_in_context(word, text, piece.start())
            if phones is not None and use is PhoneUse.KNOWN:
                yield PhoneWord(*piece.span(), as_characters(phones))
            elif phones is not None:
                letters = (other_letters and other_letters(word, text, piece.start())) or word
                said = graphones_of(letters.replace("-", ""), phones)
                yield PhoneWord(*piece.span(), graphones.as_characters(said))


def phones_in_context(word: str, text: str, start: int) -> tuple[str, ...] | None:
    """The phones of a word that begins at `start` in a text; None for lone letters, and words that vary otherwise."""
    found = heteronyms.in_context(word, text, start)
    if found is None:
        return phones_of(word)
    return (*found.phones, *possessive(found.phones)) if found.ending else found.phones


def phones_of(word: str) -> tuple[str, ...] | None:
    """The phones of a word by the table, else by the letter-to-sound model; None for heteronyms and lone letters."""
    found = known_phones(word)
    if found is not None:
        return None if found.depends_on_context else found.phones
    return guess(word) if len(word) > 1 else None


@lru_cache(maxsize=4096)
def known_phones(word: str) -> Pronunciation | None:
    """The pronunciation of a word by the table, plurals and possessives included; None where the table has none."""
    found = look_up(word)
    if found is None and word.lower().endswith("s"):
        stem = look_up(word[:-2] if word[-2:-1] == "'" else word[:-1])
        if stem is not None:
            return Pronunciation((*stem.phones, *possessive(stem.phones)), stem.depends_on_context)
    return found


def possessive(phones: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """The phones of "'s", or of a plural's "s", after a word."""
    last = phones[-1].rstrip("012") if phones else ""
    if last in _SIBILANTS:
        return ("IH0", "Z")
    return ("S",) if last in _VOICELESS else ("Z",)
