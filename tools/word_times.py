"""Word times and flaws, measured: words of a model's takes against forced alignment by pocketsphinx.

Usage: python tools/word_times.py [--model FOLDER] [--short N] [--long N] [--seeds S ...] [--recordings FILE ...]
                                  [--plants N] [--split test|validation] [--output JSON]

Sentences are held out from training: short ones of 2 to 6 words, long ones of 7 to 20. Four packaged voices and clones
of the recordings speak them in turn, once each, without backoff. An accusation is false where the alignment is worse
without the word (or with it twice). Planted flaws are patches of a take that are removed, repeated, or cut off in the
last word. Prints one JSON object; needs the extra eval.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pronunciations import add_pronunciations, pronounceable
from word_sentences import SpokenOnce, sentences_of_length, speak_once

from marstts.audio import Waveform, audible_span
from marstts.generation.request import RequestState, StopReason
from marstts.synthesis.loading import load
from marstts.synthesis.speech import EDGE_BELOW_PEAK_DB, MAX_TAIL_SECONDS, Take
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.words.flaws import FlawKind
from marstts.synthesis.words.written_forms import SpokenSegment, WrittenForm
from marstts.voice import Voice
from marstts_lab.benchmark.report import gather_metadata, print_json
from marstts_lab.metrics import sphinx
from marstts_lab.metrics.words import plain_words

WIDE_BEAMS = {"beam": 1e-80, "wbeam": 1e-60, "pbeam": 1e-80}
"""pocketsphinx fails on one take of five with its usual beams."""

VOICES = ("ada", "alan", "linda", "ross")

SHORT_WORDS, LONG_WORDS = (2, 6), (7, 20)

MIN_SECONDS = 0.03
"""Words that are shorter than this are counted."""

MIN_PLANTED_LETTERS, MIN_PLANTED_SECONDS = 4, 0.2


class Aligner:
    """pocketsphinx with a text to align."""

    def __init__(self) -> None:
        self._decoder = sphinx.new_decoder(**WIDE_BEAMS)

    def align(self, words: Sequence[str], pcm: bytes) -> list[tuple[float, float]] | None:
        """Start and end of every word; None where there is no path."""
        if self.score(words, pcm) is None:
            return None
        found = [segment for segment in self._decoder.seg() or [] if segment.word[0] not in "<[+("]
        edge = sphinx.EDGE_SECONDS
        times = [(max(0.0, one.start_frame / 100 - edge), (one.end_frame + 1) / 100 - edge) for one in found]
        return times if len(times) == len(words) else None

    def score(self, words: Sequence[str], pcm: bytes) -> float | None:
        """How well the words fit; None where there is no path."""
        add_pronunciations(self._decoder, list(words))
        try:
            self._decoder.set_align_text(" ".join(words))
            sphinx.decode(self._decoder, pcm)
        except RuntimeError:
            return None
        hypothesis = self._decoder.hyp()
        return None if hypothesis is None else float(hypothesis.score)

    def is_flawed(self, words: Sequence[str], pcm: bytes, kind: FlawKind, index: int) -> bool:
        """Whether the take fits at least as well without a word, or with it twice."""
        twice = [words[index], words[index]] if kind in (FlawKind.REPEATED, FlawKind.LOOP) else []
        other = [*words[:index], *twice, *words[index + 1 :]]
        fits, fits_other = self.score(words, pcm), self.score(other, pcm) if other else None
        return fits is None or (fits_other is not None and fits_other >= fits)


@dataclass(frozen=True, eq=False)
class Measured:
    """A take and where its words are by forced alignment."""

    spoken: SpokenOnce
    row: RequestState
    whole: Waveform
    """Its audio from the first step."""
    take: Take
    pcm: bytes
    words: list[str]
    times: list[tuple[float, float]]
    """Seconds from the first step."""

    @property
    def segment(self) -> SpokenSegment:
        """The sentence with its words as their own written forms."""
        return segment_of(self.spoken)


def segment_of(spoken: SpokenOnce) -> SpokenSegment:
    """A sentence with its words as their own written forms."""
    words = [spoken.places.places[index] for index in spoken.places.words]
    forms = tuple(WrittenForm(spoken.text[word.start : word.end], word.start, word.end) for word in words)
    return SpokenSegment(text=spoken.text, forms=forms)


def measure(
    synthesizer: Synthesizer, texts: Sequence[str], voices: Sequence[Voice], seed: int, aligner: Aligner
) -> list[Measured]:
    """Speak and align sentences; those without an alignment are left out."""
    found = []
    for index, spoken in enumerate(speak_once(synthesizer, texts, voices, seed)):
        made = spoken.generated
        row = RequestState(spoken.request, (), tuple(made.tokens), made.attention, made.stop)
        voice = voices[index % len(voices)]
        whole = synthesizer.session.decode(synthesizer.session.codes_of(row), voice)
        words, pcm = plain_words(spoken.text), sphinx.prepare(whole)
        times = aligner.align(words, pcm)
        if times is not None and len(times) == len(spoken.places.words):
            followed = synthesizer.session.follow(segment_of(spoken), spoken.request)
            take = synthesizer.session.decode_take(followed, row, voice, (synthesizer.session.codes_of(row), whole))
            found.append(Measured(spoken, row, whole, take, pcm, words, times))
    return found


def boundaries(measured: Sequence[Measured], aligner: Aligner) -> dict[str, Any]:
    """Errors of word boundaries in seconds, and the words that are too short."""
    starts, ends, last_starts, last_ends, brief, skipped = [], [], [], [], [], 0
    for one in measured:
        found = times_from_first_step(one)
        for index, ((start, end), aligned) in enumerate(zip(found, one.times, strict=True)):
            if end - start < MIN_SECONDS:
                if aligner.is_flawed(one.words, one.pcm, FlawKind.SKIPPED, index):
                    skipped += 1
                    continue
                brief.append(f"{one.words[index]}: {one.spoken.text}")
            starts.append(start - aligned[0])
            ends.append(end - aligned[1])
        last_starts.append(starts[-1])
        last_ends.append(ends[-1])
    return {
        "takes": len(measured), "words": len(starts), "all": describe([*starts, *ends]), "starts": describe(starts),
        "ends": describe(ends), "last_starts": describe(last_starts), "last_ends": describe(last_ends),
        "shorter_than_30_ms": brief, "truly_skipped": skipped,
    }  # fmt: skip


def times_from_first_step(one: Measured) -> list[tuple[float, float]]:
    """Start and end of each word in seconds from the first step; none has a duration after the last that was said."""
    assert one.take.words is not None
    first, _ = audible_span(one.whole, below_peak_db=EDGE_BELOW_PEAK_DB, max_tail_seconds=MAX_TAIL_SECONDS)
    trimmed = first / one.whole.sample_rate
    known = [(word.start + trimmed, word.end + trimmed) for word in one.take.words]
    end = known[-1][1] if known else 0.0
    return known + [(end, end)] * (len(one.times) - len(known))


def accusations(measured: Sequence[Measured], aligner: Aligner) -> dict[str, Any]:
    """Takes that are called flawed, and those where the alignment disagrees."""
    accused, false, kinds = 0, [], Counter[str]()
    for one in measured:
        if not one.take.flaws:
            continue
        accused += 1
        indices = [(flaw, index_of(one, flaw.word)) for flaw in one.take.flaws]
        if not any(
            index is not None and aligner.is_flawed(one.words, one.pcm, flaw.kind, index) for flaw, index in indices
        ):
            false.append(f"{one.take.flaws[0]}: {one.spoken.text}")
            kinds.update({flaw.kind.value for flaw in one.take.flaws})
    return {
        "takes": len(measured), "accused": accused, "falsely": len(false),
        "false_ratio": round(len(false) / max(1, len(measured)), 4), "kinds": dict(kinds), "examples": false,
    }  # fmt: skip


def index_of(one: Measured, word: str) -> int | None:
    """The number of a word in its sentence; the last one of several."""
    texts = [form.written for form in one.segment.forms]
    return len(texts) - 1 - texts[::-1].index(word) if word in texts else None


def plants(
    synthesizer: Synthesizer, measured: Sequence[Measured], voices: Sequence[Voice], count: int
) -> dict[str, Any]:
    """Planted flaws that are found, by kind."""
    found, planted, missed = Counter[str](), Counter[str](), []
    kinds = ("dropped", "repeated", "cut")
    for number, one in enumerate(one for one in measured if not one.take.flaws):
        if planted.total() == count:
            break
        kind = kinds[number % len(kinds)]
        row = plant(synthesizer, one, kind, np.random.default_rng(number))
        if row is None:
            continue
        voice = voices[0]  # whose timbre does not matter
        take = synthesizer.session.decode_take(synthesizer.session.follow(one.segment, row.request), row, voice)
        planted[kind] += 1
        found[kind] += bool(take.flaws)
        if not take.flaws:
            missed.append(f"{kind}: {one.spoken.text}")
    return {
        "planted": planted.total(), "found": found.total(),
        "found_ratio": round(found.total() / max(1, planted.total()), 3),
        "by_kind": {kind: f"{found[kind]} of {planted[kind]}" for kind in kinds}, "missed": missed,
    }  # fmt: skip


def plant(synthesizer: Synthesizer, one: Measured, kind: str, rng: np.random.Generator) -> RequestState | None:
    """The take with a word's patches removed or repeated, or ended in the last word; None where no word is fit."""
    fit = [
        index
        for index, (start, end) in enumerate(one.times)
        if len(one.words[index]) >= MIN_PLANTED_LETTERS and end - start >= MIN_PLANTED_SECONDS
    ]
    rate, size = synthesizer.session.codec.spec.patch_rate, len(one.row.patches)
    if kind == "cut":
        start, end = one.times[-1]
        steps = list(range(max(1, round((start + end) / 2 * rate))))
        attended = [*steps, min(len(steps), len(one.row.attention) - 1)]
    else:
        if not fit:
            return None
        start, end = one.times[int(rng.choice(fit))]
        first = round(start * rate)
        last = min(max(round(end * rate), first + 1), size)
        steps = [*range(first if kind == "dropped" else last), *range(last if kind == "dropped" else first, size)]
        attended = [*steps, *range(size, len(one.row.attention))]
    patches = tuple(one.row.patches[step] for step in steps if step < size)
    return replace(
        one.row, patches=patches, attention=tuple(one.row.attention[step] for step in attended), stop=StopReason.EOS
    )


