"""Word times and flaws, measured: boundaries against forced alignment, corrupted takes, and the cost of the guard.

Usage: python tools/word_times.py boundaries|flaws|cost [--sentences N] [--first N] [--seed N] [--output JSON]

Sentences are held out from training (`word_sentences`). `boundaries` aligns takes with pocketsphinx, an independent
tool. `flaws` corrupts the tokens of sound takes and makes the model say them: a word of at least two patches is cut out
or doubled, or half a second to 1.2 s of another take follows the end. It also speaks texts in which a word of four
letters or more is missing or stands twice, and compares them with the whole text. `cost` speaks the same sentences with
and without the guard in turn. Prints one JSON object; `boundaries` needs the extra eval.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from word_sentences import held_out_sentences, packaged_voices, speak_sentences

from marstts.benchmark.machine import gather_metadata
from marstts.metrics import sphinx
from marstts.metrics.words import plain_words
from marstts.synthesis.attention_path import search_path
from marstts.synthesis.forced_takes import SpokenSentence, forced_rows, said_words
from marstts.synthesis.loading import load
from marstts.synthesis.omissions import OmissionCheck
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.word_times import LAG_SECONDS, timed_spans

MIN_WORD_PATCHES = 2
"""Shorter words are a patch, which cannot be cut without its neighbors."""

CHECKS = ("single", "one of several")
"""A take that is spoken alone, and one that is compared with others."""

KINDS = ("sound", "cut", "doubled", "babble", "omitted in the text", "twice in the text")

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


def flaws(
    synthesizer: Synthesizer, count: int, seed: int, first: int = 0, texts: bool = True, is_thorough: bool = True
) -> list[dict[str, Any]]:
    """Flaws that are found in the takes of each sentence, sound and corrupted, from sentence `first` on.

    Each is checked as a single take is, and, if `is_thorough`, as one of several is.
    `texts`: also takes of other texts.
    """
    thorough = replace(synthesizer, omission_check=OmissionCheck.ALL_WORDS)
    rng, voices = random.Random(seed + first), packaged_voices(synthesizer)
    chosen = [text for text in held_out_sentences(3 * (first + count), seed) if long_words(text)][first : first + count]
    sentences = speak_sentences(synthesizer, chosen, seed + first)
    pairs = [(text, rng.choice(long_words(text))) for text in chosen]
    others = {
        name: speak_sentences(synthesizer, [edit(*pair) for pair in pairs], seed + first)
        for name, edit in (("omitted in the text", without), ("twice in the text", twice))
        if texts
    }
    found = []
    for index, spoken in enumerate(sentences):
        word = choose_word(spoken, synthesizer, rng)
        if word is None:
            continue
        takes = corrupt_takes(spoken.tokens, word, sentences[(index + 7) % len(sentences)].tokens, rng)
        takes |= {name: spoken_texts[index].tokens for name, spoken_texts in others.items()}
        kinds: dict[str, list[str]] = {}
        thorough_kinds: dict[str, list[str]] = {}
        for kind, row in zip(takes, forced_rows(synthesizer, spoken, list(takes.values())), strict=True):
            search = search_path(spoken.places, row.attention)
            waveform = synthesizer.decode(synthesizer.model.codes(takes[kind]), voices[index % len(voices)])
            kinds[kind] = sorted({flaw.kind.value for flaw in synthesizer.take_flaws(search, row, waveform)})
            if is_thorough:
                thorough_kinds[kind] = sorted({flaw.kind.value for flaw in thorough.take_flaws(search, row, waveform)})
        checks = {"single": kinds} | ({"one of several": thorough_kinds} if is_thorough else {})
        found.append({"text": spoken.text, "patches": word[1] - word[0], **checks})
    return found


def corrupt_takes(
    tokens: np.ndarray, word: tuple[int, int], other: np.ndarray, rng: random.Random
) -> dict[str, np.ndarray]:
    """The take (T, P), and it with the word cut out, with the word doubled, and followed by some of another take."""
    start, end = word
    tail = rng.randint(6, 14)
    begin = rng.randint(2, max(2, len(other) - tail))
    return {
        "sound": tokens,
        "cut": np.concatenate([tokens[:start], tokens[end:]]),
        "doubled": np.concatenate([tokens[:end], tokens[start:]]),
        "babble": np.concatenate([tokens, other[begin : begin + tail]]),
    }


def summarize_flaws(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of takes that are flagged by both checks, by kind of take and by length of the word that was cut out."""
    checks = [check for check in CHECKS if any(check in one for one in found)]
    return {"sentences": len(found), **{check: summarize_check(found, check) for check in checks}}


