"""Detection of text that the model cannot speak: letters of other scripts, emoji, and other languages.

Upstream: what `characters` left out; text as people wrote it.  Downstream: warnings for the user.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from itertools import islice

from marstts.text.rules.tables import table

MAX_LANGUAGE_CHARACTERS = 20_000
"""Length of the start of a text from which its language is detected."""

MIN_FOREIGN_WORDS = 3
MIN_FOREIGN_RATIO = 0.2
"""Least ratio of different words that are frequent words of the other language."""

MAX_SHOWN = 10
MAX_RUN_CHARACTERS = 60
_WHOLE = {"[": "stage directions", "(": "stage directions", "\\": "commands of LaTeX"}
"""What runs are that are named whole, by their first character."""

_WORD = re.compile(r"(?<![\w.])[^\W\d_]{2,}(?![\d_]|\.\w)")
"""A word, and no letter of an abbreviation, a formula or a code; single letters are words of too many languages."""

_NAME = re.compile(r"\b[A-Z][a-z]{1,3} (?=[A-Z][a-z])")
"""The first word of a name: "Los Angeles", "El Paso"."""

_TAG = re.compile(r"<[^<>]{1,300}>")
_SCRIPTS = {
    "CJK": "Chinese characters",
    "HIRAGANA": "Japanese letters",
    "KATAKANA": "Japanese letters",
    "HANGUL": "Korean letters",
    "GREEK": "Greek letters",
}


def describe_left_out(runs: Iterable[str]) -> str | None:
    """One sentence that names what has no reading, by its script; None where nothing was left out.

    A run that is bracketed is a stage direction, such as `[laugh]`; one with a backslash a command of LaTeX.
    """
    groups: dict[str, dict[str, None]] = {}
    for run in runs:
        whole = _WHOLE.get(run[0]) if len(run) > 2 else None
        for each in (run,) if whole else run:
            groups.setdefault(whole or _group(each), {})[each] = None
    if not groups:
        return None
    parts = [f"{name} ({_show(name, list(islice(shown, MAX_SHOWN + 1)))})" for name, shown in groups.items()]
    return "left out what cannot be spoken: " + ", ".join(parts)


def warnings_of(left_out: Iterable[str], text: str) -> list[str]:
    """Warnings for the user: characters without a reading, and a language that the model does not speak."""
    runs = list(dict.fromkeys(left_out))
    found = [describe_left_out(run for run in runs if not is_no_pronunciation(run))]
    if odd := list(dict.fromkeys(run for run in runs if is_no_pronunciation(run))):
        shown = " ".join("".join(map(_printable, run[:MAX_RUN_CHARACTERS])) for run in odd[:MAX_SHOWN])
        found.append(f"read as text what is no pronunciation: {shown}{' …' if len(odd) > MAX_SHOWN else ''}")
    if language := foreign_language(text):
        found.append(f"the text seems to be {language}; the model speaks English, so expect English sounds")
    return [warning for warning in found if warning]


def is_no_pronunciation(run: str) -> bool:
    """Whether a run is `[x]{y}`, which looks like a word with its pronunciation and was read as text."""
    return run.startswith("[") and "]{" in run


def _show(name: str, characters: list[str]) -> str:
    shown = [
        _name(each) if name == "emoji and signs" else "".join(map(_printable, each)) for each in characters[:MAX_SHOWN]
    ]
    return " ".join(shown) + (" …" if len(characters) > MAX_SHOWN else "")


def _printable(character: str) -> str:
    return character if character.isprintable() else f"U+{ord(character):04X}"


def _name(character: str) -> str:
    return f"{_printable(character)} {unicodedata.name(character, '').lower()}".strip()


@cache
def _group(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Cn", "Cs", "Co"):
        return "characters without a meaning"
    if character.isascii():
        return "symbols"
    if category[0] in "LN":
        script = unicodedata.name(character, "UNKNOWN").split()[0]
        return _SCRIPTS.get(script, f"{script.capitalize()} letters")
    return "emoji and signs"


def foreign_language(text: str) -> str | None:
    """The name of the language that `text` seems to be in; None where that is English or cannot be known."""
    text = _NAME.sub("", _TAG.sub(" ", text[:MAX_LANGUAGE_CHARACTERS]))
    words = {word.lower() for word in _WORD.findall(text)}
    if len(words) < MIN_FOREIGN_WORDS:
        return None
    counts = {name: len(words & frequent) for name, frequent in _frequent_words().items()}
    english = counts.pop("English")
    name = max(counts, key=lambda each: counts[each])
    enough = counts[name] >= MIN_FOREIGN_WORDS and counts[name] >= MIN_FOREIGN_RATIO * len(words)
    return name if enough and counts[name] > 1.5 * english else None


@cache
def _frequent_words() -> dict[str, frozenset[str]]:
    return {name: frozenset(words.split()) for name, words in table("languages").items()}
