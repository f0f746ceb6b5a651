"""Forced alignment of a take's text: finds missing and wrong words, and scores the worst one.

Upstream: prepared audio (`sphinx.prepare`) and plain words.  Downstream: `panel`, `preference`.

A word's score is its mean log likelihood per frame (10 ms) relative to the best sound in the acoustic model: 0 is
perfect, the worst word of human speech is near -7, and a word cut out of a sentence lowers a neighbor to -17. Finds
single errors that the word error rate of a few takes cannot show; it does not measure other qualities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from marstts.metrics import sphinx

FAILURE_SCORE = -12.0
"""A worst word below this counts as missing or wrong."""


@dataclass(frozen=True)
class Alignment:
    """Outcome for one take. `worst_word` and `worst_score` are None where the text could not be aligned."""

    worst_word: str | None
    worst_score: float | None
    skipped: int
    """Words without a known pronunciation, left out of the text."""

    mean_score: float | None = None
    """Mean over all frames of all words: near -3.5 for human speech; None where the text could not be aligned."""

    @property
    def failed(self) -> bool:
        """Whether a word, or the whole text, is missing."""
        return self.worst_score is None or self.worst_score < FAILURE_SCORE


class Aligner:
    """One decoder for any number of sentences; about twenty times real time on one core."""

    def __init__(self) -> None:
        # All senones are computed: scores are relative to the best one of a frame, which pruning might miss.
        self._decoder = sphinx.new_decoder(compallsen=True)

    def align(self, pcm: bytes, words: list[str]) -> Alignment:
        """Align `words` to `pcm` (prepared audio)."""
        known = sphinx.pronounceable(words)
        skipped = len(words) - len(known)
        if not known:
            return Alignment(None, None, skipped)
        sphinx.add_pronunciations(self._decoder, known)
        self._decoder.set_align_text(" ".join(known))
        sphinx.decode(self._decoder, pcm)
        segments = word_segments(self._decoder)
        scored = [(word_score(segment), sphinx.base_form(segment.word)) for segment in segments]
        if len(scored) < len(known):
            return Alignment(None, None, skipped)
        score, word = min(scored)
        frames = [num_frames(segment) for segment in segments]
        mean = sum(value * count for (value, _), count in zip(scored, frames, strict=True)) / sum(frames)
        return Alignment(word, round(score, 3), skipped, round(mean, 4))


def word_segments(decoder: Any) -> list[Any]:
    """Segments of the last alignment that are words, not silence or noise."""
    return [segment for segment in (decoder.seg() or []) if segment.word[0] not in "<[+("]


def word_score(segment: Any) -> float:
    """Mean log likelihood per frame; `ascore` is linear and may underflow, so the sum is at least -690."""
    return math.log(max(segment.ascore, 1e-300)) / num_frames(segment)


def num_frames(segment: Any) -> int:
    """Length of a segment in frames of 10 ms."""
    return int(segment.end_frame - segment.start_frame + 1)
