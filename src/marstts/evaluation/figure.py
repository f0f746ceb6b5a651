"""Figure 2 of MARS6 (arXiv:2501.05787): word error rate by the style of the reference, a bar per system.

Upstream: `report.Summary`.  Downstream: `docs/results.md`. Drawn by matplotlib, as PNG and SVG, without a display.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marstts.errors import DataError, require
from marstts.evaluation.summary import Summary
from marstts.io.files import atomic_path

STEM = "wer_by_style"


def draw_wer_by_style(summaries: Sequence[Summary], output: Path, column: str = "wer") -> list[Path]:
    """Write wer_by_style.png and .svg into `output`; DataError where no system was scored by a recognizer.

    Bars are error rates, whiskers their 95 % intervals; styles are sorted by the first system's error rate.
    """
    scored = [summary for summary in summaries if summary.scores.get(column) is not None]
    if not scored:
        raise DataError("there is no word error rate to draw: no system was scored by a recognizer")
    matplotlib = require("matplotlib", "eval")
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = STEM  # makes the names inside the file deterministic
    figure = draw(scored, column)
    paths = [output / f"{STEM}{suffix}" for suffix in (".png", ".svg")]
    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else None
        with atomic_path(path) as temporary:
            figure.savefig(temporary, dpi=150, bbox_inches="tight", metadata=metadata)
    require("matplotlib.pyplot", "eval").close(figure)
    return paths


def draw(summaries: Sequence[Summary], column: str) -> Any:
    """The matplotlib figure."""
    pyplot = require("matplotlib.pyplot", "eval")
    styles = order_styles(summaries, column)
    positions = np.arange(len(styles), dtype=float)
    width = 0.8 / len(summaries)
    figure, axes = pyplot.subplots(figsize=(max(6.0, 1.3 * len(styles)), 3.6))
    for number, summary in enumerate(summaries):
        intervals = [summary.by_style.get(style, {}).get(column) for style in styles]
        values = [np.nan if interval is None else interval.value for interval in intervals]
        whiskers = [
            (0.0, 0.0) if i is None else (max(0.0, i.value - i.low), max(0.0, i.high - i.value)) for i in intervals
        ]
        shift = (number - (len(summaries) - 1) / 2) * width
        axes.bar(positions + shift, values, width, label=summary.system, yerr=np.array(whiskers).T, capsize=2)
    axes.set_xticks(positions, styles)
    axes.set_ylabel("word error rate")
    axes.set_xlabel("style of the reference")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.22))
    return figure


def order_styles(summaries: Sequence[Summary], column: str) -> list[str]:
    """All styles, by the error rate of the first system."""
    styles = dict.fromkeys(style for summary in summaries for style in summary.by_style)

    def difficulty(style: str) -> float:
        interval = summaries[0].by_style.get(style, {}).get(column)
        return np.inf if interval is None else interval.value

    return sorted(styles, key=lambda style: (difficulty(style), style))
