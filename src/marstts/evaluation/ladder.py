"""Judges judged: do they rank recordings the way nobody doubts?

Upstream: recordings with transcripts, any codec, the judges.  Downstream: `docs/results.md`.

Four rungs, each with the faults of the one before and one more: the recordings, clean; through a codec; with white
noise at 10 dB; cut into pieces of 80 ms that are put together in another order. A judge that does not fall from rung
to rung cannot tell systems apart either, whatever its decimals.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.base import Codec
from marstts.evaluation.intervals import Interval
from marstts.evaluation.measures import Better, Measure, measures_of
from marstts.evaluation.report import compare, markdown_table, within_noise
from marstts.evaluation.scores import TakeScore, read_scores
from marstts.evaluation.systems import resynthesize, source_of
from marstts.evaluation.testset import Trial

RUNGS = ("clean", "codec", "noisy", "scrambled")
NOISE_DB = 10.0
PIECE_SECONDS = 0.08


class Rung:
    """The recordings with the faults of one rung; a `systems.System`."""

    timed = False

    def __init__(self, name: str, codec: Codec) -> None:
        self.name = name
        self.version = f"{name}, {codec.spec.name}"
        self._codec = codec

    def speak(self, trial: Trial) -> Waveform:
        waveform = audio.read(source_of(trial))
        rng = np.random.default_rng(int.from_bytes(hashlib.sha256(trial.id.encode()).digest()[:4], "little"))
        if self.name != "clean":
            waveform = resynthesize(self._codec, waveform)
        if self.name in ("noisy", "scrambled"):
            waveform = add_noise(waveform, rng)
        return scramble(waveform, rng) if self.name == "scrambled" else waveform


def known_orders(codec: Codec) -> list[Rung]:
    """The rungs, from the top."""
    return [Rung(name, codec) for name in RUNGS]


def add_noise(waveform: Waveform, rng: np.random.Generator) -> Waveform:
    """With white noise NOISE_DB below the recording's own level."""
    rms = float(np.sqrt(np.mean(np.square(waveform.samples))))
    noise = rms * 10 ** (-NOISE_DB / 20) * rng.standard_normal(len(waveform.samples))
    noisy = waveform.samples + noise
    return Waveform((noisy / max(1.0, float(np.abs(noisy).max()))).astype(np.float32), waveform.sample_rate)


def scramble(waveform: Waveform, rng: np.random.Generator) -> Waveform:
    """The same sounds in another order, in pieces of PIECE_SECONDS."""
    length = round(PIECE_SECONDS * waveform.sample_rate)
    pieces = [waveform.samples[start : start + length] for start in range(0, len(waveform.samples), length)]
    return Waveform(np.concatenate([pieces[index] for index in rng.permutation(len(pieces))]), waveform.sample_rate)


@dataclass(frozen=True)
class Climb:
    """One judge on all rungs."""

    measure: str
    title: str
    better: Better
    scores: Mapping[str, Interval]
    steps: Sequence[Interval]
    """How much higher each rung scores than the one above it, on the same recordings."""

    ranked: bool
    """Whether every rung scores worse than the one above it."""

    certain: bool
    """Whether every one of those differences is beyond the noise."""


def climb(output: Path) -> list[Climb]:
    """Every judge that has heard all rungs, from an output folder of `score`."""
    scores = read_scores(output)
    by_rung = {name: [score for score in scores if score.system == name] for name in RUNGS}
    found = [climb_measure(measure, by_rung) for measure in measures_of(scores) if measure.better is not Better.NEITHER]
    return [one for one in found if one is not None]


def climb_measure(measure: Measure, by_rung: Mapping[str, Sequence[TakeScore]]) -> Climb | None:
    scores = {name: measure.evaluate(rows) for name, rows in by_rung.items()}
    steps = [compare(measure, by_rung[low], by_rung[high]) for high, low in pairwise(RUNGS)]
    known = {name: interval for name, interval in scores.items() if interval is not None}
    sure = [step for step in steps if step is not None]
    if len(known) < len(RUNGS) or len(sure) < len(steps):
        return None
    ranked = all(step.value != 0 and not measure.better.beats(step.value) for step in sure)
    return Climb(
        measure=measure.key,
        title=measure.heading,
        better=measure.better,
        scores=known,
        steps=sure,
        ranked=ranked,
        certain=ranked and not any(within_noise(step) for step in sure),
    )


def write_ladder(climbs: Sequence[Climb], output: Path, facts: Mapping[str, Any]) -> str:
    """Write judges.json and judges.md; returns the Markdown."""
    values = {"facts": dict(facts), "judges": [asdict(one) for one in climbs]}
    (output / "judges.json").write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    rows = [[one.title, *(one.scores[name].format(2) for name in RUNGS), verdict(one)] for one in climbs]
    lines = [
        "# Judges on known orders",
        "",
        *(f"- {name}: {value}" for name, value in facts.items()),
        "",
        *markdown_table(["judge", *RUNGS, "order"], rows),
    ]
    markdown = "\n".join(lines) + "\n"
    (output / "judges.md").write_text(markdown, encoding="utf-8")
    return markdown


def verdict(one: Climb) -> str:
    """Right, or which steps it takes the wrong way beyond the noise, and which it cannot tell."""
    names = [f"{high} / {low}" for high, low in pairwise(RUNGS)]
    untold = [name for name, step in zip(names, one.steps, strict=True) if within_noise(step)]
    if one.ranked:
        return f"right, but {', '.join(untold)} within the noise" if untold else "right"
    turned = [
        name
        for name, step in zip(names, one.steps, strict=True)
        if one.better.beats(step.value) and not within_noise(step)
    ]
    parts = [f"**wrong** at {', '.join(turned)}"] if turned else []
    return "; ".join([*parts, *([f"cannot tell {', '.join(untold)}"] if untold else [])])
