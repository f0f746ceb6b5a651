"""Draws docs/figures/people_training.svg, people_mars6_training.svg and people_mars6_25m.svg from the JSON in people.

python docs/results/draw_people_training.py
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "people_training"  # makes the names inside the file deterministic
import matplotlib.pyplot as plt  # noqa: E402

DOCS = Path(__file__).parents[1]
PANELS = {
    "generated_consistency": "1 - cosine, generated codes",
    "speaker_consistency": "1 - cosine, codes of recordings",
    "spectral": "spectral loss",
}


LEVELS = {"loss": "all levels", "loss0": "level 0", "loss1": "level 1", "loss2": "level 2"}
LAST_PART = 0.8
"""The rest is the last fifth of the run, in which losses should have stopped falling."""


def main() -> None:
    """Draw all figures."""
    draw_decoder()
    draw_mars6()
    draw_sizes()


def draw_sizes() -> None:
    """Validation losses of two sizes of MARS6 from the same weights, on the same data."""
    rows = json.loads((DOCS / "results/people/mars6-25m.json").read_text(encoding="utf-8"))["rows"]
    figure, axes = plt.subplots(figsize=(6.0, 3.0))
    for model in dict.fromkeys(row["model"] for row in rows):
        line = [(row["step"], row["loss"]) for row in rows if row["model"] == model]
        axes.plot(*zip(*line, strict=True), marker="o", markersize=3, label=f"{model} parameters")
    axes.axvspan(LAST_PART * rows[-1]["step"], rows[-1]["step"], alpha=0.15, label="last fifth")
    axes.set_xlabel("steps")
    axes.set_ylabel("validation loss")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(DOCS / "figures/people_mars6_25m.svg", metadata={"Date": None})


def draw_mars6() -> None:
    """Validation losses of the second schedule of MARS6, by level."""
    rows = json.loads((DOCS / "results/people/mars6-second-schedule.json").read_text(encoding="utf-8"))["rows"]
    figure, axes = plt.subplots(figsize=(6.0, 3.2))
    for key, label in LEVELS.items():
        line = [(row["step"], row[key]) for row in rows if row["split"] == "validation"]
        axes.plot(*zip(*line, strict=True), marker="o", markersize=3, label=label)
    axes.axvspan(LAST_PART * rows[-1]["step"], rows[-1]["step"], alpha=0.15, label="last fifth")
    axes.set_xlabel("steps")
    axes.set_ylabel("validation loss")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", ncols=3)
    figure.tight_layout()
    figure.savefig(DOCS / "figures/people_mars6_training.svg", metadata={"Date": None})


def draw_decoder() -> None:
    """A panel per loss: training, averaged over 200 steps, and validation where it is measured."""
    rows = json.loads((DOCS / "results/people/v6.3-training.json").read_text(encoding="utf-8"))["rows"]
    figure, panels = plt.subplots(1, len(PANELS), figsize=(10.0, 3.0))
    for axes, (key, label) in zip(panels, PANELS.items(), strict=True):
        for split in ("train", "validation"):
            line = [(row["step"], row[key]) for row in rows if row["split"] == split and key in row]
            if line:
                axes.plot(*zip(*line, strict=True), marker="o" if split == "validation" else None, label=split)
        axes.set_xlabel("steps")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    panels[1].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(DOCS / "figures/people_training.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
