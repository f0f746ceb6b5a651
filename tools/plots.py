"""Draw the plots of docs/results.md from the JSON of the results.

    python tools/plots.py                    write docs/figures/{rtf_by_length,error_by_version,fine_tuning}.svg

Upstream: docs/results/mini-v6/*.json.  Downstream: docs/results.md.
`docs/results/draw_cer_by_style.py` draws the errors by style. Needs matplotlib (the extra `eval`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "results" / "mini-v6"
FIGURES = DOCS / "figures"

LENGTHS = ("2 s", "5 s", "10 s", "20 s", "60 s")
"""Columns of the table of real-time factors."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "marstts",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
}


def main() -> None:
    """Draw all plots."""
    with matplotlib.rc_context(STYLE):
        for name, draw in (
            ("rtf_by_length", draw_rtf_by_length),
            ("error_by_version", draw_error_by_version),
            ("fine_tuning", draw_fine_tuning),
        ):
            figure, axes = plt.subplots(figsize=(6.4, 2.8))
            draw(axes)
            axes.legend(fontsize="small")
            figure.savefig(FIGURES / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
            plt.close(figure)


def table_of(name: str, start: str) -> list[dict[str, Any]]:
    """Return the rows of the table whose title begins with `start`; KeyError where there is none."""
    tables = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["tables"]
    for table in tables:
        if table["title"].startswith(start):
            return list(table["rows"])
    raise KeyError(f"{name}.json has no table {start!r}")


def draw_rtf_by_length(axes: Any) -> None:
    """Real-time factor from text to audio by the length of the speech."""
    for row in table_of("speed", "Text to audio: RTF"):
        values = [row[length] for length in LENGTHS]
        axes.plot([float(length.split()[0]) for length in LENGTHS], values, marker="o", label=row["model"])
    axes.set(xscale="log", yscale="log", xlabel="seconds of speech", ylabel="real-time factor")
    axes.set_xticks([2, 5, 10, 20, 60], ["2", "5", "10", "20", "60"])
    axes.set_yticks([0.03, 0.1, 0.3], ["0.03", "0.1", "0.3"])
    axes.minorticks_off()


def draw_error_by_version(axes: Any) -> None:
    """Character error rate of versions 1 to 6, with 95 % intervals where they are known."""
    rows = table_of("versions", "Versions on the same 56 trials")
    for clone in ("shallow", "deep"):
        known = [row for row in rows if row["clone"] == clone and row["CER ↓"] is not None]
        names = [row["version"].split(" (")[0] for row in known]
        scores = [row["CER ↓"] if isinstance(row["CER ↓"], dict) else {"value": row["CER ↓"]} for row in known]
        whiskers = [
            [score["value"] - score.get("low", score["value"]) for score in scores],
            [score.get("high", score["value"]) - score["value"] for score in scores],
        ]
        places = [int(name.removeprefix("mini v")) for name in names]
        axes.errorbar(
            places, [score["value"] for score in scores], whiskers, marker="o", capsize=2, label=f"{clone} clone"
        )
    axes.set(xlabel="version of mini", ylabel="character error rate", ylim=(0, None))
    axes.set_xticks(range(1, 7))


def draw_fine_tuning(axes: Any) -> None:
    """Validation loss while mini is fine-tuned to nine minutes of one voice."""
    rows = table_of("training", "Fine-tuning mini v1")
    axes.plot(
        [row["step"] for row in rows], [row["validation loss"] for row in rows], marker="o", label="validation loss"
    )
    axes.set(xlabel="step", ylabel="nats per token")


if __name__ == "__main__":
    main()
