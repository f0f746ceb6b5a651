"""Pronunciations for pocketsphinx: CMUdict's, or flite's for words that it lacks.

Upstream: words of a text.  Downstream: `word_times` and `repeated_words`, whose decoders need every word.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from marstts_lab.metrics.sphinx import model_path

FLITE_TO_CMU = {"ax": "AH", "axr": "ER", "dx": "T", "el": "L", "em": "M", "en": "N"}


@lru_cache(maxsize=1)
def dictionary() -> dict[str, tuple[str, ...]]:
    """First pronunciation of each of CMUdict's 134,860 words, e.g. {"house": ("HH", "AW", "S")}."""
    entries: dict[str, tuple[str, ...]] = {}
    for line in Path(model_path("en-us/cmudict-en-us.dict")).read_text(encoding="utf-8").splitlines():
        word, *phones = line.split()
        if "(" not in word:
            entries[word] = tuple(phones)
    return entries


@cache
def pronounce(word: str) -> tuple[str, ...] | None:
    """Phones of a word: CMUdict's, else flite's where that program is installed, else None."""
    return dictionary().get(word) or pronounce_by_flite(word)


def pronounce_by_flite(word: str) -> tuple[str, ...] | None:
    """Phones by the letter-to-sound rules of the `flite` program; None if it is not installed or outputs none."""
    if shutil.which("flite") is None:
        return None
    result = subprocess.run(["flite", "-ps", "-t", word, "-o", "none"], capture_output=True, text=True, check=False)
    phones = tuple(FLITE_TO_CMU.get(phone, phone.upper()) for phone in result.stdout.split() if phone != "pau")
    return phones or None


def pronounceable(words: list[str]) -> list[str]:
    """The words with a known pronunciation; metrics skip and count the others."""
    return [word for word in words if pronounce(word) is not None]


def add_pronunciations(decoder: Any, words: list[str]) -> None:
    """Add the pronounceable words that the decoder's dictionary lacks."""
    for word in words:
        phones = pronounce(word)
        if decoder.lookup_word(word) is None and phones is not None:
            decoder.add_word(word, " ".join(phones), True)
