"""The sanity check of the metrics on known degradations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.codec.toy import ToyCodec
from marstts.evaluation.columns import Better
from marstts.evaluation.metric_sanity import (
    SanityResult,
    add_noise,
    all_degradations,
    describe_order,
    run_sanity_check,
    scramble,
    write_sanity_check,
)
from marstts.evaluation.score import score_systems
from marstts.metrics.intervals import Interval
from marstts.metrics.panel import Metrics
from marstts.metrics.scores import read_scores
from marstts.metrics.testset import Trial

RECORDINGS = Path(__file__).parents[1] / "audio"
TRIALS = [
    Trial(
        id=name, text=text, speaker=name, style="regular", reference=RECORDINGS / file, reference_transcript=text,
        ground_truth=RECORDINGS / file,
    )
    for name, text, file in (
        ("anna", "Has never been surpassed.", "LJ001-0008.flac"),
        ("bert", "He might even have been made amiable himself.", "sense-0930.flac"),
    )
]  # fmt: skip


class Smoothness:
    """A quality metric that noise and scrambling lower: correlation of neighboring samples."""

    name, scales = "smoothness", ("smoothness",)

    def rate(self, waveform: Waveform):
        first, second = waveform.samples[:-1], waveform.samples[1:]
        return {"smoothness": 3.0 + 2.0 * float(np.corrcoef(first, second)[0, 1])}


class Loudness:
    """A quality metric that depends on level alone."""

    name, scales = "loudness", ("loudness",)

    def rate(self, waveform: Waveform):
        return {"loudness": float(np.sqrt(np.mean(waveform.samples**2)))}


def test_noise_is_10_db_below_the_signal_and_scrambling_keeps_all_samples():
    rng = np.random.default_rng(0)
    tone = Waveform(np.sin(np.arange(16000) / 20).astype(np.float32) * 0.5, 16000)
    noise = add_noise(tone, rng).samples - tone.samples
    assert 20 * np.log10(tone.samples.std() / noise.std()) == pytest.approx(10.0, abs=0.3)
    shuffled = scramble(tone, rng).samples
    np.testing.assert_array_equal(np.sort(shuffled), np.sort(tone.samples))
    assert not np.array_equal(shuffled, tone.samples)


def test_sanity_check_detects_metrics_that_do_not_rank_degradations(tmp_path: Path):
    metrics = Metrics(TRIALS, quality=[Smoothness(), Loudness()])
    score_systems(all_degradations(ToyCodec()), TRIALS, tmp_path, lambda: metrics)
    assert len(read_scores(tmp_path)) == 8
    found = {one.metric: one for one in run_sanity_check(tmp_path)}
    assert found["smoothness"].scores["clean"].value > found["smoothness"].scores["noisy"].value
    assert not found["loudness"].ranked
    markdown = write_sanity_check(list(found.values()), tmp_path, {"recordings": "two"})
    assert "| metric | clean | codec | noisy | scrambled | order |" in markdown and "**wrong**" in markdown
    values = json.loads((tmp_path / "metrics.json").read_text())
    assert values["metrics"][0]["metric"] == "smoothness" and values["metadata"] == {"recordings": "two"}


@pytest.mark.parametrize(
    ("steps", "description"),
    [
        ([(-3, -1), (-2, -1), (-2, -1)], "right"),
        ([(-3, -1), (-2, 1), (-2, -1)], "right, but codec / noisy within the noise"),
        ([(1, 3), (-2, -1), (0, 0)], "**wrong** at clean / codec; cannot distinguish noisy / scrambled"),
        ([(-3, -1), (-2, -1), (-1, 2)], "cannot distinguish noisy / scrambled"),
    ],
)
def test_order_names_wrong_steps_and_steps_within_the_noise(steps: list[tuple[int, int]], description: str):
    intervals = [Interval((low + high) / 2, low, high) for low, high in steps]
    ranked = all(step.value < 0 for step in intervals)
    assert describe_order(SanityResult("x", "X ↑", Better.HIGHER, {}, intervals, ranked, False)) == description
