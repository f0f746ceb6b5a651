"""Words of a stream: each is reported once, when the speech has gone on to the next.

Upstream: rows of a running batch.  Downstream: `runner`.
"""

from __future__ import annotations

from marstts.generation.request import RequestState
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.speech import Samples
from marstts.synthesis.words.attention_path import PathSearch, SentencePlaces
from marstts.synthesis.words.audible_steps import AudibleSteps
from marstts.synthesis.words.word_times import Word, timed_spans
from marstts.text.segments import Segment

SETTLED_STEPS = 3
"""Steps after a word's end until its times are final: later attention hardly changes the path before."""


class StreamedWords:
    """The words of one take that is being made."""

    def __init__(self, session: ModelSession, segment: Segment) -> None:
        self._session, self._segment = session, segment
        self._search: PathSearch | None = None
        spec = session.codec.spec
        self._audible = AudibleSteps.begin(spec.sample_rate, spec.patch_rate)
        self._num_reported = 0

    def hear(self, samples: Samples) -> None:
        """Take the next decoded samples (N,) of the take."""
        self._audible = self._audible.after(samples)

    def finished(self, row: RequestState, start: int | None) -> tuple[Word, ...]:
        """Words that were finished since the last call, in seconds from sample `start` of the sentence's audio.

        Attention is followed as far as its audio is decoded. None as long as `start` is not known, or where the model
        has no word times.
        """
        if not self._follow(row) or start is None:
            return ()
        assert self._search is not None
        num_steps, spec = self._search.num_steps, self._session.codec.spec
        spans = timed_spans(self._search, finished_before=num_steps - SETTLED_STEPS)
        end = round(num_steps * spec.sample_rate / spec.patch_rate)
        words = self._session.timed_words(self._segment, spans, start, end)[:-1]  # the last may be half a written word
        return self._new(words)

    def rest(self, words: tuple[Word, ...] | None) -> tuple[Word, ...]:
        """The words that were not reported, of all `words` of the take."""
        return self._new(words or ())

    def _follow(self, row: RequestState) -> bool:
        """Take the steps that the row made since the last call; returns whether the model has word times."""
        spans = self._session.model.text_spans(row.request.prompt) if row.attention else None
        if spans is None:
            return False
        if self._search is None:
            self._search = PathSearch.begin(SentencePlaces.of(self._segment.text, spans))
        first, last = self._search.num_steps, min(len(row.attention), len(self._audible.frames))
        self._search = self._search.after(row.attention[first:last], self._audible.frames[first:last])
        return True

    def _new(self, words: tuple[Word, ...]) -> tuple[Word, ...]:
        new = words[self._num_reported :]
        self._num_reported += len(new)
        return new
