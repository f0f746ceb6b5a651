"""Spelling: a sentence as a model needs it that was trained on few capitals, single letters and repeated words.

Upstream: normalized sentences.  Downstream: `prompt`, for bundles whose `spelling` asks for it.
Deviation from the paper. A model that reads bytes and was trained on texts with hardly any capitals and initialisms
says "STOP" and "B B C" as noise; it knows "Stop" and "bee bee see". It loses count of equal words between commas, less
so between colons, where readers pause as long. "Ah." as a sentence is noise, too, and "Ahhh." less so. The letter A is
said as the article, unless it is spelled "ay". Words in quotation marks are misread, so the marks are left out. Each
character keeps the place that it came from, so that word times and flaws are those of the sentence as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from marstts.text.intonation import final_contours
from marstts.text.lexicon import respell
from marstts.text.phones import FALLING, PHONE_RUN, RISING
from marstts.text.pronunciation import heteronyms
from marstts.text.pronunciation.uses import Use
from marstts.text.pronunciation.words import QUOTED_WORD, PhoneUse, phone_words, possessive


class Spelling(str, Enum):
    """The spelling of words in capitals and single letters."""

    AS_WRITTEN = "as written"
    SIMPLE = "simple"
    EM_DASHES = "em dashes"
    """Every hyphen and dash is an em dash, as in the script of the published model: it never reads a hyphen."""


_NAMES = "ay bee see dee ee eff gee aitch I jay kay el em en oh pee cue are ess tee you vee double-you ex why zee"

LETTER_NAMES = dict(zip("abcdefghijklmnopqrstuvwxyz", _NAMES.split(), strict=True))
"""Words that English spelling reads as the names of letters."""

WORD_LETTERS = frozenset("AIOaio")
"""Letters that are words as well: names only next to another single capital, as in "the U S A", and alone."""

EM_DASHES = str.maketrans(dict.fromkeys("-\u2013\u2015\u2212", "\u2014"))

DASH, PAUSE = " - ", ", "
"""A dash, which the training texts have not, and the mark that they have where readers pause as long."""

QUOTE = '"'
"""A quotation mark, which the training texts hardly have: words between two of them are misread."""

_STARTS_WORD = "(?<![A-Za-z])(?<![A-Za-z]')"
"""Start of a word: no letter comes before it, and no apostrophe within a word; a quoted word has an apostrophe."""

_PIECE = re.compile(rf"(?: -)+ |\"|{_STARTS_WORD}[A-Za-z]+(?:'[A-Za-z]+)*")

_BEFORE = re.compile(r"(?<![A-Za-z'])[A-Z](?:'[Ss])?[ -]$")
_AFTER = re.compile(r"[ -][A-Z](?:'[Ss]?)?(?![A-Za-z'])")
_SHOUTED = re.compile("[A-Z']{2} $")
_STARTS_SENTENCE = re.compile(r"""(?:^|[.!?] |[.!?]["'] (?=["']))["' ]*$""")
"""Patterns of what surrounds a word among single capitals, as in "U S A", of what precedes "A" in "IS A VERY", and of
what precedes the first word of a sentence."""

_LETTER_A = re.compile(
    r"""[a-z] (?P<quote>["'])?A(?(quote)(?P=quote)|(?:'s(?![a-z])|[-.,;:!?)]| [a-z]| -|$))"""
    r"""|^["']?A (?:and|or|is|to|was) """
    r"""|\bA\. [A-Z]"""
)
"""The letter A, not the article: "plan A.", "vitamin A is", "A or B", "A. Smith". A capital may follow in titles."""

_INITIAL = re.compile(r"\. [A-Z]")
"""End of an initial, as in "J. R. Abbott". Its point is left out: models pause at "jay." and lose words."""

_RUN = re.compile(r"\b([a-z]+)(?:, \1\b){2,}|\b([a-z]+, [a-z]+)(?:, \2\b)+", re.IGNORECASE)
"""Equal words, or equal pairs of words, with commas between them: "no, no, no", "tick, tock, tick, tock"."""

LONE_INTERJECTIONS = {"ah": "ahhh", "aha": "ah ha", "uh": "uhhh"}
"""Sentences of a single word that no training text has: models say noise instead."""

_LONE = re.compile(rf"({'|'.join(LONE_INTERJECTIONS)})[.!?]*", re.IGNORECASE)

_LONE_LETTER = re.compile(rf"\"?([{''.join(sorted(WORD_LETTERS))}])(?P<mark>[?!]?)\"?")
"""A letter that is the whole text: without a stop, models babble."""

_SURROUNDING = 5
"""Characters on each side of a word that these patterns see."""

_UNUSUAL = re.compile(
    rf"[A-Za-z][A-Z]|'[A-Z]|{_STARTS_WORD}(?:[B-HJ-NP-Zb-hj-np-z](?![A-Za-z])|[AIO](?:'s)?[ -][AIO](?![A-Za-z]))"
    rf"|{DASH}|\"|{_LETTER_A.pattern}|{_STARTS_WORD}O\. [A-Z]"
)
"""Found in other sentences with another spelling: a dash or quotation mark, an inner capital, a single letter."""


@dataclass(frozen=True, eq=False)
class SpelledText:
    """A sentence in another spelling."""

    text: str

    places: Sequence[int]
    """(characters + 1,) the character of the sentence as it was that each stands for, and its length."""

    def original_spans(self, spans: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
        """spans (S, 2) of this text, first character and last + 1, -1 for none -> those of the sentence as it was."""
        return [(-1, -1) if first < 0 else (self.places[first], self.places[last - 1] + 1) for first, last in spans]


def spell(text: str, spelling: Spelling) -> SpelledText:
    """`text` in this spelling."""
    if spelling is Spelling.EM_DASHES:
        return SpelledText(text.translate(EM_DASHES), range(len(text) + 1))
    if spelling is Spelling.SIMPLE:
        text = _RUN.sub(lambda run: run[0].replace(",", ":"), text)
    if spelling is Spelling.SIMPLE and (letter := _LONE_LETTER.fullmatch(text)):
        name = LETTER_NAMES[letter[1].lower()] + (letter["mark"] or ".")
        return SpelledText(name, [letter.start(1)] * len(name) + [len(text)])
    is_lone = _LONE.fullmatch(text.strip(QUOTE)) is not None
    if spelling is Spelling.AS_WRITTEN or not (is_lone or _UNUSUAL.search(text)):
        return SpelledText(text, range(len(text) + 1))
    places: list[int] = []
    spelled, end = "", 0
    for piece in _PIECE.finditer(text):
        spelled += text[end : piece.start()]
        places += range(end, piece.start())
        before = text[max(0, piece.start() - _SURROUNDING) : piece.start()]
        after = text[piece.end() : piece.end() + _SURROUNDING]
        form = lone_interjection(piece[0]) if is_lone and piece[0] != QUOTE else other_form(piece[0], before, after)
        spelled += form
        places += evenly(piece.start(), piece.end(), len(form))
        is_initial = len(piece[0]) == 1 and piece[0].isupper() and form != piece[0]
        end = piece.end() + (is_initial and _INITIAL.match(after) is not None)
    return SpelledText(spelled + text[end:], [*places, *range(end, len(text) + 1)])


def evenly(start: int, end: int, count: int) -> Iterator[int]:
    """`count` places from `start` on, evenly up to `end`, which is none of them."""
    return (start + number * (end - start) // count for number in range(count))


def with_contours(spelled: SpelledText) -> SpelledText:
    """The text with a mark of the pitch's course before the final mark of each question that a rule knows."""
    text, places = spelled.text, list(spelled.places)
    for place, contour in reversed(list(final_contours(text))):
        text = text[:place] + contour + text[place:]
        places.insert(place, places[place])
    return SpelledText(text, places)


def without_contours(spelled: SpelledText) -> SpelledText:
    """The text without marks of the pitch's course, for models that read none."""
    kept = [place for place, character in enumerate(spelled.text) if character not in (RISING, FALLING)]
    if len(kept) == len(spelled.text):
        return spelled
    return SpelledText(
        "".join(spelled.text[place] for place in kept), [spelled.places[place] for place in (*kept, len(spelled.text))]
    )


Respellings = Mapping[str, str | Mapping[Use, str]]
"""Other letters for words in small letters; those of heteronyms may depend on their use."""


def with_phones(spelled: SpelledText, use: PhoneUse, respellings: Respellings) -> SpelledText:
    """The text with words in phones; for a model of letters, those that the user gave are letters again."""
    if not use.has_phones and PHONE_RUN.search(spelled.text) is None:
        return spelled
    pieces: list[str] = []
    places: list[int] = []
    end = 0
    for word in phone_words(spelled.text, use, partial(other_letters, respellings=respellings)):
        said = word.characters if use.has_phones else respell(spelled.text[word.start : word.end])
        pieces += (spelled.text[end : word.start], said)
        places += spelled.places[end : word.start]
        places += [spelled.places[place] for place in evenly(word.start, word.end, len(said))]
        end = word.end
    return SpelledText("".join([*pieces, spelled.text[end:]]), [*places, *spelled.places[end:]])


def with_respellings(spelled: SpelledText, respellings: Respellings) -> SpelledText:
    """The text with other letters for the words, in small letters, that this model misreads; their capitals stay."""
    if not respellings:
        return spelled
    pieces: list[str] = []
    places: list[int] = []
    end = 0
    for word in QUOTED_WORD.finditer(spelled.text):
        written = stem(word[0])
        other = other_letters(written, spelled.text, word.start(), respellings)
        if other is not None:
            said, start = other.capitalize() if written[0].isupper() else other, word.start()
            pieces += (spelled.text[end:start], said)
            places += spelled.places[end:start]
            end = start + len(written)
            places += [spelled.places[place] for place in evenly(start, end, len(said))]
    return SpelledText("".join([*pieces, spelled.text[end:]]), [*places, *spelled.places[end:]])


def other_letters(word: str, text: str, start: int, respellings: Respellings) -> str | None:
    """The other letters of a word that begins at `start` in a text, in small letters; None where it keeps its own."""
    other = respellings.get(stem(word).lower())
    if isinstance(other, str):
        return other + word[len(stem(word)) :].lower()
    used = heteronyms.in_context(word, text, start)
    by_use = respellings.get(used.word, {}) if used is not None else {}
    if used is None or isinstance(by_use, str) or used.use not in by_use:
        return None
    has_syllable_more = len(possessive(used.phones)) > 1  # "uses": "s" after other letters would not be one
    return None if used.ending and has_syllable_more else by_use[used.use] + used.ending


def stem(word: str) -> str:
    """A word without its "'s"."""
    return word[:-2] if word.lower().endswith("'s") else word


def read_aloud(text: str, spelling: Spelling, phones: PhoneUse, respellings: Respellings | None = None) -> SpelledText:
    """A sentence as the model reads it: spelled, its questions marked, its words in phones."""
    spelled, others = spell(text, spelling), respellings or {}
    if phones is not PhoneUse.GRAPHONES:  # these keep the phones of the word
        spelled = with_respellings(spelled, others)
    marked = without_contours(spelled) if phones is PhoneUse.NONE else with_contours(spelled)
    return with_phones(marked, phones, others)


def lone_interjection(word: str) -> str:
    """An interjection as it is spelled where it is the whole sentence, with the first letter as it was."""
    return word[0] + LONE_INTERJECTIONS[word.lower()][1:]


def other_form(piece: str, before: str, after: str) -> str:
    """The pause for a dash, nothing for a quotation mark, or the simple form of a word."""
    if piece == QUOTE:
        return " " if before[-1:].isalnum() and after[:1].isalnum() else ""
    return PAUSE if piece.startswith(DASH[:2]) else simple_form(piece, before, after)


def simple_form(word: str, before: str, after: str) -> str:
    """A word in small letters, or the name of a letter; the first letter of a sentence stays.

    before, after: some characters on each side, or fewer at the ends. "'n'" in "rock 'n' roll" is no letter.
    """
    letter, ending = (word[:-2], "'s") if word.endswith(("'s", "'S")) else (word, "")
    if len(letter) == 1:
        is_cut_short = before.endswith("'") and (letter in "Nn" or not after.startswith("'"))
        is_among_capitals = letter.isupper() and bool(_BEFORE.search(before) or _AFTER.match(after))
        if is_among_capitals or (letter not in WORD_LETTERS and not is_cut_short):
            return LETTER_NAMES[letter.lower()] + ending
        if (letter == "A" and _LETTER_A.search(before + word + after)) or (letter == "O" and _INITIAL.match(after)):
            return LETTER_NAMES[letter.lower()] + ending
        is_article = letter == "A" and _SHOUTED.search(before) is not None
        return (letter.lower() if is_article or letter not in WORD_LETTERS else letter) + ending
    if word.isupper():
        starts = _STARTS_SENTENCE.search(before) is not None or word.startswith("I'")
        return word[0] + word[1:].lower() if starts else word.lower()
    return "'".join(part[0] + part[1:].lower() for part in word.split("'"))
