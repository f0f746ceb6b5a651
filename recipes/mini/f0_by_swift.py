"""Writes the F0 of a corpus by swift-f0, as `marstts prepare f0` does by WORLD: for median_f0.py and pitch.py.

Usage: python recipes/mini/f0_by_swift.py MANIFEST FILE [--most 8] [--seed 0]

MANIFEST: utterances.jsonl.  FILE: one JSON line per recording.  --most: recordings of a speaker, drawn at random.
Needs swift-f0 (MIT); five minutes of a core for three hours.

Medians by DIO and StoneMask lie 1.9 semitones off those of swift-f0, single ones an octave and more, for noise is
voiced to them; Harvest lies 0.7 off.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from swift_f0 import SwiftF0

from marstts import audio
from marstts_lab.data.manifest import read_for_training
from marstts_lab.training.codec.losses import SECONDS_PER_VALUE

SAMPLE_RATE, MIN_CONFIDENCE, RANGE_HERTZ = 16_000, 0.7, (60.0, 450.0)


def track(tracker: SwiftF0, samples: NDArray[np.float32]) -> list[float]:
    """F0 in hertz every 10 ms of samples (N,) at 16 kHz; 0 where unvoiced, or where the tracker is not sure."""
    found = tracker.detect(samples, SAMPLE_RATE)
    pitch, times = np.asarray(found.pitch_hz), np.asarray(found.timestamps)
    sure = (np.asarray(found.confidence) > MIN_CONFIDENCE) & (pitch > RANGE_HERTZ[0]) & (pitch < RANGE_HERTZ[1])
    wanted = np.arange(0, len(samples) / SAMPLE_RATE, SECONDS_PER_VALUE)
    nearest = np.abs(times[None] - wanted[:, None]).argmin(axis=1)
    return [round(float(hertz), 1) for hertz in np.where(sure, pitch, 0.0)[nearest]]


def main() -> None:
    """Read the command line, and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("manifest", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    utterances = [u for u in read_for_training(options.manifest) if u.split == "train"]
    random.Random(options.seed).shuffle(utterances)
    tracker, counts, rows = SwiftF0(1), Counter[str](), []
    for utterance in utterances:
        if counts[utterance.speaker] < options.most:
            counts[utterance.speaker] += 1
            waveform = audio.read(options.manifest.parent / utterance.audio, sample_rate=SAMPLE_RATE)
            rows.append(json.dumps({"id": utterance.id, "f0": track(tracker, waveform.samples)}))
    options.file.write_text("".join(f"{row}\n" for row in rows))
    print(f"{len(rows)} recordings of {len(counts)} people")


if __name__ == "__main__":
    main()
