"""Differences of systems from the first one on the same trials, over several evaluations together.

Usage: python tools/compare_takes.py --row NAME=SYSTEM:FOLDER[,FOLDER ...] [--row ...] --output JSON

FOLDER is an output of `marstts evaluate` with the metrics sphinx and resemblyzer, SYSTEM the name in its table, such as
"mini (shallow)". Trials that every row has are compared: CER, similarity to the reference, the fraction whose own
reference is the nearest, and takes with a repetition or truncation. Intervals are 95 % bootstrap intervals over trials.
With `--seeds`, folders after the first are the same trials with other seeds, and a trial is resampled with all its
takes; else they are other trials.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.benchmark.report import gather_metadata, print_json
from marstts.metrics.intervals import bootstrap_difference, ratio, ratio_interval
from marstts.metrics.scores import TakeScore, read_scores

Rows = dict[str, NDArray[np.float64]]
"""(trials, 2) numerators and denominators of each column."""

SPEAKER_METRIC = "resemblyzer"
COLUMNS = "cer", "similarity", "own reference first", "misread"


def read_row(system: str, folders: list[Path], are_seeds: bool) -> dict[tuple[int, str], list[TakeScore]]:
    """Scores of a system by number of the folder, 0 for all if they differ in seeds only, and trial."""
    found: dict[tuple[int, str], list[TakeScore]] = {}
    for number, folder in enumerate(folders):
        for score in read_scores(folder):
            if score.system == system:
                found.setdefault((0 if are_seeds else number, score.trial), []).append(score)
    return found


def columns(trials: list[list[TakeScore]]) -> Rows:
    """Numerator and denominator of each trial, by column: sums over its takes."""
    found = [np.array([take_columns(score) for score in scores], float).sum(axis=0) for scores in trials]
    return dict(zip(COLUMNS, np.stack(found, axis=1), strict=True))


def take_columns(score: TakeScore) -> list[tuple[float, float]]:
    """Numerator and denominator of a take in each column."""
    voice = score.voices[SPEAKER_METRIC]
    assert score.words is not None and voice.similarity is not None
    return [
        (score.words.character_errors, score.words.characters),
        (voice.similarity, 1),
        (voice.num_correct == voice.num_comparisons, 1),
        (score.words.has_repetition or score.words.truncated, 1),
    ]


def compare(rows: dict[str, Rows]) -> dict[str, Any]:
    """Each column of each row with its interval, and its difference from the first row."""
    first = next(iter(rows.values()))
    table: dict[str, Any] = {}
    for name, row in rows.items():
        table[name] = {column: ratio_interval(*values.T).format(3) for column, values in row.items()}
        if row is not first:
            table[name]["difference"] = {
                column: bootstrap_difference(values, first[column], ratio).format(3) for column, values in row.items()
            }
    return table


def main() -> None:
    """Parse, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", action="append", required=True)
    parser.add_argument("--seeds", action="store_true", help="folders of a row are the same trials with other seeds")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    found = {}
    for each in options.row:
        name, _, source = each.partition("=")
        system, _, folders = source.rpartition(":")
        found[name] = read_row(system, [Path(folder) for folder in folders.split(",")], options.seeds)
    trials = sorted(set.intersection(*(set(scores) for scores in found.values())))
    rows = {name: columns([scores[trial] for trial in trials]) for name, scores in found.items()}
    command = shlex.join([*(["--seeds"] if options.seeds else []), *(p for row in options.row for p in ("--row", row))])
    report = gather_metadata(f"python tools/compare_takes.py {command}") | {
        "trials": len(trials),
        "takes": {name: sum(len(scores[trial]) for trial in trials) for name, scores in found.items()},
        "rows": compare(rows),
    }
    print_json(report, options.output)


if __name__ == "__main__":
    main()
