"""Flaws of a take: words that are missing, said twice or broken off, loops, and sounds after the last word.

Upstream: the path of a take's attention (`attention_path`), its tokens.  Downstream: `followed_take`,
which `backoff` and reports follow. See docs/word-times.md.
Shapes: T steps of a take · K places of the sentence · P positions of a patch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform
from marstts.synthesis.words.attention_path import PathSearch
from marstts.synthesis.words.word_counts import MiscountKind, miscounted_words
from marstts.synthesis.words.word_times import MIN_SKIPPED_LETTERS, attended_spans

AT_END = 0.5
"""A step with this much attention to the end mark is after the last word."""

MAX_STEPS_AT_END = 3
"""Steps after the last word, 0.26 s: sound takes end within two."""

MIN_ATTENTION_AFTER_WORDS, MIN_ATTENTION_AFTER_LOUD_END = 0.6, 1.5
"""Attention to what follows the last word, summed over a take, at least; more where the last steps are loud. Sound
takes of mini have 1.3 to 7 and end quietly, those that break off in the last word none."""

LOUD_END, LAST_STEPS = 0.5, 2
"""A take whose last steps are audible by this much breaks off."""

MIN_SHARE_OF_DURATION, MIN_SHARE_BEFORE_PAUSE, MIN_SHORTENED_LETTERS = 0.6, 0.65, 4
"""A word of so many letters is skipped if it gets attention for less than this share of its usual duration."""

MAX_STEPS_IN_WORD = 18
"""1.5 s; the longest words of sound takes last 1.1 s."""

STEPS_PER_LETTER = 3.0
"""A word of many letters may take longer: this much for each."""

MIN_REPEATED_PATCHES = 2
"""So many patches that return token for token, one after the other, are a loop."""


class FlawKind(str, Enum):
    """Kind of a flaw."""

    SKIPPED = "skipped"
    REPEATED = "repeated"
    UNFINISHED = "unfinished"
    LOOP = "loop"
    BABBLE = "babble after the end"


@dataclass(frozen=True)
class TakeFlaw:
    """One flaw of a take."""

    kind: FlawKind

    word: str
    """The word that is concerned; empty for babble."""

    seconds: float
    """Seconds from the beginning of the take."""

    def __str__(self) -> str:
        what = f"{self.kind.value}: {self.word!r}" if self.word else self.kind.value
        return f"{what} ({self.seconds:.1f} s)"


def find_flaws(
    search: PathSearch,
    sentence: str,
    step_seconds: float,
    *,
    tokens: NDArray[np.int64] | None = None,
    waveform: Waveform | None = None,
    has_ended: bool = True,
) -> tuple[TakeFlaw, ...]:
    """All flaws of a take, by kind; `tokens` (T, P) and `waveform` of its patches, `has_ended`: by end of speech."""
    if not search.num_steps:
        return ()
    at_end = search.attention[:, -1].tolist()
    steps, places = search.path.tolist(), search.places.places

    def flaw(kind: FlawKind, place: int, step: int) -> TakeFlaw:
        return TakeFlaw(kind, sentence[places[place].start : places[place].end], round(step * step_seconds, 2))

    found = [flaw(FlawKind.SKIPPED, place, step) for place, step in skipped_words(search, steps)]
    if waveform is not None:
        for kind, place in miscounted_words(search, waveform, step_seconds):
            step = next((step for step, here in enumerate(steps) if here >= place), len(steps))
            found.append(flaw(FlawKind.REPEATED if kind is MiscountKind.TOO_MANY else FlawKind.SKIPPED, place, step))
    found += [flaw(FlawKind.LOOP, place, step) for place, step in long_words(search, steps)]
    if tokens is not None and (patch := repeated_patches(tokens)) is not None:
        found.append(flaw(FlawKind.LOOP, steps[patch], patch))
    if has_ended and breaks_off(search):
        found.append(flaw(FlawKind.UNFINISHED, search.places.words[-1], len(steps)))
    end = next((step for step, share in enumerate(at_end) if share >= AT_END), len(steps))
    if len(steps) - end > MAX_STEPS_AT_END:
        found.append(TakeFlaw(FlawKind.BABBLE, "", round((end + 1) * step_seconds, 2)))
    return tuple(found)


def skipped_words(search: PathSearch, path: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Places of words that the path passed over or hurried through, and the step where it did."""
    furthest, usual = max(path), search.places.usual_steps.tolist()
    visited = set(path)
    spans = attended_spans(search) if search.knows_sound else {}
    for index in search.places.words:
        num_letters = search.places.places[index].num_letters
        if index >= furthest:
            return
        step = next(step for step, here in enumerate(path) if here >= index)
        if index not in visited and num_letters >= MIN_SKIPPED_LETTERS:
            yield index, step
        elif index in spans and num_letters >= MIN_SHORTENED_LETTERS:
            share = MIN_SHARE_OF_DURATION if search.places.is_word[index + 1] else MIN_SHARE_BEFORE_PAUSE
            if spans[index].num_steps < share * usual[index]:
                yield index, step


def breaks_off(search: PathSearch) -> bool:
    """Return True where a take ends before its last word does."""
    if not search.places.words:
        return False
    after = float(search.attention[:, search.places.words[-1] + 1 :].sum())
    steps = search.audible[-1 - LAST_STEPS : -1]  # no audio belongs to the step that ended the take
    is_loud = len(steps) > 0 and float(steps.mean()) > LOUD_END
    return after < (MIN_ATTENTION_AFTER_LOUD_END if is_loud else MIN_ATTENTION_AFTER_WORDS)


def long_words(search: PathSearch, path: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Places of words that last far longer than their letters take, and the step where they begin."""
    if len(path) <= MAX_STEPS_IN_WORD:
        return
    for index in search.places.words:
        most = max(MAX_STEPS_IN_WORD, STEPS_PER_LETTER * search.places.places[index].num_letters)
        if path.count(index) > most:
            yield index, path.index(index)


def repeated_patches(tokens: NDArray[np.int64]) -> int | None:
    """tokens (T, P) -> the patch where a stretch begins that returns at once token for token; None if none does."""
    if len(tokens) - len({patch.tobytes() for patch in tokens}) < MIN_REPEATED_PATCHES:
        return None
    for length in range(MIN_REPEATED_PATCHES, len(tokens) // 2 + 1):
        same = (tokens[:-length] == tokens[length:]).all(axis=1)
        run = 0
        for patch, is_same in enumerate(same):
            run = run + 1 if is_same else 0
            if run == length:
                return patch - length + 1
    return None
