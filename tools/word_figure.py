"""Draw a recording with the words of its caption file: the waveform, a line at every boundary, each word between them.

Usage: marstts speak "..." --output speech.wav --words words.json
       python tools/word_figure.py speech.wav words.json docs/figures/words.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

from marstts.audio import read

COLUMNS = 1600
"""Columns of the waveform, each from the lowest to the highest sample."""


def draw(recording: Path, words: Path, figure: Path) -> None:
    """Write the figure."""
    waveform = read(recording)
    size = -(-len(waveform.samples) // COLUMNS)
    padded = np.pad(waveform.samples, (0, size * COLUMNS - len(waveform.samples))).reshape(COLUMNS, size)
    times = np.arange(COLUMNS) * size / waveform.sample_rate
    mpl.rcParams["svg.hashsalt"] = "words"
    drawing, axes = plt.subplots(figsize=(9.0, 2.4), layout="constrained")
    axes.fill_between(times, padded.min(axis=1), padded.max(axis=1), color="#35618e", linewidth=0)
    top = float(np.abs(waveform.samples).max())
    for word in json.loads(words.read_text(encoding="utf-8")):
        axes.axvspan(word["start"], word["end"], color="#e0a030", alpha=0.18, linewidth=0)
        axes.axvline(word["start"], color="#b06000", linewidth=0.7)
        axes.axvline(word["end"], color="#b06000", linewidth=0.7, linestyle=":")
        middle = (word["start"] + word["end"]) / 2
        axes.text(middle, 1.06 * top, word["written"], ha="center", va="bottom", fontsize=8)
    axes.set(xlim=(0, waveform.seconds), ylim=(-1.05 * top, 1.3 * top), xlabel="seconds", yticks=[])
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    drawing.savefig(figure, metadata={"Date": None})


if __name__ == "__main__":
    draw(*map(Path, sys.argv[1:]))
