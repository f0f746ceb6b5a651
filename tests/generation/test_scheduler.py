"""Continuous batching: rows come and go, and no row's tokens know of it."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from marstts.generation.engine import Engine
from marstts.generation.loop import generate
from marstts.generation.request import Generated, Limits, Request, RequestState, SamplingConfig, StopReason
from marstts.generation.scheduler import AsyncScheduler, Scheduler
from marstts.mars6.config import Mars6Config
from marstts.mars6.engines.classifier_free_guidance import GuidedEngine, drop_speaker
from marstts.mars6.engines.onnx import OnnxEngine
from marstts.mars6.engines.torch import TorchEngine
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Prompt

CONFIG = Mars6Config(
    text_vocab_size=31, codebook_size=13, width=24, encoder_layers=1, global_layers=2, local_layers=2,
    heads=3, local_heads=2, identity_size=5, style_size=9,
)  # fmt: skip


def torch_engine() -> TorchEngine:
    torch.manual_seed(3)
    model = Mars6(CONFIG)
    with torch.no_grad():  # codes sharp, so that rounding decides nothing, and end of speech rare
        model.local_decoder.output.weight[:-1] *= 4
    return TorchEngine(model)


def guided_engine() -> GuidedEngine:
    return GuidedEngine(torch_engine(), drop_speaker(np.ones(5, np.float32), np.ones(9, np.float32)), weight=1.5)


def onnx_engine() -> OnnxEngine:
    return OnnxEngine(Path(str(files("marstts"))) / "models_data/mini/mars6")


@pytest.fixture(scope="module", params=[torch_engine, guided_engine, onnx_engine])
def engine(request: pytest.FixtureRequest) -> Engine[Any]:
    return request.param()


def request(config: Mars6Config, seed: int) -> Request:
    """All that can differ between requests differs; from 2 to 8 patches."""
    rng = np.random.default_rng(seed)
    levels = np.array(config.position_levels) * config.codebook_size
    prompt = Prompt(
        rng.integers(0, config.text_vocab_size - 1, 4 + seed * 3 % 11),
        rng.normal(size=config.identity_size).astype(np.float32),
        rng.normal(size=config.style_size).astype(np.float32),
        rng.integers(0, config.codebook_size, (seed * 5 % 7, 7)) + levels,
    )
    sampling = SamplingConfig(ras_window=3 + seed, ras_max_ratio=0.05 * seed)
    limits = Limits(seed % 3, 2 + seed * 5 % 7)
    return Request(prompt, 0.3 + 0.1 * (seed % 7), limits, np.random.default_rng(seed), sampling)


@cache
def alone(engine: Engine[Any], seed: int) -> Generated:
    one = request(engine.config, seed)
    [result] = generate(
        engine, [one.prompt], top_p=[one.top_p], limits=[one.limits], rngs=[one.rng], sampling=one.sampling
    )
    return result


def run(
    scheduler: Scheduler, requests: list[Request], config: Mars6Config
) -> tuple[dict[Request, Generated], list[int]]:
    """The result of each request, and the number of rows at every step."""
    for one in requests:
        scheduler.add(one)
    results, companies = {}, []
    while scheduler.is_busy:
        rows = scheduler.step()
        companies.append(len(rows))
        results |= {row.request: row.result(config) for row in rows if row.stop is not None}
    return results, companies


@pytest.mark.parametrize("capacity", [1, 2, 5])
def test_tokens_are_the_same_in_any_batch(engine: Engine[Any], capacity: int):
    requests = [request(engine.config, seed) for seed in range(5)]
    results, companies = run(Scheduler(engine, capacity), requests, engine.layout)
    assert max(companies) == capacity
    for seed, one in enumerate(requests):
        expected = alone(engine, seed)
        assert np.array_equal(results[one].tokens, expected.tokens) and results[one].stop is expected.stop
    assert len({result.tokens.tobytes() for result in results.values()}) == 5


def test_a_batch_is_full_while_requests_wait():
    engine = torch_engine()
    requests = [request(engine.config, seed) for seed in range(7)]
    results, companies = run(Scheduler(engine, 3), requests, engine.layout)
    patches = sum(len(result.tokens) + (result.stop is StopReason.EOS) for result in results.values())
    full = len(companies) - 8  # the last row to come in has 8 patches at most
    assert full > 2 and sum(companies) == patches and companies[:full] == [3] * full


def test_caches_do_not_grow_while_rows_come_and_go():
    """Rows come and go without end: the caches hold only the running rows."""
    engine = torch_engine()
    scheduler = Scheduler(engine, 2)
    for seed in range(14):
        scheduler.add(replace(request(engine.config, seed % 9), limits=Limits(3 + seed % 2, 3 + seed % 2)))
    widths = []
    while scheduler.is_busy:
        scheduler.step()
        widths.append(scheduler._batch.state.patches.seen_mask.shape[1])
    assert len(widths) > 20 and max(widths) <= 1 + 6 + 2 * 4


def test_urgent_requests_come_first_and_cancelled_ones_never():
    engine = torch_engine()
    first, second, third, urgent = (request(engine.config, seed) for seed in (1, 2, 4, 5))
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

    inner: TorchEngine
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
    return replace(request(CONFIG, seed), limits=Limits(1000, 1000))


def test_an_async_scheduler_serves_callers_from_many_threads():
    engine = torch_engine()
    found: dict[int, Generated] = {}

    def call(seed: int) -> None:
        rows = list(scheduler.stream(request(CONFIG, seed)))
        assert [len(row.patches) for row in rows[:-1]] == list(range(1, len(rows)))
        found[seed] = rows[-1].result(CONFIG)

    with AsyncScheduler(engine, capacity=3) as scheduler:
        callers = [threading.Thread(target=call, args=(seed,)) for seed in range(5)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(20)
    for seed in range(5):
        assert np.array_equal(found[seed].tokens, alone(engine, seed).tokens)


def test_a_closed_stream_stops_its_request_within_a_patch():
    engine = Watched(torch_engine())
    engine.leave = threading.Semaphore(4)
    with AsyncScheduler(engine, capacity=2) as scheduler:
        rows = scheduler.stream(endless(1))
        assert [len(next(rows).patches) for _ in range(4)] == [1, 2, 3, 4]
        rows.close()
        engine.leave.release(1000)
        other = list(scheduler.stream(request(CONFIG, 2)))
    assert isinstance(other[-1], RequestState) and engine.patches <= 4 + 1 + len(other)


def test_engine_errors_reach_all_callers_and_the_next_caller_is_served():
    engine = Watched(torch_engine())
    with AsyncScheduler(engine, capacity=2) as scheduler:
        one, two = scheduler.stream(endless(1)), scheduler.stream(endless(2))
        next(one), next(two)
        engine.broken = True
        for rows in (one, two):
            with pytest.raises(ValueError, match="broke"):
                list(rows)
        engine.broken = False
        assert list(scheduler.stream(request(CONFIG, 3)))[-1].stop is not None


def test_closing_raises_in_waiting_callers():
    engine = Watched(torch_engine())
    scheduler = AsyncScheduler(engine, capacity=1)
    rows = scheduler.stream(endless(1))
    next(rows)
    scheduler.close()
    with pytest.raises(RuntimeError, match="closed"):
        list(rows)
    with pytest.raises(RuntimeError, match="closed"):
        next(scheduler.stream(request(CONFIG, 1)))


@pytest.mark.slow
def test_an_unclosed_stream_does_not_break_the_interpreters_exit():
    """Python stops its threads wherever they are; one that is within the engine would abort the process."""
    program = """if True:
        from marstts.synthesis.loading import load

        tts = load("mini")
        stream = tts.stream("The cat sat on the mat, and not a word was said.")
        next(stream)
    """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
