"""Continuous batching: rows come and go, and no row's tokens depend on the others."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from history_engine import LAYOUT, C, HistoryEngine, prompt

from marstts.generation.loop import generate
from marstts.generation.request import Generated, Limits, Request, RequestState, SamplingConfig, StopReason
from marstts.generation.scheduler import AsyncScheduler, Scheduler


def random_logits(row: int, num_patches: int, position: int) -> np.ndarray:
    """End of speech is rare."""
    return 3 * np.random.default_rng((row, num_patches, position)).normal(size=C + 1) - 9 * (np.arange(C + 1) == C)


def history_engine() -> HistoryEngine:
    return HistoryEngine(random_logits)


def request(seed: int) -> Request:
    """All that can differ between requests differs; from 2 to 8 patches."""
    sampling = SamplingConfig(ras_window=3 + seed, ras_max_ratio=0.05 * seed)
    limits = Limits(seed % 3, 2 + seed * 5 % 7)
    return Request(prompt(seed, seed * 5 % 7), 0.3 + 0.1 * (seed % 7), limits, np.random.default_rng(seed), sampling)


def alone(seed: int) -> Generated:
    one = request(seed)
    [result] = generate(
        history_engine(), [one.prompt], top_p=[one.top_p], limits=[one.limits], rngs=[one.rng], sampling=one.sampling
    )
    return result


def run(scheduler: Scheduler, requests: list[Request]) -> tuple[dict[Request, Generated], list[int]]:
    """The result of each request, and the number of rows at every step."""
    for one in requests:
        scheduler.add(one)
    results, companies = {}, []
    while scheduler.is_busy:
        rows = scheduler.step()
        companies.append(len(rows))
        results |= {row.request: row.result(LAYOUT) for row in rows if row.stop is not None}
    return results, companies


def test_a_batch_is_full_while_requests_wait():
    engine = history_engine()
    requests = [request(seed) for seed in range(7)]
    results, companies = run(Scheduler(engine, 3), requests)
    patches = sum(len(result.tokens) + (result.stop is StopReason.EOS) for result in results.values())
    full = len(companies) - 8  # the last row to come in has 8 patches at most
    assert full > 2 and sum(companies) == patches and companies[:full] == [3] * full


def test_urgent_requests_come_first_and_cancelled_ones_never():
    engine = history_engine()
    first, second, third, urgent = (request(seed) for seed in (1, 2, 4, 5))
    scheduler = Scheduler(engine, 1)
    for one in (first, second, third):
        scheduler.add(one)
    order = [scheduler.step()[0].request]
    scheduler.add(urgent, urgent=True)
    scheduler.drop(second)
    scheduler.drop(first)
    while scheduler.is_busy:
        order += [row.request for row in scheduler.step()]
    assert order[0] is first and order.count(first) == 1 and second not in order
    assert order[1] is urgent and order[-1] is third


@dataclass
class Watched:
    """An engine that counts its patches, waits for leave to make one, and may break."""

    inner: HistoryEngine
    patches: int = 0
    broken: bool = False

    def __post_init__(self) -> None:
        self.leave = threading.Semaphore(10**6)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def next_logits(self, state: Any, tokens: Any) -> Any:
        if tokens.shape[1] == 0:
            assert self.leave.acquire(timeout=20)
            self.patches += 1
            if self.broken:
                raise ValueError("the engine broke")
        return self.inner.next_logits(state, tokens)


def endless(seed: int) -> Request:
    return replace(request(seed), limits=Limits(1000, 1000))


def test_an_async_scheduler_serves_callers_from_many_threads():
    engine = history_engine()
    found: dict[int, Generated] = {}

    def call(seed: int) -> None:
        rows = list(scheduler.stream(request(seed)))
        assert [len(row.patches) for row in rows[:-1]] == list(range(1, len(rows)))
        found[seed] = rows[-1].result(LAYOUT)

    with AsyncScheduler(engine, capacity=3) as scheduler:
        callers = [threading.Thread(target=call, args=(seed,)) for seed in range(5)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(20)
    for seed in range(5):
        assert np.array_equal(found[seed].tokens, alone(seed).tokens)


def test_a_closed_stream_stops_its_request_within_a_patch():
    engine = Watched(history_engine())
    engine.leave = threading.Semaphore(4)
    with AsyncScheduler(engine, capacity=2) as scheduler:
        rows = scheduler.stream(endless(1))
        assert [len(next(rows).patches) for _ in range(4)] == [1, 2, 3, 4]
        rows.close()
        engine.leave.release(1000)
        other = list(scheduler.stream(request(2)))
    assert isinstance(other[-1], RequestState) and engine.patches <= 4 + 1 + len(other)


def test_engine_errors_reach_all_callers_and_the_next_caller_is_served():
    engine = Watched(history_engine())
    with AsyncScheduler(engine, capacity=2) as scheduler:
        one, two = scheduler.stream(endless(1)), scheduler.stream(endless(2))
        next(one), next(two)
        engine.broken = True
        for rows in (one, two):
            with pytest.raises(ValueError, match="broke"):
                list(rows)
        engine.broken = False
        assert list(scheduler.stream(request(3)))[-1].stop is not None


def test_closing_raises_in_waiting_callers():
    engine = Watched(history_engine())
    scheduler = AsyncScheduler(engine, capacity=1)
    rows = scheduler.stream(endless(1))
    next(rows)
    scheduler.close()
    with pytest.raises(RuntimeError, match="closed"):
        list(rows)
    with pytest.raises(RuntimeError, match="closed"):
        next(scheduler.stream(request(1)))
