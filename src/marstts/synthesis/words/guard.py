"""The guard of a take that is being made: ends it after its last word, and gives it up where it cannot be saved.

Upstream: rows of a running batch.  Downstream: `runner`, which stops a row that the guard has ended.
Rows that need neither are left as they are, token for token.
"""

from __future__ import annotations

from dataclasses import replace

from marstts.generation.request import RequestState, StopReason
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.words.attention_path import PathSearch, PlaceKind, SentencePlaces
from marstts.synthesis.words.flaws import AT_END, MAX_STEPS_AT_END, MAX_STEPS_IN_WORD, STEPS_PER_LETTER

KEPT_STEPS_AT_END = 2
"""Steps after the last word that stay in a take which the guard ended: the sound of a word dies away in them."""


STEPS_FOLLOWED_TOGETHER = 12
"""Steps whose path is searched at once, 1 s: a hopeless take is given up so much later, and each step costs less."""

FIRST_STEPS_FOLLOWED = 2 * STEPS_FOLLOWED_TOGETHER
"""A take with fewer steps cannot have stayed in a word for too long."""


def open_patches(row: RequestState) -> int:
    """Patches of the last state in which a row had not ended, whichever of its states were seen."""
    if row.stop is StopReason.WORDS_DONE:
        return len(row.patches) + MAX_STEPS_AT_END - KEPT_STEPS_AT_END
    return len(row.patches) - (row.stop is StopReason.MAX_PATCHES)


class TakeGuard:
    """Follows one take through its sentence, step by step."""

    def __init__(self, session: ModelSession, sentence: str, *, may_give_up: bool) -> None:
        """`may_give_up`: another attempt follows, so that a hopeless take need not be finished."""
        self._session, self._sentence, self._may_give_up = session, sentence, may_give_up
        self._search: PathSearch | None = None
        self._num_seen = 0
        """Steps in which the end of the text was looked for."""
        self._first_at_end: int | None = None
        self._next_look = MAX_STEPS_AT_END + 1
        """Steps that the take must have before there is anything to decide."""
        self._next_following = FIRST_STEPS_FOLLOWED
        self._place, self._steps_in_place = 0, 0

    def check(self, row: RequestState) -> RequestState:
        """The row as it is, or ended; a row whose model has no word times, or speaks as in the paper, never is here.

        Which of a row's states are seen changes nothing: where it ends follows from its steps alone.
        """
        if self._session.paper:
            return row
        num_steps = len(row.attention) - (row.stop is not None)  # a row may be seen only when it has ended by itself
        if num_steps < self._next_look or (self._search is None and not self._begin(row)):
            return row
        if self._first_at_end is None:
            self._look_for_end(row, num_steps)
        if self._first_at_end is not None and num_steps - self._first_at_end > MAX_STEPS_AT_END:
            kept = row.patches[: self._first_at_end + KEPT_STEPS_AT_END]
            return replace(row, patches=kept, attention=row.attention[: len(kept)], stop=StopReason.WORDS_DONE)
        if row.stop is None and self._may_give_up and num_steps >= self._next_following and self._is_stuck(row):
            return replace(row, stop=StopReason.FLAWED)
        return row

    def _begin(self, row: RequestState) -> bool:
        """Begin the path; returns whether the model has word times."""
        spans = self._session.model.text_spans(row.request.prompt)
        if spans is not None:
            self._search = PathSearch.begin(SentencePlaces.of(self._sentence, spans))
        return spans is not None

    def _look_for_end(self, row: RequestState, num_steps: int) -> None:
        """Find the first step after the last word among those that are new, of `num_steps`."""
        assert self._search is not None
        tokens = self._search.places.tokens_of_end
        for step in range(self._num_seen, num_steps):  # a few numbers: faster than arrays
            if sum(row.attention[step][tokens].tolist()) >= AT_END:
                self._first_at_end = step
                break
        self._num_seen = num_steps
        after = self._num_seen if self._first_at_end is None else self._first_at_end
        self._next_look = after + MAX_STEPS_AT_END + 1  # fewer steps cannot be too many

    def _is_stuck(self, row: RequestState) -> bool:
        """Return True where the take stays in one word for longer than any word lasts."""
        assert self._search is not None
        self._next_following = len(row.attention) + STEPS_FOLLOWED_TOGETHER
        before = self._search.num_steps
        self._search = self._search.after(row.attention[before:])
        for here in self._search.latest[before:]:
            self._steps_in_place = self._steps_in_place + 1 if here == self._place else 1
            self._place = here
        place = self._search.places.places[self._place]
        most = max(MAX_STEPS_IN_WORD, STEPS_PER_LETTER * place.num_letters)
        return place.kind is PlaceKind.WORD and self._steps_in_place > most
