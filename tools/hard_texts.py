"""Hard texts: how many takes are of implausible length or misread, and the same for the corpus's own engines.

Usage: python tools/hard_texts.py engines --root FOLDER --takes ENGINES
       marstts evaluate --system mini --testset hard-texts --root FOLDER --metrics sphinx --clone shallow
           --baselines "" --output MINI
       marstts evaluate --system ENGINES --testset hard-texts --root FOLDER --metrics sphinx --baselines ""
           --metrics-model none --output READINGS
       python tools/hard_texts.py summary --scores MINI [MINI_OF_ANOTHER_SEED ...] READINGS --output JSON
       python tools/hard_texts.py short --output JSON

`engines` reads each trial with the base voice that its synthetic speaker was made from, at the regular rate. The engine
gets the text as marstts reads it, so that only the speech differs, and silence at the edges is cut off as in a take.
Readings that are there already are kept. `--root` is the folder of the synthetic test set. `summary` counts what the
evaluations found, of the trials that all systems have. `short` reads the texts of one or two words with each base
voice, at the regular rate and at that of the fast style, and checks the lengths as those of takes are checked. Needs
the engines and the extras synthetic and eval.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts import audio
from marstts.audio import Waveform
from marstts.synthesis.speech import EDGE_BELOW_PEAK_DB
from marstts.text.normalize import normalize
from marstts_lab.benchmark.report import gather_metadata
from marstts_lab.data.corpora.speakers import STYLES
from marstts_lab.data.corpora.tts_engines import BASE_VOICES, BaseVoice
from marstts_lab.evaluation.testsets.hard_texts import committed_texts, read_hard_texts
from marstts_lab.metrics.intervals import bootstrap_difference, ratio, ratio_interval
from marstts_lab.metrics.length import LengthStatus, check_length, expected_seconds
from marstts_lab.metrics.scores import TakeScore, read_scores
from marstts_lab.metrics.trial import Trial

SHORTEST = "Come in."
"""The text whose take was too short."""

RATES = 1.0, STYLES["fast"].rate

Takes = dict[str, list[TakeScore]]
"""Scores of the takes of each trial, one for each seed."""


def read_with_engines(root: Path, takes: Path) -> None:
    """Read every trial that has no reading yet."""
    takes.mkdir(parents=True, exist_ok=True)
    for trial in read_hard_texts(root):
        path = takes / f"{trial.id}.wav"
        if not path.exists():
            audio.write(read_trial(trial), path)


def read_trial(trial: Trial) -> Waveform:
    """The text of a trial in the base voice of its speaker, trimmed."""
    return read_text(trial.text, BASE_VOICES[trial.speaker.rpartition(".")[0]], 1.0)


def read_text(text: str, voice: BaseVoice, rate: float) -> Waveform:
    """A text as an engine reads it, trimmed."""
    whole = voice.speak(normalize(text), voice, rate, 1.0)
    start, end = audio.audible_span(whole, below_peak_db=EDGE_BELOW_PEAK_DB)
    return Waveform(whole.samples[start:end], whole.sample_rate)


def read_short_texts(rates: Sequence[float]) -> dict[str, Any]:
    """Readings of implausible length of the texts of one or two words, by rate, and all of the shortest take's text."""
    found: dict[str, Any] = {}
    for rate in rates:
        readings = {
            f"{text} ({voice.name})": (read_text(text, voice, rate), expected_seconds(spoken or text))
            for kind, text, spoken in committed_texts()
            if kind in ("one-word", "two-words")
            for voice in BASE_VOICES.values()
        }
        status = {name: check_length(*reading) for name, reading in readings.items()}
        found[f"rate {rate:g}"] = {
            "readings": len(readings),
            "lengths": dict(Counter(each.value for each in status.values())),
            "too short": {
                name: round(readings[name][0].seconds, 3)
                for name, each in status.items()
                if each is LengthStatus.TOO_SHORT
            },
            SHORTEST: {name: round(read.seconds, 3) for name, (read, _) in readings.items() if SHORTEST in name},
        }
    return found


def summarize(outputs: Sequence[Path]) -> dict[str, Any]:
    """Counts for every system, of the trials that all systems have a score for; several takes of a trial all count."""
    systems: dict[str, Takes] = {}
    for output in outputs:
        for score in read_scores(output):
            systems.setdefault(score.system, {}).setdefault(score.trial, []).append(score)
    common = sorted(set.intersection(*(set(takes) for takes in systems.values())))
    systems = {name: {trial: takes[trial] for trial in common} for name, takes in systems.items()}
    first = next(iter(systems.values()))
    return {
        "trials": len(common),
        "systems": {
            name: describe([score for scores in takes.values() for score in scores]) for name, takes in systems.items()
        },
        "flagged more than the first system": {
            name: compare_flagged(first, takes) for name, takes in list(systems.items())[1:]
        },
    }


def compare_flagged(first: Takes, other: Takes) -> str:
    """Difference of the flagged shares of `other` and `first` on the same trials; texts are resampled whole."""
    texts = sorted({text_of(trial) for trial in first})
    sums = np.zeros((2, len(texts), 2))
    for system, takes in enumerate((other, first)):
        for trial, scores in takes.items():
            sums[system, texts.index(text_of(trial))] += sum(map(is_misread, scores)), len(scores)
    difference = bootstrap_difference(sums[0], sums[1], ratio)
    assert difference is not None
    return difference.format(3)


def text_of(trial: str) -> str:
    """The text of a trial, by kind and number: "two-words-021" of "two-words-021-flite-kal16.20"."""
    found = re.match(r"[a-z-]+-\d+", trial)
    assert found is not None
    return found[0]


def format_ratio(numerators: NDArray[np.float64], denominators: NDArray[np.float64]) -> str:
    """The ratio of the sums, with its 95 % interval."""
    interval = ratio_interval(numerators, denominators)
    assert interval is not None
    return interval.format(3)


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
        "flagged": format_ratio(flagged, np.ones(len(flagged))),
        "cer": format_ratio(*np.array([character_errors(score) for score in scores if score.words]).T),
        "flagged_by_kind": {kind: round(float(share), 3) for kind, share in by_kind.items()},
    }


def character_errors(score: TakeScore) -> tuple[int, int]:
    """Errors and characters of a transcript."""
    assert score.words is not None
    return score.words.character_errors, score.words.characters


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
    short = commands.add_parser("short")
    short.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if options.what == "engines":
        read_with_engines(options.root, options.takes)
        return
    found = read_short_texts(RATES) if options.what == "short" else summarize(options.scores)
    models = ["mini"] if options.what == "summary" else []
    report = {**gather_metadata(f"python tools/hard_texts.py {options.what}", models), **found}
    text = json.dumps(report, indent=1, ensure_ascii=False)
    print(text)
    options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
