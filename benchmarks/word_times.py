"""Word times and flaws, measured: boundaries against forced alignment, corrupted takes, and the cost of the guard.

Usage: python benchmarks/word_times.py boundaries|flaws|cost [--sentences N] [--seed N] [--output JSON]

Sentences are held out from training (`word_sentences`). `boundaries` aligns takes with pocketsphinx, an independent
tool. `flaws` corrupts the tokens of sound takes and computes the attention that the model pays while it continues them:
a word of at least two patches is cut out or doubled, or half a second to 1.2 s of another take follows the end. It also
speaks texts in which a word of four letters or more is missing or stands twice, and compares them with the whole text.
`cost`
speaks the same sentences with and without the guard in turn. Prints one JSON object; needs the extras train and eval.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from word_sentences import SpokenSentence, held_out_sentences, speak_sentences

from marstts.benchmark.machine import gather_metadata
from marstts.metrics import sphinx
from marstts.metrics.words import plain_words
from marstts.synthesis.attention_path import search_path
from marstts.synthesis.flaws import find_flaws
from marstts.synthesis.loading import load
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.word_times import LAG_SECONDS, timed_spans

MIN_WORD_PATCHES = 2
"""Shorter words are a patch, which cannot be cut without its neighbors."""

KINDS = ("sound", "cut", "doubled", "babble", "omitted in the text", "twice in the text")

WITH_OTHER_TEXTS = 100
"""Sentences that are also spoken without a word, and with one said twice."""

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


def align(decoder: Any, synthesizer: Synthesizer, spoken: SpokenSentence) -> list[tuple[float, float]] | None:
    """Start and end of every word by pocketsphinx; None where it knows no pronunciation or finds no path."""
    words = plain_words(spoken.text)
    if len(words) != len(spoken.places.words) or sphinx.pronounceable(words) != words:
        return None
    sphinx.add_pronunciations(decoder, words)
    pcm = sphinx.prepare(synthesizer.codec.decode(synthesizer.model.codes(spoken.tokens, None, None)))  # type: ignore[arg-type]
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


def flaws(synthesizer: Synthesizer, count: int, seed: int) -> dict[str, Any]:
    """Share of sound and corrupted takes that are flagged, and with which flaws."""
    from marstts.models import load_for_training

    model = load_for_training("mini")
    rng = random.Random(seed)
    texts = [text for text in held_out_sentences(2 * count, seed) if long_words(text)][: count + 60]
    sentences = speak_sentences(synthesizer, texts, seed)
    pairs = [(text, rng.choice(long_words(text))) for text in texts[:WITH_OTHER_TEXTS]]
    omitted = speak_sentences(synthesizer, [without(*pair) for pair in pairs], seed)
    repeated = speak_sentences(synthesizer, [twice(*pair) for pair in pairs], seed)
    flagged: dict[str, list[list[str]]] = {kind: [] for kind in KINDS}
    lengths: dict[int, list[bool]] = {}
    for index, spoken in enumerate(sentences):
        word = choose_word(spoken, synthesizer, rng)
        if word is None or len(flagged["sound"]) == count:
            continue
        first, last = word
        other = sentences[(index + 7) % len(sentences)].tokens
        tail = rng.randint(6, 14)
        begin = rng.randint(2, max(2, len(other) - tail))
        takes = {
            "sound": spoken.tokens,
            "cut": np.concatenate([spoken.tokens[:first], spoken.tokens[last:]]),
            "doubled": np.concatenate([spoken.tokens[:last], spoken.tokens[first:]]),
            "babble": np.concatenate([spoken.tokens, other[begin : begin + tail]]),
        }
        if index < len(pairs):
            takes |= {"omitted in the text": omitted[index].tokens, "twice in the text": repeated[index].tokens}
        for kind, tokens in takes.items():
            attention = continued_attention(model, spoken, tokens)
            step = 1.0 / synthesizer.codec.spec.patch_rate
            found = find_flaws(search_path(spoken.places, attention), spoken.text, step, tokens=tokens)
            flagged[kind].append(sorted({flaw.kind.value for flaw in found}))
            if kind == "cut":
                lengths.setdefault(min(last - first, 7), []).append(bool(found))
    return {
        "takes": {kind: len(found) for kind, found in flagged.items()},
        "flagged": {kind: round(float(np.mean([bool(one) for one in found])), 4) for kind, found in flagged.items()},
        "kinds": {kind: dict(Counter(name for one in found for name in one)) for kind, found in flagged.items()},
        "cut_by_patches": {
            str(length): {"takes": len(found), "flagged": round(float(np.mean(found)), 3)}
            for length, found in sorted(lengths.items())
        },
    }


def long_words(text: str) -> list[int]:
    """Indices of the words of four letters or more, but for the first and last."""
    words = text.split()
    return [index for index in range(1, len(words) - 1) if sum(map(str.isalpha, words[index])) >= 4]


def without(text: str, word: int) -> str:
    """The text without one of its words."""
    words = text.split()
    return " ".join(words[:word] + words[word + 1 :])


def twice(text: str, word: int) -> str:
    """The text with one of its words said twice."""
    words = text.split()
    return " ".join(words[: word + 1] + words[word:])


def choose_word(spoken: SpokenSentence, synthesizer: Synthesizer, rng: random.Random) -> tuple[int, int] | None:
    """First patch and last + 1 of a random word of at least two patches; None where the take has none."""
    lag = LAG_SECONDS * synthesizer.codec.spec.patch_rate
    spans = timed_spans(search_path(spoken.places, spoken.generated.attention))
    words = [(max(0, round(span.start - lag)), round(span.end - lag)) for span in spans]
    long = [word for word in words if word[1] - word[0] >= MIN_WORD_PATCHES and word[1] <= len(spoken.tokens)]
    return rng.choice(long) if long else None


def continued_attention(model: Any, spoken: SpokenSentence, tokens: np.ndarray) -> list[np.ndarray]:
    """Attention (S,) at every step of a model that is made to say `tokens`, and at the step after them."""
    import torch

    from marstts.mars6.prompt_batch import collate

    batch = collate([spoken.request.prompt])
    with torch.inference_mode():
        memory, mask = model.encode(
            *map(torch.as_tensor, (batch.text_ids, batch.text_lengths, batch.identity, batch.style))
        )
        x = model.global_decoder.embed(torch.as_tensor(tokens[None]))
        _, _, attention = model.global_decoder.prefill(x, model.global_decoder.project_kv(memory), mask)
    return list(attention[0, :, model.num_slots :].numpy())


def cost(synthesizer: Synthesizer, count: int, seed: int) -> dict[str, Any]:
    """Seconds of processor that a batch takes with guard and word times, and without; medians of rounds."""
    from dataclasses import replace

    texts = held_out_sentences(count, seed)
    plain = replace(synthesizer, model=replace(synthesizer.model, engine=WithoutAttention(synthesizer.engine)))
    seconds: dict[str, list[float]] = {"with": [], "without": []}
    codes: dict[str, list[bytes]] = {}
    for _ in range(7):
        for name, one in (("with", synthesizer), ("without", plain)):
            started = time.process_time()
            takes = [take for result in one.speak_many(texts) for take in result.speech.takes]
            seconds[name].append(time.process_time() - started)
            codes[name] = sorted(np.concatenate(take.codes).tobytes() for take in takes)
    ratio = [with_guard / without for with_guard, without in zip(seconds["with"], seconds["without"], strict=True)]
    return {
        "sentences": count,
        "seconds": {name: round(statistics.median(values), 3) for name, values in seconds.items()},
        "ratio": round(statistics.median(ratio), 4),
        "ratio_of_minima": round(min(seconds["with"]) / min(seconds["without"]), 4),
        "same_codes": codes["with"] == codes["without"],
    }


class WithoutAttention:
    """An engine whose attention nobody sees."""

    def __init__(self, engine: Any) -> None:
        self.layout, self.config = engine.layout, engine.config
        self.start, self.append, self.select, self.join = engine.start, engine.append, engine.select, engine.join
        self.next_logits, self.sample_patch = engine.next_logits, engine.sample_patch


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["boundaries", "flaws", "cost"])
    parser.add_argument("--sentences", type=int, default=0, help="default: 100, 300 or 24")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    measure, usual = {"boundaries": (boundaries, 100), "flaws": (flaws, 300), "cost": (cost, 24)}[options.what]
    started = time.perf_counter()
    result = measure(load("mini"), options.sentences or usual, options.seed)
    report = {
        **gather_metadata(f"python benchmarks/word_times.py {options.what} --seed {options.seed}"),
        "seconds": round(time.perf_counter() - started, 1),
        **result,
    }
    text = json.dumps(report, indent=1)
    print(text)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
