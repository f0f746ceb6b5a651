"""Draws docs/figures/people_training.svg from docs/results/people/v6.3-training.json.

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


def main() -> None:
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
