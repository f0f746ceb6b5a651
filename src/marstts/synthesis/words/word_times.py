"""Word times: when each word of a take is said, from the path of its attention.

Upstream: `attention_path`, `written_forms` (spoken words and the written ones they stand for).  Downstream:
`followed_take`, `captions`.
A decoding step lasts 85 ms. Boundaries lie inside steps: where one step attends to two words, it is divided between
them by their attention. Attention follows the sound by `LAG_SECONDS`, which was measured against forced alignment
(docs/word-times.md).
Shapes: T steps of a take · K places of the sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from marstts.synthesis.words.attention_path import PathSearch
from marstts.synthesis.words.written_forms import WrittenForm

LAG_SECONDS = 0.056
"""Median over words, mini: a step moves its attention to a word this long after the sound of it has begun."""

LAG_STEPS = 0.66
"""The same in steps."""

END_SPREAD, FARTHEST_END, MAX_CLOSURE_FRAMES, MIN_FRAMES_OF_WORD = 4.25, 12, 8, 2
"""Frames by which the end of sound usually lies beside that of attention where a pause follows, and at most behind it;
frames of the closure before a final "t"; and those that a word lasts at least."""

DOUBTFUL_SOUND, FRAMES_AFTER_SOUND = 0.15, 2
"""A frame that is this audible may be of a word or of the pause after it. Words end so many frames after their sound by
forced alignment."""

MIN_WORD_SECONDS = 0.04
"""A word that was said lasts this long at least; it takes the time from its neighbors."""

MIN_SKIPPED_LETTERS = 3
"""A word of fewer letters to which no step attends counts as said all the same."""


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
    """Mean attention to the word while it is said, 0 to 1; below 0.3 the times are doubtful, at 0 so is the word."""

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


@dataclass(frozen=True)
class AttendedSpan:
    """Decoding steps in which a word has attention."""

    last_step: int
    """The last step of the path's first stretch in the word."""
    start: float
    """Steps from the beginning of the take."""
    end: float
    confidence: float

    @property
    def num_steps(self) -> float:
        """Its duration, never negative."""
        return max(0.0, self.end - self.start)


def attended_spans(search: PathSearch) -> dict[int, AttendedSpan]:
    """Place of each word in which the path has been -> when it has attention, the first time."""
    attention = search.attention
    steps = attention.tolist()
    later = np.cumsum(attention[:, ::-1], axis=1)[:, ::-1].tolist()  # (T, K) attention to a place or later ones
    stretches = first_stretches(search.path.tolist())
    found: dict[int, AttendedSpan] = {}
    for index in search.places.words:
        if index not in stretches:
            continue
        first, last = stretches[index]
        start, end = boundary(later, first, index), boundary(later, last + 1, index + 1)
        confidence = sum(step[index] for step in steps[first : last + 1]) / (last + 1 - first)
        found[index] = AttendedSpan(last, start, end, round(confidence, 3))
    return found


def timed_spans(search: PathSearch, *, finished_before: int | None = None) -> tuple[TimedSpan, ...]:
    """The words of a take that were said, in the order of the text.

    A word that is said twice counts the first time. `finished_before`: only words whose end lies before that step.
    """
    found = []
    for index, span in attended_spans(search).items():
        if finished_before is not None and span.last_step + 1 >= finished_before:
            break
        end = max(span.start, end_before_pause(search, span))
        place = search.places.places[index]
        found.append(TimedSpan(place.start, place.end, span.start, end, span.confidence))
    return tuple(found)


def words_on_path(
    search: PathSearch,
    sentence: str,
    forms: Sequence[WrittenForm],
    *,
    step_seconds: float,
    audible: tuple[float, float],
) -> tuple[Word, ...]:
    """The words of a take whose attention took this path, see `words_of`."""
    return words_of(sentence, forms, timed_spans(search), step_seconds=step_seconds, audible=audible)


