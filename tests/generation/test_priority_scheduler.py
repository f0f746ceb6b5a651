"""Rows that are parked and resumed, in any order: the same tokens; and failures that end one row only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from history_engine import LAYOUT
from test_scheduler import alone, history_engine, request

from marstts.generation.priority_scheduler import QUANTUM, PriorityScheduler
from marstts.generation.request import Generated, Limits, Request, RequestState
from marstts.generation.scheduler import AsyncScheduler

pytestmark = pytest.mark.slow

SEEDS = range(7)


def run_all(
    scheduler: PriorityScheduler, after_step: Callable[[tuple[RequestState, ...]], None] = lambda rows: None
) -> dict[Request, Generated]:
    """The result of each request."""
    results = {}
    while scheduler.is_busy:
        rows = scheduler.step()
        results |= {row.request: row.result(LAYOUT) for row in rows if row.stop is not None}
        after_step(rows)
    return results


@pytest.mark.parametrize("prefilled", [False, True])
def test_parked_rows_have_the_tokens_of_rows_that_run_alone(prefilled, monkeypatch):
    monkeypatch.setattr("marstts.generation.priority_scheduler.QUANTUM", 1)
    rng, engine = np.random.default_rng(0), history_engine()
    scheduler, parked = PriorityScheduler(engine, 2), []
    requests = [request(seed) for seed in SEEDS]
    for one in requests:
        state = engine.start([one.prompt]) if prefilled else None
        scheduler.add(one, priority=lambda row: rng.random(), state=state)
    results = run_all(scheduler, lambda rows: parked.append(scheduler.num_parked))
    assert max(parked) > 2
    for seed, one in zip(SEEDS, requests, strict=True):
        assert np.array_equal(results[one].tokens, alone(seed).tokens)
        assert results[one].stop is alone(seed).stop


def endless(seed: int) -> Request:
    one = request(seed)
    return Request(one.prompt, one.top_p, Limits(1000, 1000), one.rng, one.sampling)


def test_the_smallest_priority_runs_and_the_others_are_parked_after_a_quantum():
    scheduler = PriorityScheduler(history_engine(), 1)
    patient, hasty = endless(1), endless(2)
    scheduler.add(patient, priority=lambda row: 5.0)
    order = [scheduler.step()[0].request]
    scheduler.add(hasty, priority=lambda row: 0.0 if row is None or len(row.patches) < 6 else 9.0)
    order += [scheduler.step()[0].request for _ in range(QUANTUM + 6)]
    assert order == [patient] * QUANTUM + [hasty] * 6 + [patient]
    assert (scheduler.num_running, scheduler.num_parked, scheduler.num_waiting) == (1, 1, 0)
    scheduler.drop(hasty)
    scheduler.drop(patient)
    assert not scheduler.is_busy and scheduler.num_parked == 0


def test_the_batch_is_small_while_a_row_is_due_soon(monkeypatch):
    monkeypatch.setattr("marstts.generation.priority_scheduler.SMALL_BATCH", 2)
    scheduler = PriorityScheduler(history_engine(), 4, due_soon=lambda: 1.0)
    for seed in SEEDS:
        scheduler.add(endless(seed), priority=lambda row: 0.0 if row is None or len(row.patches) < 3 else 9.0)
    sizes = [len(scheduler.step()) for _ in range(24)]
    assert sizes == sorted(sizes) and sizes[0] == 2 and sizes[-1] == 4


def test_rows_of_equal_priority_are_not_parked_and_urgent_ones_come_first():
    scheduler = PriorityScheduler(history_engine(), 1)
    first, second, urgent = (request(seed) for seed in (1, 2, 4))
    scheduler.add(first)
    scheduler.step()
    scheduler.add(second)
    scheduler.add(urgent, urgent=True)
    assert list(run_all(scheduler)) == [first, urgent, second]


def test_no_more_rows_have_a_state_than_the_bound():
    scheduler, started = PriorityScheduler(history_engine(), 2, max_rows=3), []
    for seed in SEEDS:
        scheduler.add(endless(seed), priority=lambda row: 0.0 if row is None else float(len(row.patches)))
    for _ in range(30):
        scheduler.step()
        started.append(scheduler.num_running + scheduler.num_parked)
    assert max(started) == 3 and scheduler.num_waiting == len(SEEDS) - 3


@dataclass
class Failing:
    """An engine that fails wherever a prompt of `victims` is in the batch."""

    inner: Any
    victims: list[Any]
    calls: set[str] = field(default_factory=lambda: {"start"})
    """The methods that fail."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def start(self, prompts: Any) -> Any:
        self._check("start", prompts)
        return tuple(prompts), self.inner.start(prompts)

    def next_logits(self, state: Any, tokens: Any) -> Any:
        self._check("next_logits", state[0])
        logits, inner = self.inner.next_logits(state[1], tokens)
        return logits, (state[0], inner)

    def append(self, state: Any, patches: Any) -> Any:
        return state[0], self.inner.append(state[1], patches)

    def select(self, state: Any, rows: Any) -> Any:
        return tuple(state[0][row] for row in rows), self.inner.select(state[1], rows)

    def join(self, states: Any) -> Any:
        return tuple(p for state in states for p in state[0]), self.inner.join([state[1] for state in states])

    def _check(self, name: str, prompts: Any) -> None:
        if name in self.calls and any(prompt is victim for prompt in prompts for victim in self.victims):
            raise ValueError("the engine broke")


@pytest.mark.parametrize("call", ["start", "next_logits"])
def test_a_row_that_fails_ends_alone_and_the_others_keep_their_tokens(call):
    engine = history_engine()
    requests = [request(seed) for seed in SEEDS]
    victim = requests[3]
    scheduler = PriorityScheduler(Failing(engine, [victim.prompt], {call}), 3)
    for one in requests:
        scheduler.add(one)
    failures: dict[Request, Exception] = {}
    results = run_all(scheduler, lambda rows: failures.update(scheduler.pop_failures()))
    assert list(failures) == [victim] and "broke" in str(failures[victim])
    for seed, one in zip(SEEDS, requests, strict=True):
        assert one is victim or np.array_equal(results[one].tokens, alone(seed).tokens)


def test_a_failing_request_raises_in_its_caller_only():
    engine = history_engine()
    good, bad = endless(1), request(2)
    with AsyncScheduler(Failing(engine, [bad.prompt]), capacity=2) as scheduler:
        rows = scheduler.stream(good)
        next(rows)
        with pytest.raises(ValueError, match="broke"):
            list(scheduler.stream(bad))
        assert len(next(rows).patches) >= 2
        rows.close()


def test_a_caller_is_not_woken_before_the_patches_it_needs():
    engine = history_engine()
    needed = 3
    with AsyncScheduler(engine) as scheduler:
        seen = [len(row.patches) for row in scheduler.stream(request(4), needed=lambda: needed)]
    every = len(alone(4).tokens)
    assert seen[0] == 3 and seen[-1] == every and every > 3
