"""Pace: lengths of takes compared with recordings of the same sentences, and the style offset that mends it.

Usage: python benchmarks/pace.py measure|offset [--offset JSON] [--deep] [--seeds N] [--strength S] [--root FOLDER]
       [--output JSON]

`measure` speaks the 56 trials of the synthetic test set N times and divides the audible seconds of each take by those
of its recording. `offset` renders sentences of training speakers in regular and in slow style, and prints S times the
mean difference of their style embeddings: the setting `style_offset` of a bundle. With `--offset`, `measure` uses it in
the place of the bundle's. Needs the extra synthetic and the engines of the corpus.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from word_sentences import held_out_sentences

from marstts import audio
from marstts.audio import Waveform
from marstts.benchmark.machine import gather_metadata, print_json
from marstts.data.corpora.speakers import SAMPLE_RATE, draw_speaker
from marstts.data.corpora.synthetic import UtteranceSpec, render_to_file
from marstts.data.corpora.tts_engines import BASE_VOICES
from marstts.evaluation.testsets.synthetic import DRAWS_PER_BASE, SEED, committed_lines, read_synthetic
from marstts.metrics.testset import take_seed
from marstts.synthesis.loading import load
from marstts.synthesis.speech import EDGE_BELOW_PEAK_DB
from marstts.synthesis.synthesizer import Synthesizer

SPEAKERS = (5, 12, 30)
"""Numbers of training speakers of each base voice."""


def measure(synthesizer: Synthesizer, root: Path, is_deep: bool, seeds: int) -> dict[str, Any]:
    """Ratios of lengths, over all trials and by style; a trial's ratio is the mean of its takes'."""
    trials = read_synthetic(root)
    recordings = [audio.read(trial.ground_truth) for trial in trials if trial.ground_truth is not None]
    voices = [synthesizer.clone(trial.reference, trial.reference_transcript if is_deep else None) for trial in trials]
    rounds = []
    for seed in range(seeds):
        results = synthesizer.speak_many(
            [trial.text for trial in trials], voices, seeds=[take_seed(seed, trial.id) for trial in trials]
        )
        spoken = {result.index: result.speech.waveform for result in results if result.speech is not None}
        rounds.append([audible_seconds(spoken[index]) for index in range(1, len(trials) + 1)])
    takes = np.mean(rounds, axis=0)
    known = np.array([audible_seconds(recording) for recording in recordings])
    ratios, whole = takes / known, takes / np.array([recording.seconds for recording in recordings])
    spread = 1.96 * ratios.std() / len(ratios) ** 0.5
    styles = np.array([trial.style for trial in trials])
    return {
        "trials": len(trials),
        "takes": len(trials) * seeds,
        "clone": "deep" if is_deep else "shallow",
        "ratio_of_audible_seconds": [round(float(ratios.mean() + sign * spread), 3) for sign in (-1, 0, 1)],
        "ratio_of_sums": round(float(takes.sum() / known.sum()), 3),
        "ratio_to_whole_recordings": round(float(whole.mean()), 3),
        "by_style": {style: round(float(ratios[styles == style].mean()), 3) for style in sorted(set(styles))},
    }


def audible_seconds(waveform: Waveform) -> float:
    """Seconds without silence at the edges, as takes are trimmed."""
    start, end = audio.audible_span(waveform, below_peak_db=EDGE_BELOW_PEAK_DB)
    return (end - start) / waveform.sample_rate


def slow_direction(synthesizer: Synthesizer) -> NDArray[np.float64]:
    """Mean difference of the style embeddings of the same sentences in slow and in regular style."""
    bases = sorted({line.base_voice for line in committed_lines()})
    texts = held_out_sentences(len(bases) * len(SPEAKERS), 0, split="train")
    differences = []
    with TemporaryDirectory() as folder:
        for index, text in enumerate(texts):
            base = BASE_VOICES[bases[index % len(bases)]]
            speaker = draw_speaker(base, SPEAKERS[index // len(bases)], DRAWS_PER_BASE, SEED)
            embeddings = {}
            for style in ("regular", "slow"):
                spec = UtteranceSpec(
                    id=f"{index}-{style}", speaker=speaker, style=style, text=text, split="train",
                    source_rate=SAMPLE_RATE, seed=SEED,
                )  # fmt: skip
                render_to_file(Path(folder), spec)
                recording = audio.read(Path(folder) / "audio" / speaker.id / f"{spec.id}.flac")
                embeddings[style] = synthesizer.encoders["style"].embed(recording)
            differences.append(embeddings["slow"] - embeddings["regular"])
    return np.mean(differences, axis=0, dtype=np.float64)


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "offset"])
    parser.add_argument("--strength", type=float, default=0.3)
    parser.add_argument("--deep", action="store_true", help="measure deep clones")
    parser.add_argument("--offset", type=Path, help="a file that `offset` wrote")
    parser.add_argument("--seeds", type=int, default=1, help="takes of each trial")
    parser.add_argument("--root", type=Path, default=Path("synthetic-testset"))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    synthesizer: Any = load("mini")
    if options.what == "offset":
        offset = options.strength * slow_direction(synthesizer)
        result: dict[str, Any] = {"style_offset": [round(float(value), 4) for value in offset]}
    else:
        if options.offset is not None:
            offset = tuple(json.loads(options.offset.read_text())["style_offset"])
            synthesizer = replace(synthesizer, model=replace(synthesizer.model, style_offset=offset))
        options.root.mkdir(parents=True, exist_ok=True)
        result = {
            **gather_metadata(f"python benchmarks/pace.py measure --seeds {options.seeds}{' --deep' * options.deep}"),
            **measure(synthesizer, options.root, options.deep, options.seeds),
        }
    print_json(result, options.output)


if __name__ == "__main__":
    main()
