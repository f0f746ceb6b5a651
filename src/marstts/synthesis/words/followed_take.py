"""A take that is followed through its sentence: the path of its attention, and all that is read from it.

Upstream: rows of a running batch and their decoded audio.  Downstream: `runner`, which stops a row that is over, and
`ModelSession.decode_take`, which puts flaws and word times into the take.
The path is searched once, as far as it is asked for: to the last step of an ended take, or to the last one whose audio
is decoded where a stream reports words. Before that audio is there, whether a take stays in a word can only be told by
its attention, so that this has a search of its own.
Rows that need not be ended are left as they are, token for token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform
from marstts.codec.base import CodecSpec
from marstts.generation.request import RequestState, StopReason
from marstts.synthesis.words.attention_path import PathSearch, PlaceKind, SentencePlaces
from marstts.synthesis.words.audible_steps import FRAMES_PER_STEP, AudibleSteps
from marstts.synthesis.words.flaws import (
    AT_END,
    MAX_STEPS_AT_END,
    MAX_STEPS_IN_WORD,
    STEPS_PER_LETTER,
    TakeFlaw,
    find_flaws,
)
from marstts.synthesis.words.word_times import Word, timed_spans, words_of, words_on_path
from marstts.synthesis.words.written_forms import forms_of
from marstts.text.segments import Segment

KEPT_STEPS_AT_END = 2
"""Steps after the last word that stay in a take which was ended there: the sound of a word dies away in them."""

STEPS_FOLLOWED_TOGETHER = 12
"""Steps whose path is searched at once, 1 s: a hopeless take is given up so much later, and each step costs less."""

FIRST_STEPS_FOLLOWED = 2 * STEPS_FOLLOWED_TOGETHER
"""A take with fewer steps cannot have stayed in a word for too long."""

SETTLED_STEPS = 3
"""Steps after a word's end until its times are final: later attention hardly changes the path before."""


def open_patches(row: RequestState) -> int:
    """Patches of the last state in which a row had not ended, whichever of its states were seen."""
    if row.stop is StopReason.WORDS_DONE:
        return len(row.patches) + MAX_STEPS_AT_END - KEPT_STEPS_AT_END
    return len(row.patches) - (row.stop is StopReason.MAX_PATCHES)


class FollowedTake:
    """One take from its first step to its words; without word times where its model has none. For one thread at a time.

    While it is made: `ended` and `new_words`. Once `finish` was called: `search`, `flaws` and `timing`.
    """

    def __init__(
        self,
        segment: Segment,
        spans: NDArray[np.int64] | None,
        codec: CodecSpec,
        *,
        paper: bool = False,
        may_give_up: bool = False,
    ) -> None:
        """spans: (S, 2) characters of each text token, see `SpeechModel.text_spans`; None without word times.

        `paper`: it is neither ended nor has flaws. `may_give_up`: another attempt follows, so that a hopeless take need
        not be finished.
        """
        self.segment, self._spans, self._codec = segment, spans, codec
        self._paper, self._may_give_up = paper, may_give_up
        self._end = _EndOfWords()
        self._stay = _StayInWord()
        self._row: RequestState | None = None
        self._waveform: Waveform | None = None
        self._search: PathSearch | None = None
        self._audible = AudibleSteps.begin(codec.sample_rate, codec.patch_rate)
        self._num_heard = self._num_reported = 0

    @cached_property
    def places(self) -> SentencePlaces:
        """The places of the sentence; only where the model has word times."""
        assert self._spans is not None
        return SentencePlaces.of(self.segment.text, self._spans)

    # While it is made.

    def ended(self, row: RequestState) -> RequestState:
        """The row as it is, or ended: after its last word, or given up where it stays in a word for too long.

        Which of a row's states are seen changes nothing: where it ends follows from its steps alone.
        """
        num_steps = len(row.attention) - (row.stop is not None)  # a row may be seen only when it has ended by itself
        if self._paper or self._spans is None or not self._end.may_be_known(num_steps):
            return row
        kept = self._end.kept_steps(row, num_steps, self.places)
        if kept is not None:
            return replace(row, patches=row.patches[:kept], attention=row.attention[:kept], stop=StopReason.WORDS_DONE)
        if row.stop is None and self._may_give_up and self._stay.is_too_long(row, self.places):
            return replace(row, stop=StopReason.FLAWED)
        return row

    def hear(self, samples: NDArray[np.float32]) -> None:
        """Take the next decoded samples (N,), for `new_words`."""
        self._audible, self._num_heard = self._audible.after(samples), self._num_heard + len(samples)

    def new_words(self, row: RequestState, start: int | None) -> tuple[Word, ...]:
        """Words that were finished since the last call, in seconds from sample `start` of the audio.

        Attention is followed as far as its audio was heard. None as long as `start` is not known.
        """
        num_steps = min(len(row.attention), len(self._audible.frames))
        if self._spans is None or start is None or num_steps <= SETTLED_STEPS + 1:
            return ()  # no word can be over: the path is searched later, and the first chunk comes sooner
        search = self._follow(row, self._audible.frames)
        spans = timed_spans(search, finished_before=search.num_steps - SETTLED_STEPS)
        end = round(search.num_steps * self._codec.sample_rate / self._codec.patch_rate)
        words = words_of(
            self.segment.text,
            forms_of(self.segment),
            spans,
            step_seconds=self._step_seconds,
            audible=self._seconds_of(start, end),
        )
        return self._report(words[:-1])  # the last may be half a written word

    def rest_of(self, words: tuple[Word, ...] | None) -> tuple[Word, ...]:
        """The words that were not reported, of all `words` of the take."""
        return self._report(words or ())

    # When it has ended.

    def finish(self, row: RequestState, waveform: Waveform) -> None:
        """Note the ended row and the audio of all its patches."""
        assert row.stop is not None
        self._row, self._waveform = row, waveform

    @cached_property
    def search(self) -> PathSearch | None:
        """The path of the whole take; None where the model has no word times."""
        row, waveform = self._row, self._waveform
        assert row is not None and waveform is not None, "it was finished"
        if self._spans is None or not row.attention:
            return None
        audible = self._audible.after(waveform.samples[self._num_heard :]).frames[: len(row.attention)]
        silent = np.zeros((len(row.attention) - len(audible), FRAMES_PER_STEP), np.float32)  # the step that ended it
        return self._follow(row, np.concatenate([audible, silent]))

    @cached_property
    def flaws(self) -> tuple[TakeFlaw, ...]:
        """Its flaws; none that can be known where the model has no word times."""
        row = self._row
        if self._paper or self.search is None:
            return ()
        assert row is not None
        return find_flaws(
            self.search,
            self.segment.text,
            self._step_seconds,
            tokens=np.array(row.patches, np.int64),
            waveform=self._waveform,
            has_ended=row.stop is StopReason.EOS,
        )

    def timing(self, start: int, end: int) -> Callable[[], tuple[Word, ...]] | None:
        """Return the function that computes its words, where the samples `start` to `end` of its audio are kept.

        It holds the path and nothing else of the take. None where the model has no word times.
        """
        if self.search is None:
            return None
        text, forms, audible = self.segment.text, forms_of(self.segment), self._seconds_of(start, end)
        return partial(words_on_path, self.search, text, forms, step_seconds=self._step_seconds, audible=audible)

    def _follow(self, row: RequestState, frames: NDArray[np.float32]) -> PathSearch:
        """The search as far as attention and frames (T, F) are known, from where it was."""
        search, num_steps = self._search, min(len(row.attention), len(frames))
        if search is None or search.num_steps > num_steps:  # it went beyond the step where the take was ended
            search = PathSearch.begin(self.places)
        first = search.num_steps
        self._search = search.after(row.attention[first:num_steps], frames[first:num_steps])
        return self._search

    def _report(self, words: tuple[Word, ...]) -> tuple[Word, ...]:
        new = words[self._num_reported :]
        self._num_reported += len(new)
        return new

    @property
    def _step_seconds(self) -> float:
        return 1.0 / self._codec.patch_rate

    def _seconds_of(self, start: int, end: int) -> tuple[float, float]:
        return start / self._codec.sample_rate, end / self._codec.sample_rate


