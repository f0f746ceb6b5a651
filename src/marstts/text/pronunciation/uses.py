"""How a word is used in a sentence: as a noun, an adjective, a verb or a past form.

Upstream: `data/uses.xz`, written by `recipes/pronunciations/uses.py`.  Downstream: `heteronyms`.
Multinomial logistic regression on the words around the word and on what they end with, with hashed features
(K. Weinberger et al., arXiv:0902.2206), so that a table of bytes is the whole model. The word itself counts little:
the weights of contexts are those of all nouns, adjectives and verbs of a corpus.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Literal, get_args
from zlib import crc32

from marstts.text.phones import PHONE_RUN

Use = Literal["noun", "adjective", "verb", "past"]
"""A past form is a past tense or a participle."""

USES: tuple[Use, ...] = get_args(Use)

TOKEN = re.compile(rf"[A-Za-z]+(?:'[A-Za-z]+)*|\d+|{PHONE_RUN.pattern}|[^\sA-Za-z\d]")

AROUND = 120
"""Characters before and after a word that are looked at."""

HASH_BITS = 16

TABLES = len(USES) + 1
"""Those of the uses, where "past" is what nouns and adjectives are told from, and that of tense: past less present."""

STEPS_PER_NAT = 16
"""Steps of a weight in the table, which is a signed byte."""

_ENDINGS = tuple("ing ed ly 's ss us s er tion ment ity al ous ive ic ble ful ence ance".split())  # noqa: SIM905
_LONGEST_WHOLE = 4
_WHOLE = frozenset(
    (  # noqa: SIM905
        "which would could should might shall their there these those about after before while where because through "
        "under between against during without within every other first never always often though until since being "
        "doing having cannot don't didn't doesn't won't can't couldn't wouldn't they're we're you're"
    ).split()
)


def log_odds(word: str, text: str, start: int) -> dict[Use, float]:
    """Nats for each use of the word that begins at `start` in a text, comparable with one another.

    `word`: in small letters, without an ending that is not its own. For words whose verb is no past form.
    """
    return dict(zip(USES, _scores(word, text, start), strict=False))


def log_odds_with_tense(word: str, text: str, start: int) -> dict[Use, float]:
    """The same for words whose verb may be a past form, such as "read"."""
    noun, adjective, verb, past, tense = _scores(word, text, start)
    verbal = max(verb, past)
    return {"noun": noun, "adjective": adjective, "verb": verbal + min(0, -tense), "past": verbal + min(0, tense)}


def _scores(word: str, text: str, start: int) -> list[float]:
    """(tables,) The sum of the weights of each table."""
    tokens, place = tokens_around(text, start)
    near = features(word, tokens, place)
    found = [near] * len(USES) + [near + far_features(tokens, place)]
    return [sum(weight(number, feature) for feature in its) / STEPS_PER_NAT for number, its in enumerate(found)]


def weight(table: int, feature: str) -> int:
    """The steps of a feature in a table."""
    return _weights()[table << HASH_BITS | place_of(feature)]


def tokens_around(text: str, start: int) -> tuple[list[str], int]:
    """The tokens around a word in small letters, and which of them is the word."""
    first = max(0, start - AROUND)
    before = [token[0].lower() for token in TOKEN.finditer(text, first, start)]
    return before + [token[0].lower() for token in TOKEN.finditer(text, start, start + AROUND)], len(before)


def features(word: str, tokens: Sequence[str], place: int) -> list[str]:
    """What is known of a use: words, their last letters and their coarse classes at places before and after it."""

    def at(offset: int) -> str:
        other = place + offset
        return "^" if other < 0 else "$" if other >= len(tokens) else tokens[other]

    before3, before2, before, after, after2, after3 = (at(offset) for offset in (-3, -2, -1, 1, 2, 3))
    short2, short, next_short, next_short2 = map(_shortened, (before2, before, after, after2))
    left3, left2, left, right, right2, right3 = map(_coarse, (before3, before2, before, after, after2, after3))
    form = "s" if ends_with_s(tokens[place]) else ""
    contexts = [
        f"a{before}", f"b{after}", f"c{before2}", f"d{after2}", f"e{_shortened(before3)}", f"f{_shortened(after3)}",
        f"g{short}", f"h{next_short}", f"i{short2} {short}", f"j{next_short} {next_short2}", f"k{short} {next_short}",
        f"l{before} {after}", f"m{before2} {before}",
        f"n{left}", f"o{right}", f"p{left2} {left}", f"q{left3} {left2} {left}", f"r{right} {right2}",
        f"s{right} {right2} {right3}", f"t{left} {right}", f"u{left2} {left} {right}", f"v{left} {right} {right2}",
        f"w{left2} {left} {right} {right2}", f"x{left3} {left2} {left} {right}",
    ]  # fmt: skip
    return [form + each for each in contexts] + [f"{form}={word}"]


def far_features(tokens: Sequence[str], place: int) -> list[str]:
    """The tokens of the sentence, but for the neighbors, wherever they are: "yesterday" tells a tense."""
    return [f"y{token}" for token in sorted({*tokens[: max(0, place - 1)], *tokens[place + 2 :]})]


def ends_with_s(word: str) -> bool:
    """Whether a word has the form of a plural or of a third person."""
    return word.endswith("s") and not word.endswith("ss")


def place_of(feature: str) -> int:
    """The place of a feature in the table of a use."""
    return crc32(feature.encode()) & ((1 << HASH_BITS) - 1)


def _shortened(token: str) -> str:
    """A short token, or the end of a longer one."""
    return token if len(token) <= _LONGEST_WHOLE else "-" + token[-3:]


def _coarse(token: str) -> str:
    """A short or frequent token, or the class of endings of a longer one."""
    if len(token) <= _LONGEST_WHOLE or token in _WHOLE:
        return token
    return "-" + next((ending for ending in _ENDINGS if token.endswith(ending)), "")


@cache
def _weights() -> memoryview:
    """(TABLES * 2 ** HASH_BITS,) signed bytes."""
    packed = files(__package__).joinpath("data", "uses.xz").read_bytes()
    return memoryview(lzma.LZMADecompressor().decompress(packed, TABLES << HASH_BITS)).cast("b")
