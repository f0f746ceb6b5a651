"""Hard texts: how many takes are of implausible length or misread, and the same for the corpus's own engines.

Usage: python benchmarks/hard_texts.py engines --root FOLDER --takes ENGINES
       marstts evaluate --system mini --testset hard-texts --root FOLDER --metrics sphinx --clone shallow
           --baselines "" --output MINI
       marstts evaluate --system ENGINES --testset hard-texts --root FOLDER --metrics sphinx --baselines ""
           --metrics-model none --output READINGS
       python benchmarks/hard_texts.py summary --scores MINI READINGS --output JSON

`engines` reads each trial with the base voice that its synthetic speaker was made from, at the regular rate. The engine
gets the text as marstts reads it, so that only the speech differs, and silence at the edges is cut off as in a take.
Readings that are there already are kept. `--root` is the folder of the synthetic test set. `summary` counts what the
evaluations found, of the trials that all of them have. Needs the engines and the extras synthetic and eval.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts.benchmark.machine import gather_metadata
from marstts.data.corpora.tts_engines import BASE_VOICES
from marstts.evaluation.testsets.hard_texts import read_hard_texts
from marstts.metrics.intervals import ratio_interval
from marstts.metrics.length import LengthStatus
from marstts.metrics.scores import TakeScore, read_scores
from marstts.metrics.testset import Trial
from marstts.synthesis.speech import EDGE_BELOW_PEAK_DB
from marstts.text.normalize import normalize


def read_with_engines(root: Path, takes: Path) -> None:
    """Read every trial that has no reading yet."""
    takes.mkdir(parents=True, exist_ok=True)
    for trial in read_hard_texts(root):
        path = takes / f"{trial.id}.wav"
        if not path.exists():
            audio.write(read_trial(trial), path)


def read_trial(trial: Trial) -> Waveform:
    """The text of a trial in the base voice of its speaker, trimmed."""
    voice = BASE_VOICES[trial.speaker.rpartition(".")[0]]
    whole = voice.speak(normalize(trial.text), voice, 1.0, 1.0)
    start, end = audio.audible_span(whole, below_peak_db=EDGE_BELOW_PEAK_DB)
    return Waveform(whole.samples[start:end], whole.sample_rate)


def summarize(outputs: Sequence[Path]) -> dict[str, Any]:
    """Counts for every system, of the trials that all systems have a score for."""
    systems: dict[str, dict[str, TakeScore]] = {}
    for output in outputs:
        for score in read_scores(output):
            systems.setdefault(score.system, {})[score.trial] = score
    common = set.intersection(*(set(scores) for scores in systems.values()))
    return {
        "trials": len(common),
        "systems": {
            name: describe([score for trial, score in scores.items() if trial in common])
            for name, scores in systems.items()
        },
    }


def describe(scores: Sequence[TakeScore]) -> dict[str, Any]:
    """Lengths, trials of implausible length, and the share that the recognizer flags, overall and by kind of text."""
    flagged = np.array([is_misread(score) for score in scores], float)
    kinds = {score.style for score in scores}
    by_kind = {kind: np.mean([is_misread(score) for score in scores if score.style == kind]) for kind in sorted(kinds)}
    return {
        "lengths": dict(Counter(score.length_status.value for score in scores)),
        "implausible": {
            score.trial: f"{score.length_status.value}, {score.seconds:.2f} s"
            for score in scores
            if score.length_status is not LengthStatus.PLAUSIBLE
        },
        "flagged": ratio_interval(flagged, np.ones(len(flagged))).format(3),
        "flagged_by_kind": {kind: round(float(share), 3) for kind, share in by_kind.items()},
    }


def is_misread(score: TakeScore) -> bool:
    """Whether the transcript has a repetition or a truncation, or there is none."""
    return score.words is None or score.words.has_repetition or score.words.truncated


def main() -> None:
    """Parse, and read or summarize."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    engines = commands.add_parser("engines")
    engines.add_argument("--root", type=Path, required=True)
    engines.add_argument("--takes", type=Path, required=True)
    summary = commands.add_parser("summary")
    summary.add_argument("--scores", type=Path, nargs="+", required=True, help="output folders of evaluations")
    summary.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if options.what == "engines":
        read_with_engines(options.root, options.takes)
        return
    report = {**gather_metadata("python benchmarks/hard_texts.py summary"), **summarize(options.scores)}
    text = json.dumps(report, indent=1, ensure_ascii=False)
    print(text)
    options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
