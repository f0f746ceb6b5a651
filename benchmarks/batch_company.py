"""Tokens of the same requests in different batches: alone, in pairs, all together, parked, prompts encoded in one call.

    python benchmarks/batch_company.py --model mini --output docs/results/server/company.json

Every run has new requests of the same texts and seeds. Written is how many of them got the tokens that they get in a
batch of all, whose prompts are encoded one by one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from serve_bars import TEXTS, describe

from marstts.generation.priority_scheduler import PriorityScheduler
from marstts.generation.request import RequestState
from marstts.synthesis.loading import load
from marstts.synthesis.sentence import Attempt
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.segments import Segment

REQUESTS = 24


def tokens_of(
    synthesizer: Synthesizer,
    rows: int,
    *,
    is_reversed: bool = False,
    together: bool = False,
    priority: Callable[[RequestState | None], float] | None = None,
) -> list[bytes]:
    """Tokens of all requests, made in a batch of at most `rows`."""
    engine, voice, made = synthesizer.engine, synthesizer.open_voice("ada"), {}
    top_p = synthesizer.sampling.top_p
    requests = [
        synthesizer.request(Attempt(segment=Segment(text=TEXTS[number % len(TEXTS)]), top_p=top_p, seed=(number, 0)), voice)
        for number in range(REQUESTS)
    ]
    scheduler = PriorityScheduler(engine, rows)
    for request in reversed(requests) if is_reversed else requests:
        state = None if together else engine.start([request.prompt])
        scheduler.add(request, priority=priority, state=state)
    while scheduler.is_busy:
        for row in scheduler.step():
            if row.stop is not None:
                made[row.request] = np.stack(row.patches).tobytes()
    return [made[request] for request in requests]


RNG = np.random.default_rng(1)


def random_priority(row: RequestState | None) -> float:
    """Give a row another priority each time, so that it is parked again and again."""
    return float(RNG.random())


def main() -> None:
    """Measure all, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", default=["mini"])
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    names = [Path(model).name for model in options.model]
    report = describe(["benchmarks/batch_company.py", "--model", *names]) | {"requests": REQUESTS}
    for model in options.model:
        synthesizer = load(model)
        expected = tokens_of(synthesizer, REQUESTS)
        runs = {
            "1 row": tokens_of(synthesizer, 1),
            "2 rows": tokens_of(synthesizer, 2),
            "3 rows": tokens_of(synthesizer, 3),
            "all, in reverse order": tokens_of(synthesizer, REQUESTS, is_reversed=True),
            "4 rows, parked at random": tokens_of(synthesizer, 4, priority=random_priority),
            "all, prompts encoded together": tokens_of(synthesizer, REQUESTS, together=True),
        }
        same = {name: sum(a == b for a, b in zip(run, expected, strict=True)) for name, run in runs.items()}
        report[Path(model).name] = same
        print(model, same)
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
