"""Word times: when each word of a take is said, from the path of its attention.

Upstream: `attention_path`, `spoken_words` (spoken words and the written ones they stand for).  Downstream: `speech`,
`stream`, `captions`.
A decoding step lasts 85 ms. Boundaries lie inside steps: where one step attends to two words, it is divided between
them by their attention. Attention follows the sound by `LAG_SECONDS`, which was measured against forced alignment
(docs/word-times.md).
Shapes: T steps of a take · K places of the sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marstts.synthesis.attention_path import PathSearch
from marstts.synthesis.written_forms import WrittenForm

LAG_SECONDS = 0.042
"""Median over words, mini: a step moves its attention to a word this long after the sound of it has begun."""


@dataclass(frozen=True, kw_only=True)
class Word:
    """A word and when it is said."""

    written: str
    """Form in the text: "$5", "Dr."."""

    spoken: str
    """Spoken form, several words where a written form needs them: "five dollars"."""

    start: float
    """Seconds from the beginning of the audio."""

    end: float

    confidence: float
    """Mean attention to the word while it is said, 0 to 1; below 0.3 the times are doubtful."""

    def shifted(self, seconds: float) -> Word:
        """The word, `seconds` later."""
        return replace(self, start=round(self.start + seconds, 3), end=round(self.end + seconds, 3))

    def scaled(self, factor: float) -> Word:
        """The word in audio that is `factor` times as long."""
        return replace(self, start=round(self.start * factor, 3), end=round(self.end * factor, 3))


@dataclass(frozen=True)
class TimedSpan:
    """Characters of a sentence, and the decoding steps in which they are said; not yet seconds of audio."""

    first_character: int
    last_character: int
    """Last + 1."""
    start: float
    """Steps from the beginning of the take."""
    end: float
    confidence: float


def timed_spans(search: PathSearch, *, finished_before: int | None = None) -> tuple[TimedSpan, ...]:
    """The words of a take that were said, in the order of the text.

    A word that is said twice counts the first time. `finished_before`: only words whose end lies before that step.
    """
    if not search.attention:
        return ()
    path, attention = search.path(), np.stack(search.attention)
    found = []
    for index in search.places.words:
        inside = np.flatnonzero(path == index)
        if not len(inside):
            continue
        first, last = int(inside[0]), int(inside[0]) + _run_length(inside) - 1
        if finished_before is not None and last + 1 >= finished_before:
            break
        start, end = boundary(attention, first, index), boundary(attention, last + 1, index + 1)
        confidence = float(attention[first : last + 1, index].mean())
        place = search.places.places[index]
        found.append(TimedSpan(place.start, place.end, start, max(start, end), round(confidence, 3)))
    return tuple(found)


def words_of(
    sentence: str,
    forms: Sequence[WrittenForm],
    spans: Sequence[TimedSpan],
    *,
    step_seconds: float,
    audible: tuple[float, float],
) -> tuple[Word, ...]:
    """The words of a take with times from its first audible sample; those that were not said are left out.

    `forms` may be empty: each word is written as it is spoken then. `audible`: seconds in which the take is audible,
    from its first step. No word begins before it or ends after it.
    """
    groups = forms or [
        WrittenForm(sentence[span.first_character : span.last_character], span.first_character, span.last_character)
        for span in spans
    ]
    begin, end = audible

    def seconds(steps: float) -> float:
        return round(min(max(steps * step_seconds - LAG_SECONDS, begin), end) - begin, 3)

    words = []
    for form in groups:
        said = [span for span in spans if form.start <= span.first_character < form.end]
        if said:
            words.append(
                Word(
                    written=form.written,
                    spoken=sentence[form.start : form.end],
                    start=seconds(said[0].start),
                    end=seconds(said[-1].end),
                    confidence=round(float(np.mean([span.confidence for span in said])), 3),
                )
            )
    return tuple(words)


def boundary(attention: NDArray[np.float32], step: int, place: int) -> float:
    """Steps from the beginning until `place` begins, where the path enters it at `step`; attention (T, K).

    The step before and this one are divided by how much of their attention lies on `place` or later ones.
    """
    first = max(0, step - 1)
    later = float(attention[first : step + 1, place:].sum())
    return min(max(min(step + 1, len(attention)) - later, first), step + 1)


def _run_length(indices: NDArray[np.int64]) -> int:
    """Count the sorted indices that follow one another from the first."""
    breaks = np.flatnonzero(np.diff(indices) != 1)
    return int(breaks[0]) + 1 if len(breaks) else len(indices)