def summarize_check(found: list[dict[str, Any]], check: str) -> dict[str, Any]:
    """The same for one of the checks, of the takes that it was given."""
    found = [one for one in found if check in one]
    lengths: dict[int, list[bool]] = {}
    for one in found:
        lengths.setdefault(min(one["patches"], 7), []).append(bool(one[check]["cut"]))
    by_kind = {kind: [one[check][kind] for one in found if kind in one[check]] for kind in KINDS}
    by_kind = {kind: each for kind, each in by_kind.items() if each}
    return {
        "takes": {kind: len(each) for kind, each in by_kind.items()},
        "flagged": {kind: round(float(np.mean([bool(one) for one in each])), 4) for kind, each in by_kind.items()},
        "kinds": {kind: dict(Counter(name for one in each for name in one)) for kind, each in by_kind.items()},
        "cut_by_patches": {
            str(patches): {"takes": len(each), "flagged": round(float(np.mean(each)), 3)}
            for patches, each in sorted(lengths.items())
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
    long = [word for word in said_words(synthesizer, spoken) if word[1] - word[0] >= MIN_WORD_PATCHES]
    return rng.choice(long) if long else None


def cost(synthesizer: Synthesizer, count: int, seed: int, rounds: int = 7) -> dict[str, Any]:
    """Seconds that sentences take with guard and word times, and without, in turn: in a batch, and one by one."""
    texts = held_out_sentences(count, seed)
    plain = replace(synthesizer, model=replace(synthesizer.model, engine=WithoutAttention(synthesizer.engine)))
    speakers = {"with": synthesizer, "without": plain}
    codes: dict[str, list[bytes]] = {}
    for name, one in speakers.items():
        takes = [take for result in one.speak_many(texts) for take in result.speech.takes]
        codes[name] = sorted(np.concatenate(take.codes).tobytes() for take in takes)
    in_batch = measure_in_turn(
        {name: lambda one=one: list(one.speak_many(texts)) for name, one in speakers.items()}, rounds
    )
    alone = measure_in_turn(
        {name: lambda one=one: [one.speak(text) for text in texts[:8]] for name, one in speakers.items()}, rounds
    )
    return {
        "sentences": count,
        "in_batch": in_batch,
        "one_by_one": {"sentences": min(8, count), **alone},
        "same_codes": codes["with"] == codes["without"],
    }


def measure_in_turn(speakers: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Any]:
    """Least seconds of processor and of the clock that each takes, and their ratios; the first round is not kept."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in speakers}
    for number in range(rounds + 1):
        for name, speak in sorted(
            speakers.items(), reverse=bool(number % 2)
        ):  # each is the first in half of the rounds
            started = time.process_time(), time.perf_counter()
            speak()
            found[name].append((time.process_time() - started[0], time.perf_counter() - started[1]))
    kinds: dict[str, Any] = {}
    for index, kind in enumerate(("processor", "clock")):
        seconds = {name: np.array([one[index] for one in values[1:]]) for name, values in found.items()}
        kinds[kind] = {
            "seconds": {name: round(float(values.min()), 3) for name, values in seconds.items()},
            "ratio_of_minima": round(float(seconds["with"].min() / seconds["without"].min()), 4),
            "median_ratio": round(float(np.median(seconds["with"] / seconds["without"])), 4),
        }
    return kinds


class WithoutAttention:
    """An engine whose attention nobody sees: it has the methods of the other protocols in its class, which is asked."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.layout, self.config = engine, engine.layout, engine.config
        self.start, self.append, self.select, self.join = engine.start, engine.append, engine.select, engine.join
        self.next_logits, self.can_start_concurrently = engine.next_logits, engine.can_start_concurrently

    def sample_patch(self, state: Any, inputs: Any) -> Any:
        """Sample as the engine does."""
        return self.engine.sample_patch(state, inputs)

    def keep_rows(self, state: Any, rows: Any) -> Any:
        """Keep rows as the engine does."""
        return self.engine.keep_rows(state, rows)


def flaws_in_pieces(synthesizer: Synthesizer, options: argparse.Namespace) -> dict[str, Any]:
    """Measure `flaws` of some sentences, and summarize them with those in the file `pieces`, where they are kept."""
    pieces: Path | None = options.pieces
    found = json.loads(pieces.read_text()) if pieces is not None and pieces.exists() else []
    found += flaws(
        synthesizer,
        options.sentences or 300,
        options.seed,
        options.first,
        not options.without_texts,
        not options.single,
    )
    if pieces is not None:
        pieces.write_text(json.dumps(found))
    return summarize_flaws(found)


def describe_options(options: argparse.Namespace) -> str:
    """The options that decide the result, as in the command."""
    found = [f"--seed {options.seed}", *([f"--sentences {options.sentences}"] if options.sentences else [])]
    if options.what == "cost":
        found.append(f"--rounds {options.rounds}")
    if options.what == "flaws":
        found += [f"--first {options.first}", *(["--without-texts"] if options.without_texts else [])]
        found += ["--single"] if options.single else []
    return " ".join(found)


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["boundaries", "flaws", "cost"])
    parser.add_argument("--sentences", type=int, default=0, help="default: 100, 300 or 24")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="flaws: number of the first sentence")
    parser.add_argument("--pieces", type=Path, help="flaws: a file that keeps the results of earlier calls")
    parser.add_argument("--without-texts", action="store_true", help="flaws: leave out takes of other texts")
    parser.add_argument("--single", action="store_true", help="flaws: only the check of a single take")
    parser.add_argument("--rounds", type=int, default=7, help="cost: rounds that are kept")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    usual = {"boundaries": 100, "flaws": 300, "cost": 24}[options.what]
    started = time.perf_counter()
    if options.what == "flaws":
        result = flaws_in_pieces(load("mini"), options)
    elif options.what == "cost":
        result = cost(load("mini"), options.sentences or usual, options.seed, options.rounds)
    else:
        result = boundaries(load("mini"), options.sentences or usual, options.seed)
    report = {
        **gather_metadata(f"python tools/word_times.py {options.what} {describe_options(options)}"),
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
