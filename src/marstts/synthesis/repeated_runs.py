"""Runs of equal words ("no, no, no") that a take says more or less often than the text: counted in its loudness.

Upstream: the path of a take's attention (`attention_path`), its audio.  Downstream: `flaws`.
Attention cannot tell equal words apart, and a word that is said twice with other tokens looks like one long word. So
the syllables of the run are counted, each a peak of the loudness (P. Mermelstein, "Automatic segmentation of speech
into syllabic units", 1975). Syllables that run together make one peak, so fewer peaks than syllables are no flaw; fewer
than words with pauses between them are one.
Shapes: N samples · F frames of 10 ms · K places of the sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform
from marstts.spectral import magnitude_spectrogram
from marstts.synthesis.attention_path import PathSearch, PlaceKind, SentencePlaces
from marstts.synthesis.word_times import LAG_SECONDS, TimedSpan, timed_spans

MAX_PERIOD = 2
"""Words that are repeated together: "tick, tock, tick, tock"."""

BAND_HZ = 300.0, 3500.0
"""Vowels are loudest here."""

FRAME_SECONDS, WINDOW_SECONDS, SMOOTHING_SECONDS = 0.01, 0.03, 0.12
"""Step and length of the spectra, and length of the window over their loudness: half a short syllable."""

MIN_DIP_DB = 6.0
"""Loudness falls by this much between two syllables and rises by it again."""

FLOOR_DB = 25.0
"""What is so far below the loudest frame is silence."""

_VOWELS = re.compile(r"[aeiouy]+?(?=ing$)|[aeiouy]+")
_SILENT_END = re.compile(r"(?<=[^aeiouyl])e$|(?<=[^aeiouylcsgxz])es$|(?<=[^aeioutdy])ed$|(?<=[aeiouy][lr])es?$")


class MiscountKind(str, Enum):
    """Kind of a wrong number of words."""

    TOO_MANY = "too many"
    TOO_FEW = "too few"


@dataclass(frozen=True)
class Run:
    """Words that repeat those before them."""

    words: tuple[int, ...]
    """Their places."""

    num_syllables: int
    """Syllables of all of them."""

    are_apart: bool
    """A mark, at which readers pause, follows each but the last one."""

    def miscount(self, num_peaks: int) -> MiscountKind | None:
        """Whether this number of peaks is more than the syllables, or less than the words with pauses between them."""
        if num_peaks > self.num_syllables:
            return MiscountKind.TOO_MANY
        return MiscountKind.TOO_FEW if self.are_apart and num_peaks < len(self.words) else None


def find_runs(places: SentencePlaces) -> list[Run]:
    """The longest stretches of a sentence in which one or two words return at once."""
    kinds, numbers = [place.kind for place in places.places], places.words
    words = [key_of(places.sentence[places.places[index].start : places.places[index].end]) for index in numbers]
    runs, first = [], 0
    while first < len(words):
        last = max(last_of_run(words, first, period) for period in range(1, MAX_PERIOD + 1))
        if last > first:
            syllables = sum(map(num_syllables, words[first : last + 1]))
            are_apart = all(kinds[index + 1] is PlaceKind.MARK for index in numbers[first:last])
            runs.append(Run(numbers[first : last + 1], syllables, are_apart))
        first = last + 1
    return runs


def key_of(word: str) -> str:
    """The letters of a word, in small letters."""
    return "".join(filter(str.isalpha, word)).lower()


def last_of_run(words: Sequence[str], first: int, period: int) -> int:
    """The last word of the run of this period that begins at `first`; `first` where its words do not return."""
    end = first + period
    while end < len(words) and words[end] and words[end] == words[end - period]:
        end += 1
    return end - 1 if end - first >= 2 * period else first


def num_syllables(word: str) -> int:
    """Syllables of an English word by its letters: groups of vowels, without the silent e at its end; at least 1."""
    return max(1, len(_VOWELS.findall(_SILENT_END.sub("", word))))


def miscounted_runs(search: PathSearch, waveform: Waveform, step_seconds: float) -> Iterator[tuple[MiscountKind, int]]:
    """Yield the place of the first word of each run that the audio has too many or too few words of.

    waveform: the whole take, from its first step.
    """
    runs = find_runs(search.places)
    if not runs or not len(waveform.samples):
        return
    peaks = syllable_peaks(waveform)
    spans = {span.first_character: span for span in timed_spans(search)}
    for run in runs:
        starts = [search.places.places[index].start for index in run.words]
        said = [spans[start] for start in starts if start in spans]
        kind = run.miscount(count_between(peaks, said[0], said[-1], step_seconds) if said else 0)
        if kind is not None:
            yield kind, run.words[0]


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
    """(F,) decibels of the band of vowels, smoothed; at least `FLOOR_DB` below the loudest frame."""
    rate = waveform.sample_rate
    window, hop = round(WINDOW_SECONDS * rate), round(FRAME_SECONDS * rate)
    spectra = magnitude_spectrogram(waveform.samples, window, hop)
    bins = np.arange(len(spectra)) * rate / window
    powers = (spectra[(bins >= BAND_HZ[0]) & (bins <= BAND_HZ[1])].astype(np.float64) ** 2).sum(axis=0)
    smoothing = np.hanning(round(SMOOTHING_SECONDS / FRAME_SECONDS) + 1)
    levels = 10.0 * np.log10(np.convolve(powers, smoothing / smoothing.sum(), mode="same") + 1e-12)
    return np.maximum(levels, levels.max() - FLOOR_DB)
