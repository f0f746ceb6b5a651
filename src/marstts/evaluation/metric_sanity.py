"""Sanity check of the metrics: do they rank recordings above degraded versions of the same recordings?

Upstream: recordings with transcripts, any codec, the metrics.  Downstream: `docs/results/`.

Four degradations, each with the distortions of the one before and one more: the recordings, clean; through a codec;
with white noise at 10 dB; cut into pieces of 80 ms in another order. A metric that does not get worse from one
degradation to the next cannot distinguish systems either.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.base import Codec
from marstts.evaluation.columns import Better, Metric, columns_of
from marstts.evaluation.report import markdown_table
from marstts.evaluation.summary import compare, within_noise
from marstts.evaluation.systems import ground_truth_of, resynthesize
from marstts.io.files import write_file
from marstts.io.hash_order import hash_number
from marstts.metrics.intervals import Interval
from marstts.metrics.scores import TakeScore, read_scores
from marstts.metrics.testset import Trial

DEGRADATIONS = ("clean", "codec", "noisy", "scrambled")
NOISE_DB = 10.0
PIECE_SECONDS = 0.08


class Degradation:
    """The recordings with one degradation; a `systems.System`."""

    timed = False

    def __init__(self, name: str, codec: Codec) -> None:
        self.name = name
        self.version = f"{name}, {codec.spec.name}"
        self._codec = codec

    def speak(self, trial: Trial) -> Waveform:
        """The degraded ground truth of a trial."""
        waveform = audio.read(ground_truth_of(trial))
        rng = np.random.default_rng(hash_number(trial.id))
        if self.name != "clean":
            waveform = resynthesize(self._codec, waveform)
        if self.name in ("noisy", "scrambled"):
            waveform = add_noise(waveform, rng)
        return scramble(waveform, rng) if self.name == "scrambled" else waveform


def all_degradations(codec: Codec) -> list[Degradation]:
    """The degradations, from the mildest."""
    return [Degradation(name, codec) for name in DEGRADATIONS]


def add_noise(waveform: Waveform, rng: np.random.Generator) -> Waveform:
    """The waveform with white noise NOISE_DB below its level."""
    rms = float(np.sqrt(np.mean(np.square(waveform.samples))))
    noise = rms * 10 ** (-NOISE_DB / 20) * rng.standard_normal(len(waveform.samples))
    noisy = waveform.samples + noise
    return Waveform((noisy / max(1.0, float(np.abs(noisy).max()))).astype(np.float32), waveform.sample_rate)


def scramble(waveform: Waveform, rng: np.random.Generator) -> Waveform:
    """The waveform's pieces of PIECE_SECONDS in another order."""
    length = round(PIECE_SECONDS * waveform.sample_rate)
    pieces = [waveform.samples[start : start + length] for start in range(0, len(waveform.samples), length)]
    return Waveform(np.concatenate([pieces[index] for index in rng.permutation(len(pieces))]), waveform.sample_rate)


@dataclass(frozen=True)
class SanityResult:
    """One metric on all degradations."""

    metric: str
    title: str
    better: Better
    scores: Mapping[str, Interval]
    steps: Sequence[Interval]
    """Difference of each degradation's score from that of the one before, on the same recordings."""

    ranked: bool
    """Whether every degradation scores worse than the one before."""

    certain: bool
    """Whether every one of those differences is beyond the noise."""


def run_sanity_check(output: Path) -> list[SanityResult]:
    """Results of every metric with scores for all degradations, from an output folder of `score`."""
    scores = read_scores(output)
    by_name = {name: [score for score in scores if score.system == name] for name in DEGRADATIONS}
    found = [check_metric(metric, by_name) for metric in columns_of(scores) if metric.better is not Better.NEITHER]
    return [one for one in found if one is not None]


def check_metric(metric: Metric, by_name: Mapping[str, Sequence[TakeScore]]) -> SanityResult | None:
    """Result of one metric; None where a score is undefined."""
    scores = {name: metric.evaluate(rows) for name, rows in by_name.items()}
    steps = [compare(metric, by_name[worse], by_name[better]) for better, worse in pairwise(DEGRADATIONS)]
    known = {name: interval for name, interval in scores.items() if interval is not None}
    defined = [step for step in steps if step is not None]
    if len(known) < len(DEGRADATIONS) or len(defined) < len(steps):
        return None
    ranked = all(step.value != 0 and not metric.better.beats(step.value) for step in defined)
    return SanityResult(
        metric=metric.key,
        title=metric.heading,
        better=metric.better,
        scores=known,
        steps=defined,
        ranked=ranked,
        certain=ranked and not any(within_noise(step) for step in defined),
    )


def write_sanity_check(results: Sequence[SanityResult], output: Path, metadata: Mapping[str, Any]) -> str:
    """Write metrics.json and metrics.md; returns the Markdown."""
    values = {"metadata": dict(metadata), "metrics": [asdict(one) for one in results]}
    write_file(output / "metrics.json", json.dumps(values, indent=2, ensure_ascii=False) + "\n")
    rows = [[one.title, *(one.scores[name].format(2) for name in DEGRADATIONS), describe_order(one)] for one in results]
    lines = [
        "# Sanity check of the metrics",
        "",
        *(f"- {name}: {value}" for name, value in metadata.items()),
        "",
        *markdown_table(["metric", *DEGRADATIONS, "order"], rows),
    ]
    markdown = "\n".join(lines) + "\n"
    write_file(output / "metrics.md", markdown)
    return markdown


def describe_order(one: SanityResult) -> str:
    """Whether the order is right; else the wrong steps beyond the noise, and the steps within the noise."""
    names = [f"{better} / {worse}" for better, worse in pairwise(DEGRADATIONS)]
    noisy = [name for name, step in zip(names, one.steps, strict=True) if within_noise(step)]
    if one.ranked:
        return f"right, but {', '.join(noisy)} within the noise" if noisy else "right"
    wrong = [
        name
        for name, step in zip(names, one.steps, strict=True)
        if one.better.beats(step.value) and not within_noise(step)
    ]
    parts = [f"**wrong** at {', '.join(wrong)}"] if wrong else []
    return "; ".join([*parts, *([f"cannot distinguish {', '.join(noisy)}"] if noisy else [])])
