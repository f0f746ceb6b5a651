"""Whole utterances: patches sampled in one run equal those sampled position by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_inputs import CONFIG, model_with, prompts

import marstts
from marstts.audio import Waveform
from marstts.generation.engine import Engine, PatchSampler
from marstts.generation.loop import RunningBatch, generate, step
from marstts.generation.request import Generated, Limits, Request, SamplingConfig
from marstts.io.precision import WeightFormat
from marstts.mars6.config import Mars6Config
from marstts.mars6.engines.onnx import OnnxEngine
from marstts.mars6.export.graphs import export_mars6
from marstts.mars6.export.quantize import quantize
from marstts.mars6.prompt import Mars6Prompt
from scripted import with_engine

OFFSETS = np.repeat([0, 1, 2], (1, 2, 4)) * 64


class PositionByPosition:
    """An engine without `sample_patch`."""

    def __init__(self, engine: OnnxEngine) -> None:
        for name in ("layout", "config", "start", "next_logits", "append", "select", "join"):
            setattr(self, name, getattr(engine, name))


@pytest.fixture(scope="module", params=[WeightFormat.FLOAT32, WeightFormat.INT8])
def engine(request: pytest.FixtureRequest, toy_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> OnnxEngine:
    if request.param is WeightFormat.FLOAT32:
        return OnnxEngine(toy_bundle / "mars6")
    folder = tmp_path_factory.mktemp("int8")
    quantize(toy_bundle / "mars6", folder)
    return OnnxEngine(folder)


SAMPLERS = [  # top_p, window, ratio, least and most patches
    (0.0, 10, 1.0, 0, 9),  # greedy
    (0.2, 10, 0.09, 4, 12),  # as published
    (0.6, 3, 0.0, 12, 12),  # any recent code is drawn again
    (0.95, 5, 0.34, 2, 30),
    (1.0, 1, 0.5, 7, 7),  # the full distribution
    (1.5, 10, 0.09, 0, 25),
]


def requests() -> list[Request]:
    """Every one with its own sampler, limits, text and prefix; generators are new each time."""
    rng = np.random.default_rng(0)
    return [
        Request(
            Mars6Prompt(
                rng.integers(0, 270, 4 + 3 * row), rng.normal(size=5).astype(np.float32),
                rng.normal(size=7).astype(np.float32), rng.integers(0, 64, (row % 3, 7)) + OFFSETS,
            ),
            top_p, Limits(*limits), np.random.default_rng(row), SamplingConfig(ras_window=window, ras_max_ratio=ratio),
        )
        for row, (top_p, window, ratio, *limits) in enumerate(SAMPLERS)
    ]  # fmt: skip


def speak(engine: Engine[Any], requests: Sequence[Request], arrivals: Sequence[int]) -> list[Generated]:
    """Request i comes to the running batch with patch arrivals[i]."""
    batch, results, patch = RunningBatch(), {}, 0
    while len(results) < len(requests):
        admitted = [request for request, arrival in zip(requests, arrivals, strict=True) if arrival == patch]
        batch = step(engine, batch, admitted)
        results |= {row.request: row.result(engine.layout) for row in batch.ended}
        patch += 1
    return [results[request] for request in requests]


@pytest.mark.slow
@pytest.mark.parametrize("arrivals", [[0] * 6, [0, 2, 2, 5, 1, 3]], ids=["at once", "one after another"])
def test_utterances_do_not_depend_on_other_rows_or_engines(engine: OnnxEngine, arrivals: list[int]):
    slow = PositionByPosition(engine)
    assert isinstance(engine, PatchSampler) and not isinstance(slow, PatchSampler)
    ours, theirs = speak(engine, requests(), arrivals), speak(slow, requests(), arrivals)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.stop is other.stop and np.array_equal(mine.tokens, other.tokens)
    assert len({result.tokens.tobytes() for result in ours}) == len(ours)
    for result, request in zip(ours, requests(), strict=True):
        assert request.limits.min_patches <= len(result.tokens) <= request.limits.max_patches


@pytest.mark.slow
def test_backoff_tries_the_same_takes(toy_bundle: Path, reference: Waveform):
    """Takes of a random model are refused, so sentences need several attempts with rising top-p."""
    fast = marstts.load(toy_bundle)
    slow = with_engine(fast, PositionByPosition(fast.session.engine))
    ours, theirs = (tts.speak("The cat sat. On the mat!", fast.clone(reference), seed=1) for tts in (fast, slow))
    for mine, other in zip(ours.takes, theirs.takes, strict=True):
        assert (mine.attempts, mine.top_p, mine.stop) == (other.attempts, other.top_p, other.stop)
        for level, expected in zip(mine.codes, other.codes, strict=True):
            assert np.array_equal(level, expected)
    assert max(take.attempts for take in ours.takes) > 1


def test_codes_within_a_patch_are_recent_where_it_has_several_of_the_coarsest_level(tmp_path: Path):
    config = Mars6Config(**CONFIG.model_dump() | {"patch_layout": (3, 2)})
    export_mars6(model_with(config), tmp_path)
    engine = OnnxEngine(tmp_path)
    prompt = replace(prompts([(6, 0)])[0], prefix_tokens=np.zeros((0, 5), np.int64))
    repetitive = SamplingConfig(ras_window=2, ras_max_ratio=0.0)  # only codes of this patch and the one before

    def patches_by(engine: Engine[Any]) -> list[list[list[int]]]:
        made = generate(
            engine, [prompt] * 8, top_p=[0.3] * 8, limits=[Limits(6, 6)] * 8,
            rngs=[np.random.default_rng(seed) for seed in range(8)], sampling=repetitive,
        )  # fmt: skip
        return [each.tokens.tolist() for each in made]

    assert patches_by(engine) == patches_by(PositionByPosition(engine))
