"""Word times, measured: boundaries of mini's takes against forced alignment by pocketsphinx.

Usage: python tools/word_times.py [--sentences N] [--seed N] [--output JSON]

Sentences are held out from training (`word_sentences`). Prints one JSON object; needs the extra eval.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from pronunciations import add_pronunciations, pronounceable
from word_sentences import SpokenOnce, held_out_sentences, speak_sentences

from marstts.benchmark.report import gather_metadata, print_json
from marstts.metrics import sphinx
from marstts.metrics.words import plain_words
from marstts.synthesis.loading import load
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.words.attention_path import search_path
from marstts.synthesis.words.word_times import LAG_SECONDS, timed_spans

WIDE_BEAMS = {"beam": 1e-80, "wbeam": 1e-60, "pbeam": 1e-80}
"""pocketsphinx fails on one take of five with its usual beams."""


def boundaries(synthesizer: Synthesizer, count: int, seed: int) -> dict[str, Any]:
    """Distances of word boundaries from those of forced alignment, in seconds."""
    decoder = sphinx.new_decoder(**WIDE_BEAMS)
    starts, ends, skipped = [], [], 0
    takes = 0
    for spoken in speak_sentences(synthesizer, held_out_sentences(3 * count, seed), seed):
        aligned = align(decoder, synthesizer, spoken)
        found = timed_spans(search_path(spoken.places, spoken.generated.attention))
        if aligned is None or len(aligned) != len(found):
            skipped += 1
            continue
        step = 1.0 / synthesizer.codec.spec.patch_rate
        for (start, end), span in zip(aligned, found, strict=True):
            starts.append(max(0.0, span.start * step - LAG_SECONDS) - start)
            ends.append(span.end * step - LAG_SECONDS - end)
        takes += 1
        if takes == count:
            break
    both = np.abs([*starts, *ends])
    return {
        "takes": takes,
        "skipped": skipped,
        "words": len(starts),
        "start": describe(starts),
        "end": describe(ends),
        "median_error_seconds": round(float(np.median(both)), 4),
        "error_90_percent_seconds": round(float(np.quantile(both, 0.9)), 4),
    }


def align(decoder: Any, synthesizer: Synthesizer, spoken: SpokenOnce) -> list[tuple[float, float]] | None:
    """Start and end of every word by pocketsphinx; None where it knows no pronunciation or finds no path."""
    words = plain_words(spoken.text)
    if len(words) != len(spoken.places.words) or pronounceable(words) != words:
        return None
    add_pronunciations(decoder, words)
    pcm = sphinx.prepare(synthesizer.codec.decode(synthesizer.model.codes(spoken.generated.tokens, None, None)))  # type: ignore[arg-type]
    try:
        decoder.set_align_text(" ".join(words))
        sphinx.decode(decoder, pcm)
    except RuntimeError:
        return None
    found = [segment for segment in decoder.seg() or [] if segment.word[0] not in "<[+("]
    edge = sphinx.EDGE_SECONDS
    return [(segment.start_frame / 100 - edge, (segment.end_frame + 1) / 100 - edge) for segment in found]


def describe(errors: list[float]) -> dict[str, float]:
    """Bias, median and quantiles of errors in seconds."""
    size = np.abs(errors)
    values = {
        "bias": np.median(errors), "median": np.median(size), "p90": np.quantile(size, 0.9),
        "p95": np.quantile(size, 0.95),
    }  # fmt: skip
    return {name: round(float(value), 4) for name, value in values.items()}


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    started = time.perf_counter()
    result = boundaries(load("mini"), options.sentences, options.seed)
    command = f"python tools/word_times.py --seed {options.seed} --sentences {options.sentences}"
    report = {**gather_metadata(command, ["mini"]), "seconds": round(time.perf_counter() - started, 1), **result}
    print_json(report, options.output)


if __name__ == "__main__":
    main()