def describe(errors: Sequence[float]) -> dict[str, float]:
    """Bias, median and quantiles of errors in seconds."""
    if not len(errors):
        return {}
    size = np.abs(errors)
    values = {
        "bias": np.median(errors), "median": np.median(size), "p90": np.quantile(size, 0.9),
        "p95": np.quantile(size, 0.95),
    }  # fmt: skip
    return {name: round(float(value), 4) for name, value in values.items()}


def speakable(text: str) -> bool:
    """Whether the aligner knows the words of a sentence, one for each that is written."""
    words = plain_words(text)
    return len(words) == len(text.split()) and pronounceable(words) == words


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--short", type=int, default=200)
    parser.add_argument("--long", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--recordings", type=Path, nargs="*", default=[], help="recordings to clone")
    parser.add_argument("--plants", type=int, default=100)
    parser.add_argument("--split", choices=("test", "validation"), default="test", help="constants were tuned on test")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    started = time.perf_counter()
    synthesizer, aligner = load(options.model), Aligner()
    voices = [synthesizer.open_voice(name) for name in VOICES]
    voices += [synthesizer.clone(recording) for recording in options.recordings]
    result: dict[str, Any] = {}
    everything: list[Measured] = []
    for name, count, lengths in (("short", options.short, SHORT_WORDS), ("long", options.long, LONG_WORDS)):
        texts = sentences_of_length(count, *lengths, is_fit=speakable, split=options.split)
        measured = [one for seed in options.seeds for one in measure(synthesizer, texts, voices, seed, aligner)]
        if measured:
            result[name] = boundaries(measured, aligner)
        everything += measured
    result["accusations"] = accusations(everything, aligner)
    result["plants"] = plants(synthesizer, everything, voices, options.plants)
    seeds = " ".join(map(str, options.seeds))
    command = (
        f"python tools/word_times.py --short {options.short} --long {options.long} --seeds {seeds} "
        f"--plants {options.plants} --split {options.split}"
        + (f" --recordings ({len(options.recordings)})" if options.recordings else "")
    )
    report = {**gather_metadata(command, ["mini"]), "seconds": round(time.perf_counter() - started, 1), **result}
    print_json(report, options.output)


if __name__ == "__main__":
    main()
