"""Tables of the text rules: abbreviations, units, currencies, symbols, names and words, read from `text/rules/data`.

Upstream: TOML files and one word list in the package.  Downstream: the modules of rules.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any


@cache
def table(file: str) -> dict[str, Any]:
    """The content of `data/FILE.toml`."""
    return tomllib.loads(files("marstts.text.rules").joinpath("data", f"{file}.toml").read_text(encoding="utf-8"))


@cache
def words() -> frozenset[str]:
    """Common English words of two to five letters, in small letters."""
    return frozenset(files("marstts.text.rules").joinpath("data", "words.txt").read_text(encoding="utf-8").split())


def word_set(file: str, key: str) -> frozenset[str]:
    """The words of an entry that lists them with spaces between."""
    return frozenset(table(file)[key].split())


def before_places(more: Iterable[str] = ()) -> re.Pattern[str]:
    """The pattern of a word such as "Room" that stands right before a number, which then names a place."""
    places = word_set("names", "places")
    return re.compile(rf"(?:{either({*places, *(place.lower() for place in places), *more})})\.? $")


def either(options: Iterable[str]) -> str:
    """The pattern that matches one of `options`, the longest that fits; common beginnings are matched once."""
    return _branches(sorted(set(options)))


def _branches(options: list[str]) -> str:
    """The pattern of sorted `options`: a letter, then what may follow it; an empty one makes the rest optional."""
    is_optional = options[:1] == [""]
    branches = []
    for letter, group in groupby(filter(None, options), key=lambda option: option[0]):
        branches.append(re.escape(letter) + _branches([option[1:] for option in group]))
    pattern = branches[0] if len(branches) == 1 and not is_optional else f"(?:{'|'.join(branches)})"
    return (f"{pattern}?" if is_optional else pattern) if branches else ""