class _EndOfWords:
    """Finds the first step after the last word, in attention alone."""

    def __init__(self) -> None:
        self._num_seen = 0
        """Steps in which the end of the text was looked for."""
        self._first: int | None = None
        self._next_look = MAX_STEPS_AT_END + 1
        """Steps that the take must have before there is anything to decide."""

    def may_be_known(self, num_steps: int) -> bool:
        """Return True where so many steps can decide that the take is over."""
        return num_steps >= self._next_look

    def kept_steps(self, row: RequestState, num_steps: int, places: SentencePlaces) -> int | None:
        """Steps that stay of a take which goes on after its last word; None while it does not."""
        if self._first is None:
            self._look(row, num_steps, places)
        if self._first is None or num_steps - self._first <= MAX_STEPS_AT_END:
            return None
        return min(self._first + KEPT_STEPS_AT_END, len(row.patches))

    def _look(self, row: RequestState, num_steps: int, places: SentencePlaces) -> None:
        """Look at the steps that are new, of `num_steps`."""
        tokens = places.tokens_of_end
        for step in range(self._num_seen, num_steps):  # a few numbers: faster than arrays
            if sum(row.attention[step][tokens].tolist()) >= AT_END:
                self._first = step
                break
        self._num_seen = num_steps
        after = self._num_seen if self._first is None else self._first
        self._next_look = after + MAX_STEPS_AT_END + 1  # fewer steps cannot be too many


class _StayInWord:
    """Follows how long a take has been in one place, by its attention alone."""

    def __init__(self) -> None:
        self._search: PathSearch | None = None
        self._next_look = FIRST_STEPS_FOLLOWED
        self._place, self._num_steps = 0, 0

    def is_too_long(self, row: RequestState, places: SentencePlaces) -> bool:
        """Return True where the take stays in one word for longer than any word lasts."""
        if len(row.attention) < self._next_look:
            return False
        self._next_look = len(row.attention) + STEPS_FOLLOWED_TOGETHER
        search = self._search or PathSearch.begin(places)
        before = search.num_steps
        self._search = search.after(row.attention[before:])
        for here in self._search.latest[before:]:
            self._num_steps = self._num_steps + 1 if here == self._place else 1
            self._place = here
        place = places.places[self._place]
        most = max(MAX_STEPS_IN_WORD, STEPS_PER_LETTER * place.num_letters)
        return place.kind is PlaceKind.WORD and self._num_steps > most
