"""Representation mixing: texts for training in which some words are phones.

Upstream: `words`.  Downstream: `data.batching`.
K. Kastner et al. (arXiv:1811.07240), word by word.  Deviation: heteronyms stay letters.
"""

from __future__ import annotations

import re

import numpy as np
from pydantic import Field

from marstts.io.config import Config
from marstts.text.phones import as_characters
from marstts.text.pronunciation.words import WORD, known_phones


class PhoneMixingConfig(Config):
    """How many words of a training text are phones."""

    letters_probability: float = Field(0.15, ge=0.0, le=1.0)
    """Texts in letters only."""

    phones_probability: float = Field(0.15, ge=0.0, le=1.0)
    """Texts in phones, as far as the table knows them."""

    word_probability: float = Field(0.5, ge=0.0, le=1.0)
    """Words in phones in all other texts."""


def mix_phones(text: str, config: PhoneMixingConfig, rng: np.random.Generator) -> str:
    """A text in which words are phones, drawn at random; the same number of draws for every text of a length."""
    kind, draws = rng.random(), rng.random(len(text))
    if kind < config.letters_probability:
        return text
    is_whole = kind < config.letters_probability + config.phones_probability

    def mixed(match: re.Match[str]) -> str:
        if not is_whole and draws[match.start()] >= config.word_probability:
            return match[0]
        known = known_phones(match[0])
        return match[0] if known is None or known.depends_on_context else as_characters(known.phones)

    return WORD.sub(mixed, text)
