"""Open recognition: what a recogniser hears in a take, and how far that is from the text (WER, CER).

Upstream: prepared audio (`sphinx.prepare`) and plain words (`words.plain_words`).  Downstream: `score`.

pocketsphinx hears the LJSpeech reader at CER 0.11: only differences between systems, over 40 sentences and more, mean
something.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from marstts.errors import require
from marstts.evaluation.metrics import sphinx
from marstts.evaluation.metrics.words import plain_words


@dataclass(frozen=True)
class Edits:
    """Substitutions, insertions and deletions on the way from a reference of `length` units to what was heard."""

    errors: int
    length: int


class Recogniser:
    """pocketsphinx with its own trigram language model; five times as fast as the audio on one core."""

    def __init__(self) -> None:
        self._decoder = sphinx.new_decoder(lm=sphinx.model_path("en-us/en-us.lm.bin"))

    def hear(self, pcm: bytes) -> list[str]:
        """Plain words heard in audio prepared by `sphinx.prepare`; empty if none."""
        sphinx.decode(self._decoder, pcm)
        return plain_words(" ".join(sphinx.heard_words(self._decoder)))


def word_edits(reference: Sequence[str], heard: Sequence[str]) -> Edits:
    """Fewest edits in words (jiwer); `reference` must not be empty."""
    result = require("jiwer", "eval").process_words(" ".join(reference), " ".join(heard))
    return Edits(result.substitutions + result.insertions + result.deletions, len(reference))


def character_edits(reference: Sequence[str], heard: Sequence[str]) -> Edits:
    """Fewest edits in characters, the spaces between words included (jiwer); `reference` must not be empty."""
    text = " ".join(reference)
    result = require("jiwer", "eval").process_characters(text, " ".join(heard))
    return Edits(result.substitutions + result.insertions + result.deletions, len(text))