def words_of(
    sentence: str,
    forms: Sequence[WrittenForm],
    spans: Sequence[TimedSpan],
    *,
    step_seconds: float,
    audible: tuple[float, float],
) -> tuple[Word, ...]:
    """The words of a take with times from its first audible sample, up to the last that was said.

    A word before it that no step attends to has confidence 0. If it is a short one ("a"), it is often said all the
    same, and lasts `MIN_WORD_SECONDS` before the next word; else it lasts no time. `forms` may be empty: each word is
    written as it is spoken then. `audible`: seconds in
    which the take is audible, from its first step. No word begins before it or ends after it.
    """
    groups = forms or [
        WrittenForm(sentence[span.first_character : span.last_character], span.first_character, span.last_character)
        for span in spans
    ]
    begin, end = audible

    def seconds(steps: float) -> float:
        return round(min(max(steps * step_seconds - LAG_SECONDS, begin), end) - begin, 3)

    words: list[Word] = []
    unattended: list[WrittenForm] = []
    for form in groups:
        said = [span for span in spans if form.start <= span.first_character < form.end]
        if not said:
            unattended.append(form)
            continue
        first, last = seconds(said[0].start), seconds(said[-1].end)
        confidence = round(float(np.mean([span.confidence for span in said])), 3)
        for one in unattended:
            words.append(Word(written=one.written, spoken=sentence[one.start : one.end], start=first, end=first,
                              confidence=0.0))  # fmt: skip
        words.append(Word(written=form.written, spoken=sentence[form.start : form.end], start=first, end=last,
                          confidence=confidence))  # fmt: skip
        unattended.clear()
    return with_least_durations(words, end - begin)


def with_least_durations(words: Sequence[Word], seconds: float) -> tuple[Word, ...]:
    """The words of a take of this many seconds, those that were said for `MIN_WORD_SECONDS` at least."""
    found = list(words)
    for index, word in enumerate(found):
        num_letters = sum(map(str.isalnum, word.spoken))
        if word.end - word.start >= MIN_WORD_SECONDS or (not word.confidence and num_letters >= MIN_SKIPPED_LETTERS):
            continue
        start, end = word.start, min(word.start + MIN_WORD_SECONDS, seconds)
        if index + 1 < len(found) and found[index + 1].start < end:
            if found[index + 1].end - end >= MIN_WORD_SECONDS:
                found[index + 1] = replace(found[index + 1], start=round(end, 3))
            else:
                end = max(found[index + 1].start, word.end)
        start = max(0.0, min(start, end - MIN_WORD_SECONDS))
        if index and found[index - 1].end > start:
            start = max(start, min(found[index - 1].end, found[index - 1].start + MIN_WORD_SECONDS))
            found[index - 1] = replace(found[index - 1], end=round(min(found[index - 1].end, start), 3))
        found[index] = replace(word, start=round(start, 3), end=round(max(start, end), 3))
    return tuple(found)


def first_stretches(path: Sequence[int]) -> dict[int, tuple[int, int]]:
    """The first and the last step of the first stretch of a path in each place."""
    found: dict[int, tuple[int, int]] = {}
    begin = 0
    for step, place in enumerate(path):
        if step + 1 == len(path) or path[step + 1] != place:
            found.setdefault(place, (begin, step))
            begin = step + 1
    return found


def end_before_pause(search: PathSearch, span: AttendedSpan) -> float:
    """Steps where a word ends that has attention in `span`.

    Only before a pause, and where it is known what is audible, is it not the end of that: sound belongs to the word and
    silence to the pause, unless they are far from there. So a short sound after the closure of a final "t" is of the
    word, and breath after the word is not.
    """
    path, is_word, end = search.path, search.places.is_word, span.end
    goes_on = span.last_step + 1 < len(path) and is_word[path[span.last_step + 1]]
    if goes_on or not search.knows_sound:
        return end
    num_frames = search.audible.shape[1]
    audible = search.audible.reshape(-1)
    usual = (end - LAG_STEPS) * num_frames
    first = max(int((span.start - LAG_STEPS) * num_frames) + MIN_FRAMES_OF_WORD, 0)
    inside = np.flatnonzero(audible[first : (span.last_step + 1) * num_frames])
    if len(inside):
        usual = min(usual, float(first + inside[-1] + 1 + MAX_CLOSURE_FRAMES))
    stop = min(int(usual) + FARTHEST_END, len(audible))
    if stop <= first:
        return end
    gains = np.cumsum(audible[first:stop].astype(np.float64) - DOUBTFUL_SOUND)
    ends = np.arange(first, stop + 1)
    scores = np.concatenate([[0.0], gains]) - 0.5 * ((ends - usual) / END_SPREAD) ** 2
    return float(ends[scores.argmax()] + FRAMES_AFTER_SOUND) / num_frames + LAG_STEPS


def boundary(later: Sequence[Sequence[float]], step: int, place: int) -> float:
    """Steps from the beginning until `place` begins, where the path enters it at `step`.

    later (T, K): attention of each step to a place and those after it. The step before and this one are divided by it.
    """
    first = max(0, step - 1)
    after = sum(attention[place] for attention in later[first : step + 1])
    return min(max(min(step + 1, len(later)) - after, first), step + 1)
