"""Quality of a MARS5 against its diffusion steps, with RePaint's jumps and without: error rate, similarity, speed.

Usage: python benchmarks/mars5_steps.py MODEL [--sentences 56] [--steps 200,50,24,12,6] [--jumps 1,2] [--output JSON]

The voices are the packaged ones, the sentences held-out ones of its corpus. All variants start from the same
seeds. Error rates are pocketsphinx's, similarities Resemblyzer's. Needs the extra eval.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from word_sentences import held_out_sentences

from marstts import audio
from marstts.benchmark.machine import gather_metadata
from marstts.metrics.identity import Resemblyzer, cosine
from marstts.metrics.recognition import SphinxRecognizer, character_edits
from marstts.metrics.words import plain_words
from marstts.synthesis.loading import load
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.voices import packaged_names


def variant(synthesizer: Synthesizer, steps: int, jumps: int) -> Synthesizer:
    """The same synthesizer with other settings of the diffusion."""
    model: Any = synthesizer.model
    diffusion = model.pipeline.diffusion.model_copy(update={"timesteps": steps, "jump_n_sample": jumps})
    return replace(synthesizer, model=replace(model, pipeline=replace(model.pipeline, diffusion=diffusion)))


def measure(synthesizer: Synthesizer, texts: list[str]) -> dict[str, float]:
    """Error rate, similarity and real-time factor of one variant."""
    recognizer, encoder = SphinxRecognizer(), Resemblyzer()
    voices = [synthesizer.open_voice(name) for name in packaged_names()]
    known = [encoder.embed(audio.read(io.BytesIO(voice.reference))) for voice in voices]
    errors, characters, similar, nearest, computed, spoken = 0, 0, [], [], 0.0, 0.0
    for index, text in enumerate(texts):
        own = index % len(voices)
        begin = time.perf_counter()
        waveform = synthesizer.speak(text, voices[own], seed=index).waveform
        computed += time.perf_counter() - begin
        spoken += waveform.seconds
        edits = character_edits(plain_words(text), recognizer.transcribe(waveform))
        errors, characters = errors + edits.errors, characters + edits.length
        cosines = [cosine(encoder.embed(waveform), embedding) for embedding in known]
        similar.append(cosines[own])
        nearest.append(int(np.argmax(cosines)) == own)
    return {
        "cer": errors / characters,
        "similarity": float(np.mean(similar)),
        "own_speaker_nearest": float(np.mean(nearest)),
        "rtf": computed / spoken,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--sentences", type=int, default=56)
    parser.add_argument("--steps", default="200,50,24,12,6")
    parser.add_argument("--jumps", default="1,2")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    base, texts, rows = load(options.model), held_out_sentences(options.sentences, seed=0), []
    for jumps in map(int, options.jumps.split(",")):
        for steps in map(int, options.steps.split(",")):
            scores = measure(variant(base, steps, jumps), texts)
            rows.append({"steps": steps, "jump_n_sample": jumps, **{k: round(v, 4) for k, v in scores.items()}})
            print(rows[-1], flush=True)
    if options.output:
        result = {"metadata": gather_metadata(f"python benchmarks/mars5_steps.py {options.model}"), "rows": rows}
        options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
