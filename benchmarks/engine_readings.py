"""The hard texts read by the corpus's own engines: takes to compare a model's with, for `marstts evaluate`.

Usage: python benchmarks/engine_readings.py --root FOLDER --output ENGINES
       marstts evaluate --system ENGINES --testset hard-texts --root FOLDER --metrics sphinx --baselines ""

Each trial is read by the base voice that its synthetic speaker was made from, at the regular rate. The engine gets the
text as marstts reads it, so that only the speech differs, and silence at the edges is cut off as in a take. Readings
that are there already are kept. `--root` is the folder of the synthetic test set. Needs the engines and the extra
synthetic.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from marstts import audio
from marstts.audio import Waveform
from marstts.data.corpora.tts_engines import BASE_VOICES
from marstts.evaluation.testsets.hard_texts import read_hard_texts
from marstts.metrics.testset import Trial
from marstts.synthesis.speech import EDGE_BELOW_PEAK_DB
from marstts.text.normalize import normalize


def read_trial(trial: Trial) -> Waveform:
    """The text of a trial in the base voice of its speaker, trimmed."""
    voice = BASE_VOICES[trial.speaker.rpartition(".")[0]]
    whole = voice.speak(normalize(trial.text), voice, 1.0, 1.0)
    start, end = audio.audible_span(whole, below_peak_db=EDGE_BELOW_PEAK_DB)
    return Waveform(whole.samples[start:end], whole.sample_rate)


def main() -> None:
    """Read every trial that has no reading yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for trial in read_hard_texts(options.root):
        path = options.output / f"{trial.id}.wav"
        if not path.exists():
            audio.write(read_trial(trial), path)


if __name__ == "__main__":
    main()
