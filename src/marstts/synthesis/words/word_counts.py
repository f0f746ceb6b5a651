"""Numbers of words in a take: a run of equal words ("no, no, no") is counted in its loudness; what follows a word that
attention returns to, or stays in for long, as well.

Upstream: the path of a take's attention (`attention_path`), its audio.  Downstream: `flaws`.
Attention cannot tell equal words apart, a word that is said twice with other tokens looks like one long word, and
attention may return to any word in the silence after the last one. So syllables are counted: each is a peak of the
loudness (P. Mermelstein, "Automatic segmentation of speech into syllabic units", 1975). Syllables that run together
make one peak, so fewer peaks than syllables are no flaw; fewer than words with pauses between them are one.
Shapes: N samples · F frames of 10 ms · K places of the sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform
from marstts.audio.spectral import magnitude_spectrogram
from marstts.synthesis.words.attention_path import STEPS_BEFORE_PAUSE, PathSearch, PlaceKind, SentencePlaces
from marstts.synthesis.words.word_times import LAG_SECONDS, TimedSpan, timed_spans

MAX_PERIOD = 2
"""Words that are repeated together: "tick, tock, tick, tock"."""

BAND_HZ = 300.0, 3500.0
"""Vowels are loudest here."""

FRAME_SECONDS, WINDOW_SECONDS, SMOOTHING_SECONDS = 0.01, 0.03, 0.12
"""Step and length of the spectra, and length of the window over their loudness: half a short syllable."""

MIN_DIP_DB = 6.0
"""Loudness falls by this much between two syllables and rises by it again."""

MIN_DOUBLED_SECONDS, SECONDS_PER_DOUBLED_SYLLABLE = 0.6, 0.3
"""A single word that lasts this long, and this long for each of its syllables, may be said twice. Shorter ones are not
looked at, for loudness costs time."""

FLOOR_DB = 25.0
"""Frames so far below the loudest one are silence."""

_VOWELS = re.compile(r"[aeiouy]+?(?=ing$)|[aeiouy]+")
_SILENT_END = re.compile(r"(?<=[^aeiouyl])e$|(?<=[^aeiouylcsgxz])es$|(?<=[^aeioutdy])ed$|(?<=[aeiouy][lr])es?$")


class MiscountKind(str, Enum):
    """Kind of a wrong number of words."""

    TOO_MANY = "too many"
    TOO_FEW = "too few"


@dataclass(frozen=True)
class CountedWords:
    """Words whose syllables are counted together."""

    words: tuple[int, ...]
    """Their places, which follow one another."""

    fewest: int
    """Peaks of loudness that they have at least."""

    most: int

    def miscount(self, num_peaks: int) -> MiscountKind | None:
        """The kind of miscount that this number of peaks shows; None where it may be right."""
        if num_peaks > self.most:
            return MiscountKind.TOO_MANY
        return MiscountKind.TOO_FEW if num_peaks < self.fewest else None


def miscounted_words(search: PathSearch, waveform: Waveform, step_seconds: float) -> Iterator[tuple[MiscountKind, int]]:
    """Yield the first place of each run that is said too often or too rarely, and places from which on words return.

    waveform: the whole take, from its first step.
    """
    runs = find_runs(search.places)
    doubted = {*returned_words(search), *long_words_apart(search, runs, step_seconds)}
    if not (runs or doubted) or not len(waveform.samples):
        return
    peaks = syllable_peaks(waveform)
    spans = {span.first_character: span for span in timed_spans(search)}
    for run in runs:
        said = [spans[start] for index in run.words if (start := search.places.places[index].start) in spans]
        kind = run.miscount(count_between(peaks, said[0], said[-1], step_seconds) if said else 0)
        if kind is not None:
            yield kind, run.words[0]
    for index in sorted(doubted):
        if has_spare_syllables(search, peaks, index, step_seconds):
            yield MiscountKind.TOO_MANY, index


def returned_words(search: PathSearch) -> Iterator[int]:
    """The words that the path goes back to before the end of the text."""
    end = len(search.places.places) - 1
    for before, after in pairwise(search.path.tolist()):
        if after < before < end:
            yield after


def has_spare_syllables(search: PathSearch, peaks: NDArray[np.float64], index: int, step_seconds: float) -> bool:
    """Whether more syllables are heard from where a word begins than it and all words after it have.

    Of 95 doubted words of 210 sound takes one has.
    """
    begin = search.path.tolist().index(index) * step_seconds - LAG_SECONDS
    written = sum(
        num_syllables(word_at(search.places, place) or "a") for place in search.places.words if place >= index
    )
    steps_in_words = np.flatnonzero(search.places.is_word[search.path])
    end = (steps_in_words.max(initial=-1) + 1) * step_seconds  # breath after the last word has peaks, too
    return int(((peaks >= begin) & (peaks < end)).sum()) > written


def find_runs(places: SentencePlaces) -> list[CountedWords]:
    """The longest stretches of a sentence in which one or two words return at once."""
    numbers, words = places.words, [word_at(places, index) for index in places.words]
    runs, first = [], 0
    while first < len(words):
        last = max(last_of_run(words, first, period) for period in range(1, MAX_PERIOD + 1))
        if last > first:
            are_apart = all(places.places[index + 1].kind is PlaceKind.MARK for index in numbers[first:last])
            syllables = sum(map(num_syllables, words[first : last + 1]))
            runs.append(CountedWords(numbers[first : last + 1], last + 1 - first if are_apart else 0, syllables))
        first = last + 1
    return runs


def long_words_apart(search: PathSearch, runs: Sequence[CountedWords], step_seconds: float) -> Iterator[int]:
    """The words outside of runs in which the path stays so long that they may be said twice."""
    in_runs = {index for run in runs for index in run.words}
    seconds = (np.bincount(search.path, minlength=len(search.places.places)) * step_seconds).tolist()
    for index in search.places.words:
        if seconds[index] < MIN_DOUBLED_SECONDS or index in in_runs or not (word := word_at(search.places, index)):
            continue
        longer = 0.0 if search.places.is_word[index + 1] else STEPS_BEFORE_PAUSE * step_seconds
        if seconds[index] - longer >= SECONDS_PER_DOUBLED_SYLLABLE * num_syllables(word):
            yield index


def word_at(places: SentencePlaces, index: int) -> str:
    """The letters of the word at a place, in small letters, its parts ("three-d") joined by hyphens.

    Empty where its syllables cannot be counted.
    """
    place = places.places[index]
    parts = places.sentence[place.start : place.end].lower().split("-")
    word = "-".join(letters for part in parts if (letters := "".join(filter(str.isalpha, part))))
    return word if word.isascii() else ""


def last_of_run(words: Sequence[str], first: int, period: int) -> int:
    """The last word of the run of this period that begins at `first`; `first` where its words do not return."""
    end = first + period
    while end < len(words) and words[end] and words[end] == words[end - period]:
        end += 1
    return end - 1 if end - first >= 2 * period else first


def num_syllables(word: str) -> int:
    """Syllables of an English word by its letters: groups of vowels, without the silent e at its end.

    At least 1 for each part between hyphens; the name of the letter w has 3.
    """
    return sum(
        3 if part == "w" else max(1, len(_VOWELS.findall(_SILENT_END.sub("", part)))) for part in word.split("-")
    )


def count_between(peaks: NDArray[np.float64], first: TimedSpan, last: TimedSpan, step_seconds: float) -> int:
    """The number of peaks from the beginning of one word to the end of another."""
    begin, end = first.start * step_seconds - LAG_SECONDS, last.end * step_seconds - LAG_SECONDS
    return int(((peaks >= begin) & (peaks < end)).sum())


def syllable_peaks(waveform: Waveform) -> NDArray[np.float64]:
    """Seconds of the peaks of loudness."""
    return np.array(prominent_peaks(smooth_levels(waveform).tolist()), np.float64) * FRAME_SECONDS


def prominent_peaks(levels: Sequence[float]) -> list[int]:
    """Frames of the peaks between which levels fall by `MIN_DIP_DB` or more and rise again."""
    highest, lowest, peak, is_rising = -np.inf, np.inf, 0, True
    found = []
    for frame, level in enumerate([*levels, -np.inf]):
        if level > highest:
            highest, peak = level, frame
        lowest = min(lowest, level)
        if is_rising and level <= highest - MIN_DIP_DB:
            found.append(peak)
            is_rising, lowest = False, level
        elif not is_rising and level >= lowest + MIN_DIP_DB:
            is_rising, highest, peak = True, level, frame
    return found


def smooth_levels(waveform: Waveform) -> NDArray[np.float64]:
    """(F,) decibels of the band of vowels, smoothed; none is more than `FLOOR_DB` below the loudest."""
    rate = waveform.sample_rate
    window, hop = round(WINDOW_SECONDS * rate), round(FRAME_SECONDS * rate)
    spectra = magnitude_spectrogram(waveform.samples, window, hop)
    bins = np.arange(len(spectra)) * rate / window
    powers = (spectra[(bins >= BAND_HZ[0]) & (bins <= BAND_HZ[1])].astype(np.float64) ** 2).sum(axis=0)
    smoothing = np.hanning(round(SMOOTHING_SECONDS / FRAME_SECONDS) + 1)
    levels = 10.0 * np.log10(np.convolve(powers, smoothing / smoothing.sum(), mode="same") + 1e-12)
    return np.maximum(levels, levels.max() - FLOOR_DB)
