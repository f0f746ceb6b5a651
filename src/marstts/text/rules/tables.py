"""Tables of the text rules: abbreviations, units, currencies, symbols, names and words, read from `text/rules/data`.

Upstream: TOML files and one word list in the package.  Downstream: the modules of rules.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

MIN_ASKED = 10
"""Options of which the first character is asked for."""


@cache
def table(file: str) -> dict[str, Any]:
    """The content of `data/FILE.toml`."""
    return tomllib.loads(files("marstts.text.rules").joinpath("data", f"{file}.toml").read_text(encoding="utf-8"))


@cache
def word_list(file: str) -> frozenset[str]:
    """The words of `data/FILE.txt`, whose lines may be comments."""
    lines = files("marstts.text.rules").joinpath("data", f"{file}.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


@cache
def words() -> frozenset[str]:
    """Common English words of two to five letters, in small letters."""
    return word_list("words")


def word_set(file: str, key: str) -> frozenset[str]:
    """The words of an entry that lists them with spaces between."""
    return frozenset(table(file)[key].split())


def before_places(more: Iterable[str] = ()) -> re.Pattern[str]:
    """The pattern of a word such as "Room" that stands right before a number, which then names a place."""
    places = word_set("names", "places")
    return re.compile(rf"(?:{either({*places, *(place.lower() for place in places), *more})})\.? $")


def either(options: Iterable[str]) -> str:
    """The pattern that matches one of `options`, the longest that fits.

    It asks first whether a character is one of those they begin with: `re` tries them one after another.
    """
    longest_first = sorted(set(options), key=lambda option: (-len(option), option))
    pattern = f"(?:{'|'.join(map(re.escape, longest_first))})"
    if len(longest_first) < MIN_ASKED or not all(longest_first):
        return pattern
    firsts = re.escape("".join(sorted({option[0] for option in longest_first})))
    return f"(?:(?=[{firsts}]){pattern})"
