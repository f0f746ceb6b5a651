"""The guard of a take that is being made: ends it after its last word, and gives it up where it cannot be saved.

Upstream: rows of a running batch.  Downstream: `batch`, `stream`, which stop a row that the guard has ended.
Rows that need neither are left as they are, token for token.
"""

from __future__ import annotations

from dataclasses import replace

from marstts.generation.request import RequestState, StopReason
from marstts.synthesis.attention_path import PathSearch, PlaceKind, SentencePlaces
from marstts.synthesis.flaws import AT_END, MAX_STEPS_AT_END, MAX_STEPS_IN_WORD, STEPS_PER_LETTER
from marstts.synthesis.model_session import ModelSession

KEPT_STEPS_AT_END = 2
"""Steps after the last word that stay in a take which the guard ended: the sound of a word dies away in them."""


class TakeGuard:
    """Follows one take through its sentence, step by step."""

    def __init__(self, session: ModelSession, sentence: str, *, may_give_up: bool) -> None:
        """`may_give_up`: another attempt follows, so that a hopeless take need not be finished."""
        self._session, self._sentence, self._may_give_up = session, sentence, may_give_up
        self._search: PathSearch | None = None
        self._first_at_end: int | None = None
        self._place, self._steps_in_place = 0, 0

    def judge(self, row: RequestState) -> RequestState:
        """The row as it is, or ended; a row whose model has no word times is never ended here."""
        if row.stop is not None or not self._follow(row):
            return row
        assert self._search is not None
        steps = len(row.attention)
        if self._first_at_end is not None and steps - self._first_at_end > MAX_STEPS_AT_END:
            kept = row.patches[: self._first_at_end + KEPT_STEPS_AT_END]
            return replace(row, patches=kept, attention=row.attention[: len(kept)], stop=StopReason.WORDS_DONE)
        if self._may_give_up and self._is_stuck():
            return replace(row, stop=StopReason.FLAWED)
        return row

    def _follow(self, row: RequestState) -> bool:
        """Take the steps that are new; returns whether the model has word times."""
        spans = self._session.model.text_spans(row.request.prompt) if row.attention else None
        if spans is None:
            return False
        if self._search is None:
            self._search = PathSearch.begin(SentencePlaces.of(self._sentence, spans))
        for step in range(len(self._search.attention), len(row.attention)):
            self._search = self._search.after(row.attention[step])
            if self._first_at_end is None and self._search.attention[-1][-1] >= AT_END:
                self._first_at_end = step
            here = self._search.here
            self._steps_in_place = self._steps_in_place + 1 if here == self._place else 1
            self._place = here
        return True

    def _is_stuck(self) -> bool:
        """Return True where the take stays in one word for longer than any word lasts."""
        assert self._search is not None
        place = self._search.places.places[self._place]
        most = max(MAX_STEPS_IN_WORD, STEPS_PER_LETTER * place.num_letters)
        return place.kind is PlaceKind.WORD and self._steps_in_place > most
