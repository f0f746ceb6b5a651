"""The guard: takes that are over are ended, those that cannot be saved are given up, all others are left alone."""

from __future__ import annotations

import numpy as np
import pytest
from test_attention_path import character_spans, places_of, steps_at

from marstts.generation.request import Limits, Request, RequestState, SamplingConfig, StopReason
from marstts.synthesis.words.guard import KEPT_STEPS_AT_END, TakeGuard

SENTENCE = "Nobody, he said, came."
SPOKEN = [1, 1, 1, 2, 3, 4, 4, 6, 6]


class Session:
    """All that a guard needs of one."""

    paper = False

    class model:
        @staticmethod
        def text_spans(prompt: object) -> np.ndarray:
            return character_spans(SENTENCE)


def followed(visited: list[int], *, may_give_up: bool = True, every: int = 1) -> list[RequestState]:
    """The row after each step, or after several, as the guard lets it pass; up to the one that ended."""
    steps = steps_at(places_of(SENTENCE), visited, sharpness=0.97)
    request = Request(None, 0.2, Limits(0, 500), np.random.default_rng(0), SamplingConfig())  # type: ignore[arg-type]
    guard = TakeGuard(Session(), SENTENCE, may_give_up=may_give_up)  # type: ignore[arg-type]
    rows = []
    for count in range(every, len(steps) + 1, every):
        patches = tuple(np.full(7, step) for step in range(count))
        row = guard.check(RequestState(request, (), patches, tuple(steps[:count])))
        rows.append(row)
        if row.stop is not None:
            break
    return rows


def test_a_sound_take_passes_unchanged():
    rows = followed([*SPOKEN, 8, 8, 8])
    assert all(row.stop is None for row in rows) and len(rows[-1].patches) == len(SPOKEN) + 3


@pytest.mark.parametrize("after", [[8] * 9, [8, 1, 1, 4, 4, 6, 6, 3]])
def test_a_take_that_goes_on_after_its_last_word_is_ended_there(after):
    row = followed([*SPOKEN, *after])[-1]
    assert row.stop is StopReason.WORDS_DONE
    assert len(row.patches) == len(SPOKEN) + KEPT_STEPS_AT_END


def test_a_take_that_stays_in_a_word_is_given_up():
    rows = followed([1, 1, 2, 3, *[4] * 60])
    assert rows[-1].stop is StopReason.FLAWED and len(rows) < 30


def test_the_last_attempt_is_never_given_up():
    assert followed([1, 1, 2, 3, *[4] * 60], may_give_up=False)[-1].stop is None


def test_the_end_is_seen_at_the_same_step_whether_steps_come_one_by_one_or_together():
    visited = [*SPOKEN, *[8] * 9]
    one_by_one = followed(visited)
    assert len(one_by_one) == len(SPOKEN) + 4  # three steps after the last word may be the sound of it
    for offset in range(4):  # the end is looked for in every fourth step
        rows = followed([1] * offset + visited)
        assert len(rows) == offset + len(SPOKEN) + 4


@pytest.mark.parametrize(("num_after", "is_ended_there"), [(3, False), (4, True), (9, True)])
def test_a_take_that_is_seen_only_when_it_has_ended_by_itself_ends_where_others_do(num_after, is_ended_there):
    """A stream sees a row when it fills a chunk: its end may not depend on the size of that."""
    visited = [*SPOKEN, *[8] * num_after]
    one_by_one = followed(visited)[-1]
    assert (one_by_one.stop is not None) == is_ended_there
    steps = steps_at(places_of(SENTENCE), [*visited, 8], sharpness=0.97)  # the last step gives no patch
    patches = tuple(np.full(7, step) for step in range(len(visited)))
    ended = RequestState(one_by_one.request, (), patches, tuple(steps), StopReason.EOS)
    guard = TakeGuard(Session(), SENTENCE, may_give_up=False)  # type: ignore[arg-type]
    row = guard.check(ended)
    assert len(row.patches) == len(one_by_one.patches)
    assert row.stop is (StopReason.WORDS_DONE if is_ended_there else StopReason.EOS)


@pytest.mark.parametrize("every", [3, 5, 7])
def test_takes_that_are_seen_after_several_steps_at_a_time_are_ended_too(every):
    babbling = followed([*SPOKEN, *[8] * 9], every=every)[-1]
    assert babbling.stop is StopReason.WORDS_DONE and len(babbling.patches) == len(SPOKEN) + KEPT_STEPS_AT_END
    assert followed([1, 1, 2, 3, *[4] * 60], every=every)[-1].stop is StopReason.FLAWED
