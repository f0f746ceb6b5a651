"""Report of a ranking for humans: figures, histograms, and the best and worst takes as audio.

Upstream: `pairs`.  Downstream: no code reads a report.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marstts import audio
from marstts.codec.base import Codec
from marstts.data.mined_takes import MinedTake
from marstts.errors import DataError, require
from marstts.generation.request import StopReason
from marstts.io.file_errors import os_errors
from marstts.io.files import atomic_path, write_file
from marstts.preference.ranking import RankConfig, RankedTake, Sides, generated_of, score_of
from marstts.preference.scoring import SCORES_FOLDER, Metric, ScoredTake, decode, scored_by


def write_examples(ranked: Sequence[RankedTake], codec: Codec, config: RankConfig, folder: Path) -> None:
    """Write the best and worst takes as WAV, each with its recording as the codec reconstructs it."""
    examples = folder / "examples"
    with os_errors(examples, kind=DataError):
        examples.mkdir(parents=True, exist_ok=True)
        for old in examples.glob("*.wav"):
            old.unlink()
    count = config.num_examples
    for name, found in (("worst", ranked[:count]), ("best", list(reversed(ranked))[:count])):
        for number, one in enumerate(found, 1):
            score = score_of(one, config.scheme)
            scores = "-".join(f"{metric.value}{score.on(metric):.2f}" for metric in config.metrics)
            waveform = decode(codec, generated_of(one, config.scheme).codes)
            if len(waveform.samples):
                audio.write(waveform, examples / f"{name}-{number}-{scores}.wav")
            if len(one.take.ground_truth[0]):
                audio.write(decode(codec, one.take.ground_truth), examples / f"{name}-{number}-recording.wav")


def write_report(
    takes: Sequence[tuple[MinedTake, ScoredTake]],
    ranked: Sequence[RankedTake],
    pairs: Sequence[Sides],
    config: RankConfig,
    mined: Path,
    folder: Path,
) -> dict[str, Any]:
    """Write `report.json`, and a histogram of each score; returns the content of the JSON."""
    rejected = {one.take.id for one, _ in pairs}
    scores = {metric: [score_of(one, config.scheme).on(metric) for one in ranked] for metric in config.metrics}
    rejected_scores = {
        metric: [score_of(one, config.scheme).on(metric) for one in ranked if one.take.id in rejected]
        for metric in config.metrics
    }
    report = {
        "config": config.model_dump(mode="json"),
        "metrics": scored_by(mined / SCORES_FOLDER),
        "takes": len(takes),
        "ranked": len(ranked),
        "pairs": len(pairs),
        "errors": dict(Counter(take.error for take, _ in takes if take.error is not None).most_common()),
        "without_eos": sum(generated_of(one, config.scheme).stop is not StopReason.EOS for one in ranked),
        "pairs_by_speaker": dict(sorted(Counter(one.take.plan.speaker for one, _ in pairs).items())),
        "all_takes": {metric.value: quantiles(values) for metric, values in scores.items()},
        "rejected": {metric.value: quantiles(values) for metric, values in rejected_scores.items()},
    }
    write_file(folder / "report.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n", DataError)
    for metric in scores:
        draw_histogram(metric, scores[metric], rejected_scores[metric], folder / f"{metric.value}.png")
    return report


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Mean, 10 % and 90 % quantiles, and median."""
    if not values:
        return {}
    low, middle, high = np.percentile(values, [10, 50, 90])
    found = {"mean": np.mean(values), "p10": low, "median": middle, "p90": high}
    return {name: round(float(value), 4) for name, value in found.items()}


AXES = {
    Metric.CER: ("character error rate", 0.0, 2.0),
    Metric.MINIMAL_PAIR_ERROR: ("minimal-pair error", 0.0, 1.0),
    Metric.ALIGNMENT_NLL: ("alignment cost, nats per frame", 2.0, 12.0),
    Metric.MOS: ("predicted opinion score", 1.0, 5.0),
}
"""Title, lowest and highest value of each axis; values outside are drawn at its ends."""


def draw_histogram(metric: Metric, values: Sequence[float], rejected: Sequence[float], path: Path) -> None:
    """Draw the distribution of a score over all takes, and over the rejected ones."""
    figures = require("matplotlib.figure", "eval")
    figure = figures.Figure(figsize=(6, 3.2), layout="constrained")  # without pyplot no display is needed
    axes = figure.add_subplot()
    title, lowest, highest = AXES[metric]
    bins = np.linspace(lowest, highest, 31)
    axes.hist(np.clip(values, lowest, highest), bins, color="#b8c4d6", label=f"all takes ({len(values)})")
    axes.hist(np.clip(rejected, lowest, highest), bins, color="#b5483c", label=f"rejected ({len(rejected)})")
    axes.set_xlabel(title)
    axes.set_ylabel("takes")
    axes.legend()
    with atomic_path(path, DataError) as temporary:
        figure.savefig(temporary, dpi=110)
