"""Draws docs/figures/cer_by_style.{png,svg} from the table in docs/results/mini-v6/speech.json.

python docs/results/draw_cer_by_style.py
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "cer_by_style"  # makes the names inside the file deterministic
import matplotlib.pyplot as plt  # noqa: E402

DOCS = Path(__file__).parents[1]
TABLE = "CER by style"


def main() -> None:
    """A group of bars per style, a bar per system, whiskers for 95 % intervals."""
    tables = json.loads((DOCS / "results/mini-v6/speech.json").read_text(encoding="utf-8"))["tables"]
    table = next(one for one in tables if one["title"] == TABLE)
    name, *styles = table["columns"]
    styles.sort(key=lambda style: table["rows"][0][style]["value"])
    width = 0.8 / len(table["rows"])
    figure, axes = plt.subplots(figsize=(9.0, 3.6))
    for number, row in enumerate(table["rows"]):
        scores = [row[style] for style in styles]
        whiskers = [[s["value"] - s["low"] for s in scores], [s["high"] - s["value"] for s in scores]]
        places = [place + (number - (len(table["rows"]) - 1) / 2) * width for place in range(len(styles))]
        axes.bar(places, [s["value"] for s in scores], width, label=row[name], yerr=whiskers, capsize=2)
    axes.set_xticks(range(len(styles)), styles)
    axes.set_ylabel("character error rate")
    axes.set_xlabel("style of the reference")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.22))
    for suffix in ("png", "svg"):
        metadata = {"Date": None} if suffix == "svg" else None
        figure.savefig(DOCS / f"figures/cer_by_style.{suffix}", dpi=150, bbox_inches="tight", metadata=metadata)


if __name__ == "__main__":
    main()
