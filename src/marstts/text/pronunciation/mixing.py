"""Representation mixing: texts for training in which some words are phones, or letters with phones.

Upstream: `words`, `graphones`.  Downstream: `data.batching`.
K. Kastner et al. (arXiv:1811.07240), word by word.  Deviations: words may be graphones, with other letters of the
same phones as well, so that a model learns that the phone decides.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts.io.config import Config
from marstts.text import phones
from marstts.text.phones import PAIR_LETTERS
from marstts.text.pronunciation import graphones
from marstts.text.pronunciation.graphones import Graphone, graphones_of
from marstts.text.pronunciation.letters_to_sounds import packaged_model
from marstts.text.pronunciation.words import WORD, known_phones, phones_in_context

OTHER_LETTERS, RANDOM_LETTERS, KEPT_SILENT = 0.75, 0.06, 0.5
"""Of the graphones of a respelled word: those with phones that get letters of another graphone with these phones, those
that get any letters, and silent ones that stay."""

RARITY = 0.6
"""Exponent of a graphone's frequency: rare spellings are drawn more often than words have them."""


class PhoneMixingConfig(Config):
    """How many words of a training text are phones, or letters with phones."""

    letters_probability: float = Field(0.15, ge=0.0, le=1.0)
    """Texts in letters only."""

    phones_probability: float = Field(0.15, ge=0.0, le=1.0)
    """Texts in phones, as far as the table knows them."""

    word_probability: float = Field(0.5, ge=0.0, le=1.0)
    """Words in phones in all other texts."""

    graphone_probability: float = Field(0.0, ge=0.0, le=1.0)
    """Of the words in phones, those that are letters with phones (`graphones`)."""

    respelling_probability: float = Field(0.5, ge=0.0, le=1.0)
    """Of the words in letters with phones, those with other letters of the same phones."""


def mix_phones(text: str, config: PhoneMixingConfig, rng: np.random.Generator) -> str:
    """A text in which words are phones or graphones, drawn at random; the same draws of `rng` for texts of a length."""
    kind, draws = rng.random(), rng.random((len(text), 3))
    if kind < config.letters_probability:
        return text
    is_whole = kind < config.letters_probability + config.phones_probability

    def mixed(match: re.Match[str]) -> str:
        drawn = draws[match.start()]
        if not is_whole and drawn[0] >= config.word_probability:
            return match[0]
        known = known_phones(match[0])
        said = None if known is None else phones_in_context(match[0], text, match.start())
        if said is None:
            return match[0]
        if drawn[1] >= config.graphone_probability:
            return phones.as_characters(said)
        found: Sequence[Graphone] = graphones_of(match[0], said)
        if drawn[2] < config.respelling_probability:
            found = respelled(found, np.random.default_rng(int(drawn[2] * 2**53)))
        return graphones.as_characters(found)

    return WORD.sub(mixed, text)


def respelled(word: Sequence[Graphone], rng: np.random.Generator) -> list[Graphone]:
    """The graphones of a word with other letters, its phones as they were."""
    found: list[Graphone] = []
    for letters, sounds in word:
        if not sounds:
            found += [(letters, sounds)] if rng.random() < KEPT_SILENT else []
            continue
        if rng.random() < OTHER_LETTERS and sounds in spellings():
            others, shares = spellings()[sounds]
            letters = others[min(int(np.searchsorted(shares, rng.random())), len(others) - 1)]
        if rng.random() < RANDOM_LETTERS:
            letters = "".join(PAIR_LETTERS[number] for number in rng.integers(len(PAIR_LETTERS), size=len(letters)))
        found.append((letters, sounds))
    return found


@cache
def spellings() -> dict[tuple[str, ...], tuple[list[str], NDArray[np.float64]]]:
    """By phones: the letters of all graphones with them, and the sums of their shares up to each."""
    model, found = packaged_model(), defaultdict[tuple[str, ...], list[tuple[str, float]]](list)
    log_probs = dict(zip(model.keys[0], model.log_probs[0], strict=True))
    for number, (letters, sounds) in enumerate(zip(model.letters, model.phones, strict=True)):
        if letters and sounds and number in log_probs:
            found[sounds].append((letters, float(np.exp(-RARITY * model.scale * log_probs[number]))))
    return {
        sounds: ([letters for letters, _ in each], np.cumsum([share for _, share in each]) / sum(s for _, s in each))
        for sounds, each in found.items()
    }
