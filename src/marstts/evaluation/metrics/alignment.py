"""Forced alignment: is every word of the text in the take, and which one is the worst?

Upstream: prepared audio and plain words.  Downstream: `judges`.

Each word's score is its mean log likelihood per frame (10 ms) relative to the best sound in the model: 0 is perfect,
real speech has its worst word near -7, and one word cut out of a sentence drags a neighbour to -17. Finds single faults
that the word error rate of a few takes cannot show; says little about quality beyond that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from marstts.evaluation.metrics import sphinx

FAULT_SCORE = -12.0
"""A worst word below this counts as missing or wrong."""


@dataclass(frozen=True)
class Alignment:
    """Outcome for one take. `worst_word` and `worst_score` are None where the text could not be aligned at all."""

    worst_word: str | None
    worst_score: float | None
    skipped: int
    """Words without a known pronunciation, left out of the text."""

    mean_score: float | None = None
    """Over all frames of all words: real speech near -3.5; None where the text could not be aligned."""

    @property
    def at_fault(self) -> bool:
        """Whether a word, or the whole text, is missing."""
        return self.worst_score is None or self.worst_score < FAULT_SCORE


class Aligner:
    """One decoder for any number of sentences; some twenty times as fast as the audio on one core."""

    def __init__(self) -> None:
        # All senones are computed, or the best one of a frame, which scores are relative to, might be missed.
        self._decoder = sphinx.new_decoder(compallsen=True)

    def align(self, pcm: bytes, words: list[str]) -> Alignment:
        """Place `words` in `pcm` (prepared audio)."""
        known = sphinx.pronounceable(words)
        skipped = len(words) - len(known)
        if not known:
            return Alignment(None, None, skipped)
        sphinx.teach(self._decoder, known)
        self._decoder.set_align_text(" ".join(known))
        sphinx.decode(self._decoder, pcm)
        segments = spoken(self._decoder)
        scored = [(word_score(segment), sphinx.base_form(segment.word)) for segment in segments]
        if len(scored) < len(known):
            return Alignment(None, None, skipped)
        score, word = min(scored)
        frames = [num_frames(segment) for segment in segments]
        mean = sum(value * count for (value, _), count in zip(scored, frames, strict=True)) / sum(frames)
        return Alignment(word, round(score, 3), skipped, round(mean, 4))


def spoken(decoder: Any) -> list[Any]:
    """Segments of the last alignment that are words, not silence or noise."""
    return [segment for segment in (decoder.seg() or []) if segment.word[0] not in "<[+("]


def word_score(segment: Any) -> float:
    """Mean log likelihood per frame; `ascore` is linear and may underflow, so that -690 in all is as low as it goes."""
    return math.log(max(segment.ascore, 1e-300)) / num_frames(segment)


def num_frames(segment: Any) -> int:
    return int(segment.end_frame - segment.start_frame + 1)
