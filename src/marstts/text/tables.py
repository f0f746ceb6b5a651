"""Tables of the text rules: abbreviations, units, currencies, symbols, names and words, read from `text/data`.

Upstream: TOML files and one word list in the package.  Downstream: the modules of rules.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@cache
def table(file: str) -> dict[str, Any]:
    """The content of `data/FILE.toml`."""
    return tomllib.loads(files("marstts.text").joinpath("data", f"{file}.toml").read_text(encoding="utf-8"))


@cache
def words() -> frozenset[str]:
    """Common English words of two to five letters, in small letters."""
    return frozenset(files("marstts.text").joinpath("data", "words.txt").read_text(encoding="utf-8").split())


def word_set(file: str, key: str) -> frozenset[str]:
    """The words of an entry that lists them with spaces between."""
    return frozenset(table(file)[key].split())


def either(options: Iterable[str]) -> str:
    """The pattern that matches one of `options`, the longest that fits."""
    return "|".join(re.escape(option) for option in sorted(options, key=len, reverse=True))
