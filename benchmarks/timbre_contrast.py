"""Contrast of timbre embeddings in synthesis: what it costs in words, and what it gains in voice.

Usage: python benchmarks/timbre_contrast.py mean --manifest JSONL [--manifest JSONL ...] [--output JSON]
       python benchmarks/timbre_contrast.py measure --manifest JSONL --mean JSON [--factor F ...] [--sentences N]
           [--output JSON]

`mean` computes the mean timbre embedding of training speakers, one recording each, the same number of each manifest:
`timbre_contrast.mean` of a codec's `config.json`. `measure` speaks held-out sentences once in voices of speakers of the
validation split, and decodes the same codes with each factor. Words are judged by pocketsphinx, voices by the model's
own identity encoder, and differences are from the factor 1. Manifests are those of `marstts prepare`. Needs the extra
eval.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from word_sentences import held_out_sentences

from marstts import audio
from marstts.audio import Waveform
from marstts.benchmark.machine import gather_metadata, print_json
from marstts.codec.base import TimbreConditioned
from marstts.codec.mini import MiniCodec
from marstts.codec.timbre_contrast import TimbreContrast
from marstts.data.manifest import read_manifest
from marstts.errors import AudioError
from marstts.metrics.identity import cosine
from marstts.metrics.intervals import bootstrap_difference, ratio, ratio_interval
from marstts.metrics.recognition import SphinxRecognizer, character_edits
from marstts.metrics.words import plain_words
from marstts.synthesis.forced_takes import SpokenSentence, speak_once
from marstts.synthesis.loading import load
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice

SEED = 11
SECONDS = 3.0, 9.0
"""Shortest and longest reference."""

NUM_TRAINING_SPEAKERS = 250
"""Speakers of each manifest whose embeddings are averaged."""

MAX_VOICES = 24


def draw_recordings(manifest: Path, split: str) -> Iterator[Waveform]:
    """One recording of each speaker of a split, in random order."""
    by_speaker: dict[str, list[Path]] = {}
    for utterance in read_manifest(manifest):
        if utterance.split == split and SECONDS[0] <= utterance.seconds <= SECONDS[1]:
            by_speaker.setdefault(utterance.speaker, []).append(manifest.parent / utterance.audio)
    rng = random.Random(SEED)
    speakers = sorted(by_speaker)
    rng.shuffle(speakers)
    return (audio.read(rng.choice(by_speaker[speaker])) for speaker in speakers)


def mean_embedding(synthesizer: Synthesizer, manifests: list[Path]) -> NDArray[np.float64]:
    """(V,) the mean over training speakers; each manifest has the same weight."""
    assert isinstance(synthesizer.codec, TimbreConditioned)
    means = []
    for manifest in manifests:
        recordings = zip(range(NUM_TRAINING_SPEAKERS), draw_recordings(manifest, "train"), strict=False)
        means.append(np.mean([synthesizer.codec.timbre_embedding(recording) for _, recording in recordings], axis=0))
    return np.asarray(np.mean(means, axis=0))


def clone_speakers(synthesizer: Synthesizer, manifest: Path) -> list[Voice]:
    """Voices of at most `MAX_VOICES` validation speakers; recordings that cannot be cloned are left out."""
    voices: list[Voice] = []
    for recording in draw_recordings(manifest, "validation"):
        try:
            voices.append(synthesizer.clone(recording))
        except AudioError:
            continue
        if len(voices) == MAX_VOICES:
            break
    return voices


def measure(
    synthesizer: Synthesizer, spoken: list[SpokenSentence], voices: list[Voice], contrast: TimbreContrast
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(takes, 2) errors and characters, and (takes,) cosines with the reference in the identity encoder."""
    codec = copy.copy(synthesizer.codec)
    assert isinstance(codec, MiniCodec)
    codec.timbre_contrast = contrast  # in the place of the one in its folder
    session = replace(synthesizer, codec=codec)
    recognizer, rows, cosines = SphinxRecognizer(), [], []
    for index, take in enumerate(spoken):
        voice = voices[index % len(voices)]
        speech = session.decode(session.model.codes(take.tokens, take.request.rng, take.request.prompt), voice)
        edits = character_edits(plain_words(take.text), recognizer.transcribe(speech))
        rows.append((edits.errors, edits.length))
        cosines.append(cosine(synthesizer.encoders["identity"].embed(speech), voice.embeddings["identity"]))
    return np.array(rows, float), np.array(cosines)


def compare(synthesizer: Synthesizer, manifest: Path, mean: list[float], factors: list[float], count: int) -> Any:
    """CER and similarity for each factor, with differences from the factor 1."""
    voices = clone_speakers(synthesizer, manifest)
    spoken = speak_once(synthesizer, held_out_sentences(count, SEED, "validation"), voices)
    found = {
        factor: measure(synthesizer, spoken, voices, TimbreContrast(factor=factor, mean=tuple(mean)))
        for factor in [1.0, *factors]
    }
    whole, whole_cosines = found[1.0]
    ones = np.ones((len(whole), 1))
    table: dict[str, Any] = {}
    for factor, (rows, cosines) in found.items():
        words = bootstrap_difference(rows, whole, ratio)
        voice = bootstrap_difference(
            np.hstack([cosines[:, None], ones]), np.hstack([whole_cosines[:, None], ones]), ratio
        )
        table[f"{factor:g}"] = {
            "cer": ratio_interval(rows[:, 0], rows[:, 1]).format(3),
            "cer_difference": words.format(3),
            "identity_similarity": round(float(cosines.mean()), 4),
            "identity_similarity_difference": voice.format(4),
        }
    return {"voices": len(voices), "sentences": len(spoken), "factors": table}


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("mean", "measure"))
    parser.add_argument("--manifest", type=Path, action="append", required=True)
    parser.add_argument("--mean", type=Path, help="what `mean` printed")
    parser.add_argument("--factor", type=float, action="append", default=[])
    parser.add_argument("--sentences", type=int, default=160)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    synthesizer = load("mini")
    result: dict[str, Any]
    if options.command == "mean":
        result = {"mean": [round(float(number), 4) for number in mean_embedding(synthesizer, options.manifest)]}
    else:
        mean = json.loads(options.mean.read_text(encoding="utf-8"))["mean"]
        result = {
            manifest.parent.name: compare(synthesizer, manifest, mean, options.factor, options.sentences)
            for manifest in options.manifest
        }
    print_json(gather_metadata(f"python benchmarks/timbre_contrast.py {options.command}") | result, options.output)


if __name__ == "__main__":
    main()
