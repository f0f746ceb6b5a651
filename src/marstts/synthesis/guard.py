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


STEPS_FOLLOWED_TOGETHER = 6
"""Steps whose path is searched at once, 0.5 s: a hopeless take is given up so much later, and each step costs less."""


class TakeGuard:
    """Follows one take through its sentence, step by step."""

    def __init__(self, session: ModelSession, sentence: str, *, may_give_up: bool) -> None:
        """`may_give_up`: another attempt follows, so that a hopeless take need not be finished."""
        self._session, self._sentence, self._may_give_up = session, sentence, may_give_up
        self._search: PathSearch | None = None
        self._num_steps = 0
        self._first_at_end: int | None = None
        self._place, self._steps_in_place = 0, 0

    def judge(self, row: RequestState) -> RequestState:
        """The row as it is, or ended; a row whose model has no word times is never ended here."""
        if row.stop is not None or not self._follow(row):
            return row
        if self._first_at_end is not None and self._num_steps - self._first_at_end > MAX_STEPS_AT_END:
            kept = row.patches[: self._first_at_end + KEPT_STEPS_AT_END]
            return replace(row, patches=kept, attention=row.attention[: len(kept)], stop=StopReason.WORDS_DONE)
        if self._may_give_up and self._num_steps % STEPS_FOLLOWED_TOGETHER == 0 and self._is_stuck(row):
            return replace(row, stop=StopReason.FLAWED)
        return row

    def _follow(self, row: RequestState) -> bool:
        """Take the steps that are new; returns whether the model has word times."""
        if self._search is None:
            spans = self._session.model.text_spans(row.request.prompt) if row.attention else None
            if spans is None:
                return False
            self._search = PathSearch.begin(SentencePlaces.of(self._sentence, spans))
        to_end = self._search.places.membership[:, -1]
        for step in range(self._num_steps, len(row.attention)):
            if self._first_at_end is None and row.attention[step][: len(to_end)] @ to_end >= AT_END:
                self._first_at_end = step
        self._num_steps = len(row.attention)
        return True

    def _is_stuck(self, row: RequestState) -> bool:
        """Return True where the take stays in one word for longer than any word lasts."""
        assert self._search is not None
        before = len(self._search.latest)
        self._search = self._search.after(row.attention[before:])
        for here in self._search.latest[before:]:
            self._steps_in_place = self._steps_in_place + 1 if here == self._place else 1
            self._place = here
        place = self._search.places.places[self._place]
        most = max(MAX_STEPS_IN_WORD, STEPS_PER_LETTER * place.num_letters)
        return place.kind is PlaceKind.WORD and self._steps_in_place > most
