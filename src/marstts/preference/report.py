"""A ranking told to people: figures, histograms, and the best and worst takes to listen to.

Upstream: `rank`.  Downstream: nobody but people; nothing is computed from a report.
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
from marstts.errors import require
from marstts.mars6.generate import StopReason
from marstts.preference.judging import JUDGED_FOLDER, JUDGES_FILE, Judged, Scale, decode
from marstts.preference.ranking import RankConfig, Ranked, Sides, score_of, spoken_of
from marstts.preference.takes import Take


def write_extremes(ranked: Sequence[Ranked], codec: Codec, config: RankConfig, folder: Path) -> None:
    """The best and worst takes as WAV, each worst one beside the recording as the codec keeps it."""
    extremes = folder / "extremes"
    extremes.mkdir(parents=True, exist_ok=True)
    for old in extremes.glob("*.wav"):
        old.unlink()
    most = config.extremes
    for name, found in (("worst", ranked[:most]), ("best", list(reversed(ranked))[:most])):
        for number, one in enumerate(found, 1):
            score = score_of(one, config.scheme)
            told = "-".join(f"{scale.value}{score.on(scale):.2f}" for scale in config.scales)
            path = extremes / f"{name}-{number}-{told}.wav"
            sound = decode(codec, spoken_of(one, config.scheme).codes)
            if len(sound.samples):
                audio.write(sound, path)
            if len(one.take.truth[0]):
                audio.write(decode(codec, one.take.truth), extremes / f"{name}-{number}-recording.wav")


def write_report(
    takes: Sequence[tuple[Take, Judged]],
    ranked: Sequence[Ranked],
    pairs: Sequence[Sides],
    config: RankConfig,
    mined: Path,
    folder: Path,
) -> dict[str, Any]:
    """`report.json`, and a histogram of each score; returns what the JSON holds."""
    rejected = {one.take.id for one, _ in pairs}
    scores = {scale: [score_of(one, config.scheme).on(scale) for one in ranked] for scale in config.scales}
    bad = {
        scale: [score_of(one, config.scheme).on(scale) for one in ranked if one.take.id in rejected]
        for scale in config.scales
    }
    problems = Counter(take.problem for take, _ in takes if take.problem is not None)
    report = {
        "config": config.model_dump(mode="json"),
        "judges": json.loads((mined / JUDGED_FOLDER / JUDGES_FILE).read_text(encoding="utf-8")),
        "takes": len(takes),
        "ranked": len(ranked),
        "pairs": len(pairs),
        "problems": dict(problems.most_common()),
        "cut_off": sum(spoken_of(one, config.scheme).stop is not StopReason.EOS for one in ranked),
        "pairs_by_speaker": dict(sorted(Counter(one.take.plan.speaker for one, _ in pairs).items())),
        "all_takes": {scale.value: quantiles(values) for scale, values in scores.items()},
        "rejected": {scale.value: quantiles(values) for scale, values in bad.items()},
    }
    (folder / "report.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for scale in scores:
        draw_histogram(scale, scores[scale], bad[scale], folder / f"{scale.value}.png")
    return report


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Mean, and what 10, 50 and 90 % lie below."""
    if not values:
        return {}
    low, middle, high = np.percentile(values, [10, 50, 90])
    found = {"mean": np.mean(values), "p10": low, "median": middle, "p90": high}
    return {name: round(float(value), 4) for name, value in found.items()}


AXES = {
    Scale.CER: ("character error rate", 0.0, 2.0),
    Scale.WRONG_WORDS: ("share of wrong words", 0.0, 1.0),
    Scale.MISFIT: ("misfit of the words' sounds, nats per frame", 2.0, 12.0),
    Scale.MOS: ("predicted opinion score", 1.0, 5.0),
}
"""Title, lowest and highest value of each scale; what is higher stands at the end."""


def draw_histogram(scale: Scale, every: Sequence[float], rejected: Sequence[float], path: Path) -> None:
    """How the scores of all takes are spread, and those of the rejected ones."""
    figures = require("matplotlib.figure", "eval")
    figure = figures.Figure(figsize=(6, 3.2), layout="constrained")  # without pyplot there is no display to miss
    axes = figure.add_subplot()
    title, lowest, highest = AXES[scale]
    bins = np.linspace(lowest, highest, 31)
    axes.hist(np.clip(every, lowest, highest), bins, color="#b8c4d6", label=f"all takes ({len(every)})")
    axes.hist(np.clip(rejected, lowest, highest), bins, color="#b5483c", label=f"rejected ({len(rejected)})")
    axes.set_xlabel(title)
    axes.set_ylabel("takes")
    axes.legend()
    figure.savefig(path, dpi=110)
