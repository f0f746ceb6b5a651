"""Phones: the sounds of English as ARPAbet with stress, and as characters that stand for them within a text.

Upstream: `pronunciation` (dictionary, letter-to-sound model), pronunciations that a user gives (`lexicon`, `ssml`).
Downstream: the tokenizers of models that read phones; `lexicon.respell` for models that read letters only.
A phone within a text is one letter of a script that English texts never have (Duployan, U+1BC00), so that a word in
phones passes every rule of reading as one unknown word, and keeps its place among the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from marstts.errors import DataError

CONSONANTS = tuple("B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH".split())  # noqa: SIM905
VOWELS = tuple("AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW".split())  # noqa: SIM905
PHONES = (*CONSONANTS, *(f"{vowel}{stress}" for vowel in VOWELS for stress in "012"))
"""The 69 phones of ARPAbet; vowels have a stress: 1 primary, 2 secondary, 0 none."""

LABELS = (*CONSONANTS, *VOWELS)
"""The 39 phones without stress, in the order in which a phone recognizer has them, after its blank."""

FIRST_CHARACTER = 0x1BC00
CHARACTERS = {phone: chr(FIRST_CHARACTER + number) for number, phone in enumerate(PHONES)}
"""The character of each phone."""

RISING, FALLING = chr(FIRST_CHARACTER + 0x50), chr(FIRST_CHARACTER + 0x51)
"""Marks before the final mark of a sentence: its pitch rises, or falls, at the end."""

PHONE_TOKENS = (*CHARACTERS.values(), RISING, FALLING)
"""Characters that are one token each for a model that reads phones, in the order of their ids."""

_NAMES = {character: phone for phone, character in CHARACTERS.items()}
PHONE_CHARACTERS = f"{PHONE_TOKENS[0]}-{PHONE_TOKENS[-1]}"
"""The range of the characters in a class of a regular expression."""

PHONE_RUN = re.compile(f"[{CHARACTERS[PHONES[0]]}-{CHARACTERS[PHONES[-1]]}]+")
"""A word, or a part of one, in phones."""

PAIR_LETTERS = "abcdefghijklmnopqrstuvwxyz'"
"""Letters that a model may read with a phone."""

FIRST_PAIR = 0xF0000
PAIR_TOKENS = tuple(chr(FIRST_PAIR + number) for number in range(len(PAIR_LETTERS) * (len(PHONES) + 1)))
"""Characters for a letter with a phone, by letter, then by phone; the last one of each letter is for a silent letter.

Private characters of Unicode (plane 15), one token each. Only sentences that a model is about to read have them.
"""

_RESERVED = dict.fromkeys((*range(FIRST_CHARACTER, FIRST_CHARACTER + 0x60), *map(ord, PAIR_TOKENS)))


def as_characters(phones: Iterable[str]) -> str:
    """Phones of ARPAbet as characters; vowels without a stress have none. DataError for an unknown phone."""
    characters = []
    for phone in phones:
        character = CHARACTERS.get(phone) or CHARACTERS.get(f"{phone}0")
        if character is None:
            raise DataError(f"expected phones of ARPAbet, but {phone!r} is none")
        characters.append(character)
    return "".join(characters)


def letter_with_phone(letter: str, phone: str | None) -> str:
    """The character of a letter of `PAIR_LETTERS` that is said with this phone; None = silent."""
    number = len(PHONES) if phone is None else PHONES.index(phone)
    return PAIR_TOKENS[PAIR_LETTERS.index(letter) * (len(PHONES) + 1) + number]


def as_phones(characters: str) -> list[str]:
    """The phones of a run of characters."""
    return [_NAMES[character] for character in characters]


def readable(text: str) -> str:
    """A text in which words in phones are shown as people write them: `{W AA1 T S}`."""
    text = text.replace(RISING, "[rising]").replace(FALLING, "[falling]")
    return PHONE_RUN.sub(lambda run: "{" + " ".join(as_phones(run[0])) + "}", text)


def without_phones(text: str) -> str:
    """A text as people write it, without characters that would stand for phones."""
    return text if text.isascii() else text.translate(_RESERVED)


def with_stress(phones: Sequence[str]) -> list[str]:
    """Phones whose first vowel gets the primary stress where none is stressed."""
    if any(phone.endswith("1") for phone in phones):
        return list(phones)
    vowels = [number for number, phone in enumerate(phones) if phone.rstrip("012") in VOWELS]
    return [f"{phone.rstrip('012')}1" if number in vowels[:1] else phone for number, phone in enumerate(phones)]
