"""Best of N: error rate, similarity, length and speed of the take that is kept of 1, 2, 4 and 8.

Usage: python benchmarks/best_of.py --takes FILE [--sentences N] [--seconds N] [--seed N] [--speed] [--output JSON]

Eight takes of every held-out sentence are sampled once, by `takes=8`; the best of N is chosen among the first N. Error
rates are pocketsphinx's, similarities Resemblyzer's (which the ranking does not use). Each sentence is added to the
file `--takes` when it is done. A later call goes on after the last one, and `--seconds` ends a call; the report covers
all of the file. `--speed` adds real-time factors, which need an idle machine. Needs the extra eval.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from word_sentences import held_out_sentences

from marstts import audio
from marstts.benchmark.machine import gather_metadata, print_json
from marstts.generation.scheduler import Scheduler
from marstts.metrics.identity import Resemblyzer
from marstts.metrics.intervals import bootstrap_difference, ratio, ratio_interval
from marstts.metrics.recognition import SphinxRecognizer, character_edits
from marstts.metrics.words import plain_words
from marstts.synthesis.loading import load
from marstts.synthesis.omissions import OmissionCheck
from marstts.synthesis.ranking import best_take, cosine, voice_similarity
from marstts.synthesis.speech import Take
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.voices import packaged_names
from marstts.text.segments import Segment
from marstts.voice import Voice

COUNTS = (1, 2, 4, 8)


def measure(synthesizer: Synthesizer, texts: list[str], seed: int, done: int) -> Iterator[dict[str, Any]]:
    """Yield errors, characters, similarity, length and number of the take that is kept, by count, for each text.

    The first `done` texts are left out.
    """
    recognizer, encoder = SphinxRecognizer(), Resemblyzer()
    voices = [synthesizer.open_voice(name) for name in packaged_names()]
    known = [reference_embedding(voice, encoder) for voice in voices]
    for index, text in enumerate(texts[done:], done):
        voice = voices[index % len(voices)]
        takes = all_takes(synthesizer, text, voice, seed + index)
        similar = [voice_similarity(take.waveform, voice, synthesizer.encoders) for take in takes]
        scored: dict[int, dict[str, Any]] = {}
        row: dict[str, Any] = {"text": text}
        for count in COUNTS:
            best = takes[0] if count == 1 else best_take(takes[:count], similar[:count], synthesizer.backoff)
            place = next(number for number, take in enumerate(takes) if take.codes is best.codes)
            if place not in scored:
                edits = character_edits(plain_words(text), recognizer.transcribe(best.waveform))
                scored[place] = {
                    "take": place + 1,
                    "errors": edits.errors,
                    "characters": edits.length,
                    "similarity": round(cosine(encoder.embed(best.waveform), known[index % len(voices)]), 4),
                    "seconds": round(best.seconds, 3),
                    "flaws": len(best.flaws),
                }
            row[str(count)] = scored[place]
        yield row


def reference_embedding(voice: Voice, encoder: Resemblyzer) -> np.ndarray:
    """The embedding of the recording that a packaged voice keeps."""
    return encoder.embed(audio.read(io.BytesIO(voice.reference)))


def all_takes(synthesizer: Synthesizer, text: str, voice: Voice, seed: int) -> list[Take]:
    """All takes of the first round that `takes=8` samples, in the order of their seeds."""
    requests = next(synthesizer.rounds(text, voice, synthesizer.sampling.top_p, (seed, 0), max(COUNTS)))
    scheduler = Scheduler(synthesizer.engine, len(requests))
    for request in requests:
        scheduler.add(request)
    ended = {}
    while scheduler.is_busy:
        ended |= {row.request: row for row in scheduler.step() if row.stop is not None}
    return [synthesizer.decode_take(Segment(text=text), ended[request], voice) for request in requests]


def report(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The table of all rows."""
    table = {}
    base = numbers(rows, 1)
    for count in COUNTS:
        found = numbers(rows, count)
        difference = bootstrap_difference(found, base, ratio)
        cer = ratio_interval(found[:, 0], found[:, 1])
        similarity = np.array([row[str(count)]["similarity"] for row in rows])
        gain = similarity - np.array([row["1"]["similarity"] for row in rows])
        spread = 1.96 * gain.std() / max(1.0, len(gain)) ** 0.5
        table[str(count)] = {
            "cer": cer.format(3),
            "cer_difference": difference.format(3),
            "similarity": round(float(similarity.mean()), 4),
            "similarity_gain": [round(float(gain.mean() + sign * spread), 4) for sign in (-1, 0, 1)],
            "flawed": sum(bool(row[str(count)]["flaws"]) for row in rows),
            "seconds": round(sum(row[str(count)]["seconds"] for row in rows), 1),
        }
    return {"sentences": len(rows), "best_of": table}


def numbers(rows: list[dict[str, Any]], count: int) -> np.ndarray:
    """(rows, 2) errors and characters."""
    return np.array([[row[str(count)]["errors"], row[str(count)]["characters"]] for row in rows], float)


def speed(synthesizer: Synthesizer, texts: list[str]) -> dict[str, float]:
    """Real-time factor of one sentence after another, for each count."""
    factors = {}
    for count in COUNTS:
        started, seconds = time.perf_counter(), 0.0
        for text in texts:
            seconds += synthesizer.speak(text, takes=count).seconds
        factors[str(count)] = round((time.perf_counter() - started) / seconds, 4)
    return factors


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=220)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no sentence is begun later than this")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--speed", action="store_true", help="measure real-time factors, too")
    parser.add_argument("--takes", type=Path, required=True)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    synthesizer, started = load("mini"), time.monotonic()
    texts = held_out_sentences(options.sentences, options.seed)
    rows = json.loads(options.takes.read_text()) if options.takes.exists() else []
    thorough = replace(synthesizer, omission_check=OmissionCheck.ALL_WORDS)
    for row in measure(thorough, texts, options.seed, len(rows)):
        rows.append(row)
        options.takes.write_text(json.dumps(rows, separators=(",", ":")))
        if time.monotonic() - started > options.seconds:
            break
    result = {
        **gather_metadata(f"python benchmarks/best_of.py --takes FILE --seed {options.seed}"),
        **report(rows),
        **({"rtf": speed(synthesizer, texts[:8])} if options.speed else {}),
    }
    print_json(result, options.output)


if __name__ == "__main__":
    main()
