"""Share of first attempts at a sentence that are rejected, and the processor time of a second of speech.

Usage: python benchmarks/first_attempts.py MODEL [--testset NAME --root FOLDER] [--limit N] [--clone deep]
           [--output JSON]

Each trial of a test set of `marstts evaluate` is spoken once, with the seeds of the evaluation; a sentence counts as
rejected where it needed a second attempt. Without limits of words in the model (word times), only length and loudness
are judged. Time includes the attempts that were rejected and the decoding, but not the cloning.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from marstts.benchmark.machine import gather_metadata
from marstts.evaluation.testsets.catalog import open_testset, subsample
from marstts.metrics.intervals import ratio_interval
from marstts.metrics.testset import take_seed
from marstts.synthesis.loading import load


def measure(model: str, testset: str, root: Path | None, limit: int | None, clone: str) -> dict[str, Any]:
    """Figures of one model over the trials."""
    synthesizer = load(model)
    attempts: list[int] = []
    rejected: list[int] = []
    flawed: list[int] = []
    audio_seconds = cpu_seconds = 0.0
    for trial in subsample(open_testset(testset, root), limit):
        voice = synthesizer.clone(trial.reference, trial.reference_transcript if clone == "deep" else None)
        started = time.process_time()
        speech = synthesizer.speak(trial.text, voice=voice, seed=take_seed(0, trial.id))
        cpu_seconds += time.process_time() - started
        audio_seconds += speech.waveform.seconds
        attempts += [take.attempts for take in speech.takes]
        rejected += [take.attempts > 1 for take in speech.takes]
        flawed += [take.warning is not None for take in speech.takes]
    share, flaws = (ratio_interval(counts, [1] * len(counts)) for counts in (rejected, flawed))
    assert share is not None and flaws is not None
    return {
        "model": Path(model).name,
        "clone": clone,
        "sentences": len(attempts),
        "attempts": sum(attempts),
        "first_rejected": {"value": share.value, "low": share.low, "high": share.high},
        "flawed_at_last": {"value": flaws.value, "low": flaws.low, "high": flaws.high},
        "cpu_seconds_per_second": cpu_seconds / audio_seconds,
        "audio_seconds": audio_seconds,
    }


def main() -> None:
    """Print the figures, and write them with those of the machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--testset", default="synthetic")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--clone", choices=("shallow", "deep"), default="shallow")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    figures = measure(options.model, options.testset, options.root, options.limit, options.clone)
    print(json.dumps(figures))
    if options.output is not None:
        command = shlex.join(["python", "benchmarks/first_attempts.py", *sys.argv[1:]])
        report = {"metadata": gather_metadata(command), "figures": figures}
        options.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
