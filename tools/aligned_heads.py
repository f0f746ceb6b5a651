"""Aligned heads, chosen by their word times: which heads' attention agrees best with forced alignment.

Usage: python tools/aligned_heads.py BUNDLE [--short N] [--long N] [--seed S] [--most N] [--write] [--output JSON]

Packaged voices speak held-out sentences, short and long ones. A pass of the model over its own patches gives the
attention of every head. Beginning with none, the head is added that lowers the error most (the 90 % quantile of the
last words' boundaries, plus that of all), until none does. `--write` names the heads in the bundle and writes its
graphs again. Choose them whenever the weights change. Needs the extras train and eval.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from word_sentences import sentences_of_length
from word_times import LONG_WORDS, SHORT_WORDS, VOICES, Aligner, Measured, measure, speakable

from marstts.io.config import write_config
from marstts.mars6.aligned_heads import forced_attention
from marstts.mars6.bundled import WEIGHTS_FILE, load_model
from marstts.mars6.export.decoder_graphs import write_decoder_graphs
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Mars6Prompt
from marstts.synthesis.loading import load
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.words.attention_path import search_path
from marstts.synthesis.words.word_times import LAG_SECONDS, timed_spans
from marstts_lab.benchmark.report import gather_metadata, print_json

Head = tuple[int, int]

MISSED_SECONDS = 0.3
"""Error of a word that the path passes over."""

MIN_GAIN = 0.001
"""Seconds by which another head must lower the error."""


def error_of(
    synthesizer: Synthesizer,
    measured: Sequence[Measured],
    attention: Sequence[NDArray[np.float32]],
    heads: Sequence[Head],
) -> float:
    """Seconds of error of the word times by the mean of some heads, attention (L, H, T, S) of each take."""
    step = 1.0 / synthesizer.session.codec.spec.patch_rate
    every: list[float] = []
    last: list[float] = []
    for one, layers in zip(measured, attention, strict=True):
        followed = synthesizer.session.follow(one.segment, one.row.request)
        followed.finish(one.row, one.whole)
        known = followed.search
        assert known is not None
        steps = list(np.mean([layers[layer, head] for layer, head in heads], axis=0))
        search = search_path(one.spoken.places, steps, known.audible[: len(steps)])
        spans = {span.first_character: span for span in timed_spans(search)}
        for index, aligned in zip(one.spoken.places.words, one.times, strict=True):
            span = spans.get(one.spoken.places.places[index].start)
            found = None if span is None else (span.start * step - LAG_SECONDS, span.end * step - LAG_SECONDS)
            errors = [MISSED_SECONDS] * 2 if found is None else np.abs(np.subtract(found, aligned)).tolist()
            every += errors
            if index == one.spoken.places.words[-1]:
                last += errors
    return float(np.quantile(every, 0.9) + np.quantile(last, 0.9))


def choose(
    synthesizer: Synthesizer, measured: Sequence[Measured], attention: Sequence[NDArray[np.float32]], most: int
) -> tuple[list[Head], float]:
    """The heads that agree best with forced alignment, and their error."""
    shape = attention[0].shape[:2]
    left = [(layer, head) for layer in range(shape[0]) for head in range(shape[1])]
    chosen: list[Head] = []
    best = float("inf")
    while left and len(chosen) < most:
        errors = {head: error_of(synthesizer, measured, attention, [*chosen, head]) for head in left}
        head = min(errors, key=lambda one: errors[one])
        if errors[head] > best - MIN_GAIN:
            break
        best = errors[head]
        chosen.append(head)
        left.remove(head)
    return sorted(chosen), float(best)


def attention_of(model: Mars6, measured: Sequence[Measured]) -> list[NDArray[np.float32]]:
    """Attention (L, H, T, S) of all heads to the text, of takes that the model made."""
    return [
        forced_attention(model, cast(Mars6Prompt, one.row.request.prompt), np.stack(one.row.patches))
        for one in measured
    ]


def name_heads(model: Mars6, folder: Path, heads: Sequence[Head]) -> None:
    """Write the heads into the configuration and the graphs of a model's folder."""
    config = model.config.model_copy(update={"aligned_heads": tuple(heads)})
    write_config(config, folder / "config.json")
    write_decoder_graphs(config, folder, WEIGHTS_FILE)


def main() -> None:
    """Parse, choose, and write where that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, help="folder of a bundle")
    parser.add_argument("--short", type=int, default=60)
    parser.add_argument("--long", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=4, help="heads at most")
    parser.add_argument("--write", action="store_true", help="change the bundle")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    started = time.perf_counter()
    torch.set_num_threads(1)
    synthesizer, aligner = load(options.bundle), Aligner()
    model = load_model(options.bundle / "mars6")
    voices = [synthesizer.open_voice(name) for name in VOICES]
    texts = [
        text
        for count, lengths in ((options.short, SHORT_WORDS), (options.long, LONG_WORDS))
        for text in sentences_of_length(count, *lengths, is_fit=speakable, split="validation")
    ]
    measured = measure(synthesizer, texts, voices, options.seed, aligner)
    attention = attention_of(model, measured)
    heads, error = choose(synthesizer, measured, attention, options.most)
    now: list[Head] = [(layer, head) for layer, head in model.config.aligned_heads]
    report: dict[str, Any] = {
        **gather_metadata(f"python tools/aligned_heads.py BUNDLE --short {options.short} --long {options.long}"),
        "seconds": round(time.perf_counter() - started, 1), "takes": len(measured),
        "heads_before": now, "error_before": round(error_of(synthesizer, measured, attention, now), 4) if now else None,
        "heads": heads, "error": round(error, 4),
    }  # fmt: skip
    print_json(report, options.output)
    if options.write:
        name_heads(model, options.bundle / "mars6", heads)


if __name__ == "__main__":
    main()
