"""Words of a stream: each is reported once, when the speech has gone on to the next.

Upstream: rows of a running batch.  Downstream: `runner`.
"""

from __future__ import annotations

from marstts.generation.request import RequestState
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.words.attention_path import PathSearch, SentencePlaces
from marstts.synthesis.words.word_times import Word, timed_spans
from marstts.text.segments import Segment

SETTLED_STEPS = 3
"""Steps after a word's end until its times are final: later attention hardly changes the path before."""


class StreamedWords:
    """The words of one take that is being made."""

    def __init__(self, session: ModelSession, segment: Segment) -> None:
        self._session, self._segment = session, segment
        self._search: PathSearch | None = None
        self._num_reported = 0

    def finished(self, row: RequestState, start: int | None) -> tuple[Word, ...]:
        """Words that were finished since the last call, in seconds from sample `start` of the sentence's audio.

        None as long as that is not known, or where the model has no word times.
        """
        if not self._follow(row) or start is None:
            return ()
        assert self._search is not None
        spans = timed_spans(self._search, finished_before=len(row.attention) - SETTLED_STEPS)
        end = round(len(row.attention) * self._session.codec.spec.sample_rate / self._session.codec.spec.patch_rate)
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
        self._search = self._search.after(row.attention[self._search.num_steps :])
        return True

    def _new(self, words: tuple[Word, ...]) -> tuple[Word, ...]:
        new = words[self._num_reported :]
        self._num_reported += len(new)
        return new
