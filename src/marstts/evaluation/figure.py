"""Figure 2 of MARS6 (arXiv:2501.05787): word error rate by the style of the reference, a bar per system.

Upstream: `report.Summary`.  Downstream: `docs/results.md`. Drawn by matplotlib, as PNG and SVG, without a display.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marstts.errors import DataError, require
from marstts.evaluation.report import Summary

STEM = "wer_by_style"


def draw_wer_by_style(summaries: Sequence[Summary], output: Path, measure: str = "wer") -> list[Path]:
    """Write wer_by_style.png and .svg into `output`; DataError where no system was judged by a recogniser.

    Bars stand for the error rate, whiskers for its 95 % interval; styles from the easiest to the hardest for the first
    system.
    """
    judged = [summary for summary in summaries if summary.scores.get(measure) is not None]
    if not judged:
        raise DataError("there is no word error rate to draw: no system was judged by a recogniser")
    matplotlib = require("matplotlib", "eval")
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = STEM  # or else names inside the file are drawn anew each time
    figure = draw(judged, measure)
    paths = [output / f"{STEM}{suffix}" for suffix in (".png", ".svg")]
    output.mkdir(parents=True, exist_ok=True)
    for path in paths:
        figure.savefig(path, dpi=150, bbox_inches="tight", metadata={"Date": None} if path.suffix == ".svg" else None)
    require("matplotlib.pyplot", "eval").close(figure)
    return paths


def draw(summaries: Sequence[Summary], measure: str) -> Any:
    """The figure itself, matplotlib's."""
    pyplot = require("matplotlib.pyplot", "eval")
    styles = order_styles(summaries, measure)
    places = np.arange(len(styles), dtype=float)
    width = 0.8 / len(summaries)
    figure, axes = pyplot.subplots(figsize=(max(6.0, 1.3 * len(styles)), 3.6))
    for number, summary in enumerate(summaries):
        intervals = [summary.by_style.get(style, {}).get(measure) for style in styles]
        values = [np.nan if interval is None else interval.value for interval in intervals]
        whiskers = [
            (0.0, 0.0) if i is None else (max(0.0, i.value - i.low), max(0.0, i.high - i.value)) for i in intervals
        ]
        shift = (number - (len(summaries) - 1) / 2) * width
        axes.bar(places + shift, values, width, label=summary.system, yerr=np.array(whiskers).T, capsize=2)
    axes.set_xticks(places, styles)
    axes.set_ylabel("word error rate")
    axes.set_xlabel("style of the reference")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.22))
    return figure


def order_styles(summaries: Sequence[Summary], measure: str) -> list[str]:
    """All styles, by the error rate of the first system."""
    styles = dict.fromkeys(style for summary in summaries for style in summary.by_style)

    def difficulty(style: str) -> float:
        interval = summaries[0].by_style.get(style, {}).get(measure)
        return np.inf if interval is None else interval.value

    return sorted(styles, key=lambda style: (difficulty(style), style))
