"""Copies of short recordings whose pitch rises at the end, as that of yes/no questions; their texts have the mark.

Usage: python recipes/mini/raised_ends.py MANIFEST OUTPUT --model mini [--count 180] [--seed 0]

MANIFEST: `utterances.jsonl` of people or of an engine.  OUTPUT: gets `audio/` and `utterances.jsonl`.
The last 0.3 s of F0 are replaced by a rise of 7 to 12 semitones (WORLD); the words stay, the final mark becomes a
question mark. A codec keeps about half of a rise: only copies that still rise by 2 semitones after the model's codec
are kept. Some recordings whose pitch falls are listed, too, with a falling mark. Needs pyworld; about 3 s of a core for
a copy.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyworld
from numpy.typing import NDArray

import marstts
from marstts import audio
from marstts.audio import Waveform
from marstts.text.phones import FALLING, RISING
from marstts_lab.data.manifest import Utterance, read_chosen, write_manifest

RATE = 24000
SPAN, FADE = 0.3, 0.12
"""Seconds of voice at the end that rise, and before them the transition."""

SEMITONES = (7.0, 12.0)
FALLING_RATIO = 0.25


def track(samples: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """F0 (Hz, 0 = no voice) and its seconds, every 5 ms."""
    f0, times = pyworld.harvest(samples, RATE, f0_floor=60, f0_ceil=500, frame_period=5.0)
    return pyworld.stonemask(samples, f0, times, RATE), times


def final_rise(samples: NDArray[np.float32]) -> float | None:
    """Semitones by which the last 0.12 s of voice lie above 0.45 to 0.2 s before its end; None for too little voice."""
    f0, times = track(samples.astype(np.float64))
    voiced = np.flatnonzero(f0 > 0)
    if len(voiced) < 30:
        return None
    end = times[voiced[-1]]
    last = f0[(times > end - 0.12) & (times <= end) & (f0 > 0)]
    before = f0[(times > end - 0.45) & (times <= end - 0.2) & (f0 > 0)]
    return 12 * float(np.log2(np.median(last) / np.median(before))) if min(len(last), len(before)) >= 6 else None


def raised(samples: NDArray[np.float32], semitones: float) -> NDArray[np.float32] | None:
    """The recording with another end; what comes before stays as it was. None where there is too little voice."""
    x = samples.astype(np.float64)
    f0, times = track(x)
    voiced = np.flatnonzero(f0 > 0)
    if len(voiced) < 30:
        return None
    end = times[voiced[-1]]
    before = f0[(times > end - 0.5) & (times <= end - 0.22) & (f0 > 0)]
    if len(before) < 8:
        return None
    target = np.median(before) * 2 ** (semitones * np.clip((times - (end - SPAN)) / SPAN, 0, 1) ** 0.8 / 12)
    share = np.clip((times - (end - SPAN - FADE)) / FADE, 0, 1)
    changed = np.where(f0 > 0, np.maximum(f0, 1) ** (1 - share) * target**share, 0.0)
    envelope, aperiodicity = pyworld.cheaptrick(x, f0, times, RATE), pyworld.d4c(x, f0, times, RATE)
    made = pyworld.synthesize(changed, envelope, aperiodicity, RATE, 5.0)[: len(x)]
    made = np.pad(made, (0, len(x) - len(made)))
    cut = int((end - SPAN - 0.2) * RATE)
    fade = np.clip((np.arange(len(x)) - cut) / (0.03 * RATE), 0, 1)
    return np.clip(x * (1 - fade) + made * fade, -1, 1).astype(np.float32)


def copies(manifest: Path, output: Path, model: str, count: int, seed: int) -> Iterator[Utterance]:
    """The rows of the new manifest, whose recordings are written."""
    tts, rng = marstts.load(model), random.Random(seed)
    voice, session = tts.open_voice(), tts.session
    chosen = read_chosen(manifest, lambda one: one.split == "train" and 1 < one.seconds < 4.5 and one.text[-1:] in ".?")
    rng.shuffle(chosen)
    made = 0
    for one in chosen:
        if made >= count:
            return
        samples = audio.resample(audio.read(manifest.parent / one.audio), RATE).samples
        text, speaker = one.text.strip().rstrip(".?!"), f"raised-{one.speaker}"
        if rng.random() < FALLING_RATIO and (final_rise(samples) or 0.0) < -1:
            source = str((manifest.parent / one.audio).absolute())
            yield replace(one, id=f"falling-{one.id}", audio=source, text=f"{text}{FALLING}?", speaker=speaker)
        risen = raised(samples, rng.uniform(*SEMITONES))
        if risen is None:
            continue
        decoded = session.decode(session.codec.encode(Waveform(risen, RATE)), voice).samples
        if (final_rise(decoded) or 0.0) < 2:
            continue
        made += 1
        path = output / "audio" / f"{made:05d}.flac"
        audio.write(Waveform(risen, RATE), path)
        yield replace(one, id=f"raised-{one.id}", audio=f"audio/{path.name}", text=f"{text}{RISING}?", speaker=speaker)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--count", type=int, default=180)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    (options.output / "audio").mkdir(parents=True, exist_ok=True)
    rows = copies(options.manifest, options.output, options.model, options.count, options.seed)
    write_manifest(rows, options.output / "utterances.jsonl")


if __name__ == "__main__":
    main()
