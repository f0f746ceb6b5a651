"""Draws docs/figures/mars5_steps.svg from docs/results/mars5/steps.json, which `benchmarks/mars5_steps.py` writes.

python docs/results/draw_mars5_steps.py
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "mars5_steps"  # makes the names inside the file deterministic
import matplotlib.pyplot as plt  # noqa: E402

DOCS = Path(__file__).parents[1]
PANELS = {"cer": "character error rate", "similarity": "similarity, Resemblyzer", "rtf": "real-time factor"}


def main() -> None:
    """A panel per measure, a line with RePaint's jumps and one without."""
    rows = json.loads((DOCS / "results/mars5/steps.json").read_text(encoding="utf-8"))["rows"]
    figure, panels = plt.subplots(1, len(PANELS), figsize=(10.0, 3.0))
    for axes, (key, label) in zip(panels, PANELS.items(), strict=True):
        for jumps in sorted({row["jump_n_sample"] for row in rows}):
            line = [(row["steps"], row[key]) for row in rows if row["jump_n_sample"] == jumps]
            name = "without jumps" if jumps == 1 else f"each stretch {jumps} times"
            axes.plot(*zip(*sorted(line), strict=True), marker="o", label=name)
        steps = sorted({row["steps"] for row in rows})
        axes.set_xscale("log")
        axes.set_xticks(steps, [str(step) for step in steps])
        axes.minorticks_off()
        axes.set_xlabel("diffusion steps")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(DOCS / "figures/mars5_steps.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
