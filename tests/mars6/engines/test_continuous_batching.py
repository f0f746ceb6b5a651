"""Continuous batching by the engines: no row's tokens depend on the rows that share its caches."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_inputs import model_with

from marstts.generation.engine import Engine
from marstts.generation.loop import generate
from marstts.generation.request import Generated, Limits, Request, SamplingConfig
from marstts.generation.scheduler import Scheduler
from marstts.mars6.config import Mars6Config
from marstts.mars6.engines.onnx import OnnxEngine
from marstts.mars6.engines.torch import TorchEngine
from marstts.mars6.prompt import Mars6Prompt

pytestmark = pytest.mark.slow


def torch_engine() -> TorchEngine:
    return TorchEngine(model_with())


def onnx_engine() -> OnnxEngine:
    return OnnxEngine(Path(str(files("marstts"))) / "models_data/mini/mars6")


@pytest.fixture(scope="module", params=[torch_engine, onnx_engine])
def engine(request: pytest.FixtureRequest) -> Engine[Any]:
    return request.param()


def request(config: Mars6Config, seed: int) -> Request:
    """All that can differ between requests differs; from 2 to 8 patches."""
    rng = np.random.default_rng(seed)
    levels = np.array(config.position_levels) * config.codebook_size
    prompt = Mars6Prompt(
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


@pytest.mark.parametrize("capacity", [1, 2, 5])
def test_tokens_are_the_same_in_any_batch(engine: Engine[Any], capacity: int):
    requests = [request(engine.config, seed) for seed in range(5)]
    scheduler, results = Scheduler(engine, capacity), dict[Request, Generated]()
    for one in requests:
        scheduler.add(one)
    while scheduler.is_busy:
        rows = scheduler.step()
        results |= {row.request: row.result(engine.layout) for row in rows if row.stop is not None}
    for seed, one in enumerate(requests):
        expected = alone(engine, seed)
        assert np.array_equal(results[one].tokens, expected.tokens) and results[one].stop is expected.stop
    assert len({result.tokens.tobytes() for result in results.values()}) == 5


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
