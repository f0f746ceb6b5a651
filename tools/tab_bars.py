"""Measurements of the page in the tab, in headless Chromium: first audio, real-time factor, memory.

    marstts web --output site
    python tools/tab_bars.py speed --site site --output docs/results/tab/speed.json
    python tools/tab_bars.py memory --site site --minutes 30 --output docs/results/tab/memory.json

`speed` opens the page several times and speaks at once, then more sentences in a few voices; after each of these the
Python engine speaks the same one with one thread, in its own process. `memory` speaks paragraphs, one after another,
plays each to its end, and measures what the page, its workers and its processes hold. Nothing else should run.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

from tab_visitor import Memory, Visitor, visiting
from word_sentences import held_out_sentences

from marstts.generation.engine import EngineKind
from marstts.synthesis.loading import load
from marstts_lab.benchmark.report import gather_metadata, print_json

VOICES = ("ada", "alan", "linda", "ross")
TEXT = "Hello. This voice is synthetic, and it is made in your browser."
SENTENCES_OF_PARAGRAPH = 6


def metadata(command: str, visitor: Visitor) -> dict[str, Any]:
    """Everything needed to repeat the measurement."""
    load_before = os.getloadavg()[0]
    return gather_metadata(command, ["mini"]) | {"browser": visitor.version, "load": round(load_before, 2)}


def measure_speed(site: Path, visits: int, count: int) -> dict[str, Any]:
    """First audio of the first sentence after the page got ready, of later ones, and real-time factors."""
    synthesizer = load("mini", EngineKind.ONNX)
    with visiting(site) as visitor:
        described = metadata(f"python tools/tab_bars.py speed --visits {visits} --sentences {count}", visitor)
        after_load = []
        for _ in range(visits):
            ready = visitor.open("speaking")
            after_load.append({"ready": ready} | visitor.speak(TEXT))
        visitor.open()
        threads = visitor.run("return crossOriginIsolated && navigator.hardwareConcurrency >= 4 ? 2 : 1")
        rows = []
        for number, text in enumerate(held_out_sentences(count, seed=3)):
            voice = VOICES[number % len(VOICES)]
            row = {"voice": voice, "text": text} | visitor.speak(text, voice)
            visitor.run("document.getElementById('stop').click()")
            started, cpu = time.perf_counter(), time.process_time()
            speech = synthesizer.speak(text, voice)
            took = {"total": time.perf_counter() - started, "cpu": time.process_time() - cpu, "seconds": speech.seconds}
            rows.append(row | {"python": took})
    factors = [row["total"] / row["seconds"] for row in rows]
    ours = [row["python"]["total"] / row["python"]["seconds"] for row in rows]
    return described | {
        "threads": threads,
        "first_audio_after_load": [round(row["playing"], 3) for row in after_load],
        "first_audio_later": [round(row["playing"], 3) for row in rows],
        "seconds_until_ready": [round(row["ready"], 2) for row in after_load],
        "real_time_factor": round(median(factors), 3),
        "real_time_factor_python": round(median(ours), 3),
        "ratio": round(median(one / other for one, other in zip(factors, ours, strict=True)), 2),
        "rows": [*after_load, *rows],
    }


def measure_memory(site: Path, minutes: float, every: float) -> dict[str, Any]:
    """Memory while the page speaks and plays for so long, and after its takes were removed."""
    sentences = held_out_sentences(3000, seed=4)
    with visiting(site) as visitor:
        visitor.open()
        visitor.speak(TEXT)
        memory = Memory(visitor.browser)
        described = metadata(f"python tools/tab_bars.py memory --minutes {minutes:g} --every {every:g}", visitor)
        started, spoken, number = time.monotonic(), 0.0, 0
        rows = [{"minutes": 0.0, "spoken_minutes": 0.0} | memory.measure()]
        while time.monotonic() < started + 60 * minutes:
            first = number * SENTENCES_OF_PARAGRAPH % (len(sentences) - SENTENCES_OF_PARAGRAPH)
            text = " ".join(sentences[first : first + SENTENCES_OF_PARAGRAPH])
            spoken += visitor.speak(text, VOICES[number % len(VOICES)])["seconds"]
            while visitor.run("return !!document.querySelector('#takes .play[aria-pressed=true]')"):
                time.sleep(0.2)
            number += 1
            now = (time.monotonic() - started) / 60
            if now >= rows[-1]["minutes"] + every:
                rows.append({"minutes": round(now, 2), "spoken_minutes": round(spoken / 60, 2)} | memory.measure())
        visitor.run("for (const one of document.querySelectorAll(\"[aria-label='Remove this take']\")) one.click()")
        time.sleep(2)
        rows.append({"minutes": rows[-1]["minutes"], "spoken_minutes": round(spoken / 60, 2)} | memory.measure())
    return described | {"paragraphs": number, "rows": rows[:-1], "without_takes": rows[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measure", choices=("speed", "memory"))
    parser.add_argument("--site", type=Path, required=True, help="a folder that `marstts web` wrote")
    parser.add_argument("--visits", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=1.0, help="minutes between two measurements")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
    if given.measure == "speed":
        print_json(measure_speed(given.site, given.visits, given.sentences), given.output)
    else:
        print_json(measure_memory(given.site, given.minutes, given.every), given.output)


if __name__ == "__main__":
    main()
