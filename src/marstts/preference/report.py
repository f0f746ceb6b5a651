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
from marstts.preference.judging import JUDGED_FOLDER, JUDGES_FILE, Judged, decode
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
            path = extremes / f"{name}-{number}-cer{score.cer:.2f}-mos{score.mos:.2f}.wav"
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
    """`report.json` and two histograms; returns what the JSON holds."""
    rejected = {one.take.id for one, _ in pairs}
    scores = {name: [getattr(score_of(one, config.scheme), name) for one in ranked] for name in ("cer", "mos")}
    bad = {
        name: [getattr(score_of(one, config.scheme), name) for one in ranked if one.take.id in rejected]
        for name in scores
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
        "all_takes": {name: quantiles(values) for name, values in scores.items()},
        "rejected": {name: quantiles(values) for name, values in bad.items()},
    }
    (folder / "report.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for name in scores:
        draw_histogram(name, scores[name], bad[name], folder / f"{name}.png")
    return report


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Mean, and what 10, 50 and 90 % lie below."""
    if not values:
        return {}
    low, middle, high = np.percentile(values, [10, 50, 90])
    found = {"mean": np.mean(values), "p10": low, "median": middle, "p90": high}
    return {name: round(float(value), 4) for name, value in found.items()}


def draw_histogram(name: str, every: Sequence[float], rejected: Sequence[float], path: Path) -> None:
    """How the scores of all takes are spread, and those of the rejected ones."""
    figures = require("matplotlib.figure", "eval")
    figure = figures.Figure(figsize=(6, 3.2), layout="constrained")  # without pyplot there is no display to miss
    axes = figure.add_subplot()
    top = min(max(every), 2.0) if name == "cer" else 5.0
    bins = np.linspace(0.0 if name == "cer" else 1.0, max(top, 0.1), 31)
    axes.hist(np.clip(every, bins[0], bins[-1]), bins, color="#b8c4d6", label=f"all takes ({len(every)})")
    axes.hist(np.clip(rejected, bins[0], bins[-1]), bins, color="#b5483c", label=f"rejected ({len(rejected)})")
    axes.set_xlabel("character error rate" if name == "cer" else "predicted opinion score")
    axes.set_ylabel("takes")
    axes.legend()
    figure.savefig(path, dpi=110)
