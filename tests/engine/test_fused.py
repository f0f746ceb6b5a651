"""Patches made in one run, sampling inside, against the same engine asked position by position: whole utterances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import marstts
from marstts.audio import Waveform
from marstts.engine.onnx import OnnxEngine
from marstts.mars6.generate import Batch, Generated, Job, Limits, PatchStepper, SamplingConfig, Stepper, step
from marstts.mars6.prompt import Prompt
from marstts.mars6.quantise import Precision, quantise

OFFSETS = np.repeat([0, 1, 2], (1, 2, 4)) * 64


class PositionByPosition:
    """An engine without its quicker way to a patch."""

    def __init__(self, engine: OnnxEngine) -> None:
        for name in ("config", "start", "local_logits", "append", "select", "join"):
            setattr(self, name, getattr(engine, name))


@pytest.fixture(scope="module", params=Precision)
def engine(request: pytest.FixtureRequest, toy_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> OnnxEngine:
    if request.param is Precision.FLOAT32:
        return OnnxEngine(toy_bundle / "mars6")
    folder = tmp_path_factory.mktemp("int8")
    quantise(toy_bundle / "mars6", folder)
    return OnnxEngine(folder)


SAMPLERS = [  # top_p, window, ratio, least and most patches
    (0.0, 10, 1.0, 0, 9),  # greedy
    (0.2, 10, 0.09, 4, 12),  # as published
    (0.6, 3, 0.0, 12, 12),  # anything said lately is drawn again
    (0.95, 5, 0.34, 2, 30),
    (1.0, 1, 0.5, 7, 7),  # the full distribution
    (1.5, 10, 0.09, 0, 25),
]


def jobs() -> list[Job]:
    """Every one with its own sampler, limits, text and prefix; generators are new each time."""
    rng = np.random.default_rng(0)
    return [
        Job(
            Prompt(
                rng.integers(0, 270, 4 + 3 * row), rng.normal(size=5).astype(np.float32),
                rng.normal(size=7).astype(np.float32), rng.integers(0, 64, (row % 3, 7)) + OFFSETS,
            ),
            top_p, Limits(*limits), np.random.default_rng(row), SamplingConfig(ras_window=window, ras_max_ratio=ratio),
        )
        for row, (top_p, window, ratio, *limits) in enumerate(SAMPLERS)
    ]  # fmt: skip


def speak(stepper: Stepper[Any], wanted: Sequence[Job], arrivals: Sequence[int]) -> list[Generated]:
    """Job i comes to the running batch with patch arrivals[i]."""
    batch, results, patch = Batch(), {}, 0
    while len(results) < len(wanted):
        coming = [job for job, arrival in zip(wanted, arrivals, strict=True) if arrival == patch]
        batch = step(stepper, batch, coming)
        results |= {row.job: row.result(stepper.config) for row in batch.ended}
        patch += 1
    return [results[job] for job in wanted]


@pytest.mark.parametrize("arrivals", [[0] * 6, [0, 2, 2, 5, 1, 3]], ids=["at once", "one after another"])
def test_utterances_are_the_same_whoever_else_speaks_and_however(engine: OnnxEngine, arrivals: list[int]):
    slow = PositionByPosition(engine)
    assert isinstance(engine, PatchStepper) and not isinstance(slow, PatchStepper)
    ours, theirs = speak(engine, jobs(), arrivals), speak(slow, jobs(), arrivals)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.stop is other.stop and np.array_equal(mine.tokens, other.tokens)
    assert len({result.tokens.tobytes() for result in ours}) == len(ours)
    for result, job in zip(ours, jobs(), strict=True):
        assert job.limits.min_patches <= len(result.tokens) <= job.limits.max_patches


def test_backoff_tries_the_same_takes(toy_bundle: Path, reference: Waveform):
    """A random model is seldom believable: sentences are tried again and again, ever bolder."""
    fast = marstts.load(toy_bundle)
    slow = replace(fast, stepper=PositionByPosition(fast.stepper))
    ours, theirs = (tts.speak("The cat sat. On the mat!", fast.clone(reference), seed=1) for tts in (fast, slow))
    for mine, other in zip(ours.takes, theirs.takes, strict=True):
        assert (mine.attempts, mine.top_p, mine.stop) == (other.attempts, other.top_p, other.stop)
        for level, wanted in zip(mine.codes, other.codes, strict=True):
            assert np.array_equal(level, wanted)
    assert max(take.attempts for take in ours.takes) > 1
