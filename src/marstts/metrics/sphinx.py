"""pocketsphinx for the metrics: decoders and pronunciations, the test of minimal pairs, and forced alignment.

Upstream: takes, as waveforms.  Downstream: `recognition`, `annotations`, `take_metrics`.

pocketsphinx (BSD) contains its acoustic model, dictionary (CMUdict) and language model. Its absolute scores mix accent
and channel with intelligibility: compare systems on the same sentences and references only.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from marstts.audio import Waveform, resample
from marstts.errors import require
from marstts.io.hash_order import hash_order
from marstts.metrics import sphinx

SAMPLE_RATE = 16000
LEVEL_RMS = 0.08
"""Takes are normalized to -22 dBFS, so that loudness does not affect word scores."""

EDGE_SECONDS = 0.15
"""Near-silence added before and after a take, which the decoder needs to start and end."""

NOISE_RMS = 1e-4
"""Noise at -80 dBFS under everything: digital silence has no logarithm."""

FLITE_TO_CMU = {"ax": "AH", "axr": "ER", "dx": "T", "el": "L", "em": "M", "en": "N"}


def model_path(name: str) -> str:
    """Path of a file inside the pocketsphinx package."""
    return str(require("pocketsphinx", "eval").get_model_path(name))


def new_decoder(**settings: Any) -> Any:
    """A US English decoder without log output; without `lm` it needs a grammar or a text to align."""
    pocketsphinx = require("pocketsphinx", "eval")
    files = {"hmm": model_path("en-us/en-us"), "dict": model_path("en-us/cmudict-en-us.dict"), "lm": None}
    return pocketsphinx.Decoder(**{**files, "loglevel": "FATAL", **settings})


def prepare(waveform: Waveform) -> bytes:
    """16-bit PCM at 16 kHz, normalized, with near-silence at both ends; deterministic."""
    samples = resample(waveform, SAMPLE_RATE).samples
    rms, peak = np.sqrt(np.mean(np.square(samples))), np.abs(samples).max()
    samples = samples * min(LEVEL_RMS / max(rms, 1e-9), 0.98 / max(peak, 1e-9))
    padded = np.pad(samples, round(EDGE_SECONDS * SAMPLE_RATE))
    padded = padded + NOISE_RMS * np.random.default_rng(0).standard_normal(len(padded))
    return (np.clip(padded, -1.0, 1.0) * 32767).astype("<i2").tobytes()


def decode(decoder: Any, pcm: bytes) -> None:
    """Run one utterance through the decoder; its `hyp()` and `seg()` then hold the outcome.

    The cepstral mean of earlier utterances is reset first: a score must not depend on what was scored before.
    """
    decoder.reinit_feat()
    decoder.start_utt()
    decoder.process_raw(pcm, full_utt=True)
    decoder.end_utt()


def decoded_words(decoder: Any) -> list[str]:
    """Words of the last hypothesis in the dictionary's spelling, pronunciation variants ("the(2)") merged."""
    hypothesis = decoder.hyp()
    return [] if hypothesis is None else [base_form(word) for word in hypothesis.hypstr.split()]


def base_form(word: str) -> str:
    """A dictionary entry without the number of its pronunciation variant."""
    return re.sub(r"\(\d+\)$", "", word)


@lru_cache(maxsize=1)
def dictionary() -> dict[str, tuple[str, ...]]:
    """First pronunciation of each of CMUdict's 134,860 words, e.g. {"house": ("HH", "AW", "S")}."""
    entries: dict[str, tuple[str, ...]] = {}
    for line in Path(model_path("en-us/cmudict-en-us.dict")).read_text(encoding="utf-8").splitlines():
        word, *phones = line.split()
        if "(" not in word:
            entries[word] = tuple(phones)
    return entries


@cache
def pronounce(word: str) -> tuple[str, ...] | None:
    """Phones of a word: CMUdict's, else flite's where that program is installed, else None."""
    return dictionary().get(word) or pronounce_by_flite(word)


def pronounce_by_flite(word: str) -> tuple[str, ...] | None:
    """Phones by the letter-to-sound rules of the `flite` program; None if it is not installed or outputs none."""
    if shutil.which("flite") is None:
        return None
    result = subprocess.run(["flite", "-ps", "-t", word, "-o", "none"], capture_output=True, text=True, check=False)
    phones = tuple(FLITE_TO_CMU.get(phone, phone.upper()) for phone in result.stdout.split() if phone != "pau")
    return phones or None


def pronounceable(words: list[str]) -> list[str]:
    """The words with a known pronunciation; metrics skip and count the others."""
    return [word for word in words if pronounce(word) is not None]


def add_pronunciations(decoder: Any, words: list[str]) -> None:
    """Add the pronounceable words that the decoder's dictionary lacks."""
    for word in words:
        phones = pronounce(word)
        if decoder.lookup_word(word) is None and phones is not None:
            decoder.add_word(word, " ".join(phones), True)


# Minimal-pair test (forced choice): which one of a word and its near-homophones is in the take?
# A word of the sentence and up to four words that differ from it in one phone ("house", "mouse") are alternatives of
# a grammar that fixes the rest of the sentence; the score is the fraction recognized correctly. No language model is
# used, so the score depends on the sounds alone: LJ Speech's reader scores 0.94, and 0.75 under noise at 10 dB. The
# test does not detect speech after the sentence, and a take without any path through the sentence scores 0: read it
# together with the length check and the alignment.
# The vocabulary is pocketsphinx's, so that the test is the same everywhere: words of CMUdict with three phones or
# more whose unigram log probability in the package's language model is above -16 (some 44,500 words).

MIN_PHONES = 3
MIN_LOG_PROBABILITY = -16.0
MAX_ALTERNATIVES = 4

Phones = tuple[str, ...]


@dataclass(frozen=True)
class MinimalPairResult:
    """Outcome for one take: `num_correct` of `num_trials` words; `skipped` words had no known pronunciation."""

    num_correct: int
    num_trials: int
    skipped: int


class MinimalPairTest:
    """One decoder for any number of sentences; about ten times real time on one core."""

    def __init__(self) -> None:
        wide = {"beam": 1e-60, "wbeam": 1e-40, "pbeam": 1e-60}
        self._decoder = sphinx.new_decoder(lw=1.0, wip=1.0, **wide)

    def score(self, pcm: bytes, words: list[str]) -> MinimalPairResult:
        """Choose each word of the sentence from its alternatives by `pcm` (prepared audio)."""
        known = sphinx.pronounceable(words)
        slots = [[word, *near_homophones(word)] for word in known]
        num_trials = sum(len(slot) > 1 for slot in slots)
        if num_trials == 0:
            return MinimalPairResult(0, 0, len(words) - len(known))
        sphinx.add_pronunciations(self._decoder, known)
        self._decoder.add_jsgf_string("choices", grammar(slots))
        self._decoder.activate_search("choices")
        sphinx.decode(self._decoder, pcm)
        num_correct = count_correct(slots, sphinx.decoded_words(self._decoder))
        return MinimalPairResult(num_correct, num_trials, len(words) - len(known))


def grammar(slots: list[list[str]]) -> str:
    """JSGF for a sentence with alternatives in each slot."""
    sentence = " ".join(f"( {' | '.join(slot)} )" for slot in slots)
    return f"#JSGF V1.0;\ngrammar choices;\npublic <sentence> = {sentence} ;\n"


def count_correct(slots: list[list[str]], decoded: list[str]) -> int:
    """Slots with alternatives whose first word was decoded; 0 if no path through the whole sentence was found."""
    if len(decoded) != len(slots):
        return 0
    return sum(word == slot[0] for slot, word in zip(slots, decoded, strict=True) if len(slot) > 1)


@cache
def near_homophones(word: str) -> tuple[str, ...]:
    """Up to four words of the vocabulary one phone away from `word`, the same ones on every machine."""
    words, by_pattern = vocabulary()
    if word not in words:
        return ()
    phones = words[word]
    near = {other for pattern in masked(phones) for other in by_pattern[pattern] if words[other] != phones}
    return tuple(sorted(near, key=lambda other: hash_order(f"{word} {other}"))[:MAX_ALTERNATIVES])


@lru_cache(maxsize=1)
def vocabulary() -> tuple[dict[str, Phones], dict[Phones, list[str]]]:
    """Phones of each common word, and the words by each pattern of their phones with one masked."""
    language_model = require("pocketsphinx", "eval").NGramModel.readfile(sphinx.model_path("en-us/en-us.lm.bin"))
    log_base = 1e-4  # the package's logarithms are to the base 1.0001

    def is_common(word: str) -> bool:
        return word.isalpha() and language_model.prob([word]) * log_base > MIN_LOG_PROBABILITY

    words = {
        word: phones for word, phones in sphinx.dictionary().items() if len(phones) >= MIN_PHONES and is_common(word)
    }
    by_pattern = defaultdict(list)
    for word, phones in words.items():
        for pattern in masked(phones):
            by_pattern[pattern].append(word)
    return words, dict(by_pattern)


def masked(phones: Phones) -> list[Phones]:
    """The phones with each position in turn replaced by "*"."""
    return [(*phones[:index], "*", *phones[index + 1 :]) for index in range(len(phones))]


# Forced alignment of a take's text: finds missing and wrong words, and scores the worst one.
# A word's score is its mean log likelihood per frame (10 ms) relative to the best sound in the acoustic model: 0 is
# perfect, the worst word of human speech is near -7, and a word cut out of a sentence lowers a neighbor to -17. Finds
# single errors that the word error rate of a few takes cannot show; it does not measure other qualities.

FAILURE_SCORE = -12.0
"""A worst word below this counts as missing or wrong."""


@dataclass(frozen=True)
class Alignment:
    """Outcome for one take. `worst_word` and `worst_score` are None where the text could not be aligned."""

    worst_word: str | None
    worst_score: float | None
    skipped: int
    """Words without a known pronunciation, left out of the text."""

    mean_score: float | None = None
    """Mean over all frames of all words: near -3.5 for human speech; None where the text could not be aligned."""

    @property
    def failed(self) -> bool:
        """Whether a word, or the whole text, is missing."""
        return self.worst_score is None or self.worst_score < FAILURE_SCORE


class Aligner:
    """One decoder for any number of sentences; about twenty times real time on one core."""

    def __init__(self) -> None:
        # All senones are computed: scores are relative to the best one of a frame, which pruning might miss.
        self._decoder = sphinx.new_decoder(compallsen=True)

    def align(self, pcm: bytes, words: list[str]) -> Alignment:
        """Align `words` to `pcm` (prepared audio)."""
        known = sphinx.pronounceable(words)
        skipped = len(words) - len(known)
        if not known:
            return Alignment(None, None, skipped)
        sphinx.add_pronunciations(self._decoder, known)
        self._decoder.set_align_text(" ".join(known))
        sphinx.decode(self._decoder, pcm)
        segments = word_segments(self._decoder)
        scored = [(word_score(segment), sphinx.base_form(segment.word)) for segment in segments]
        if len(scored) < len(known):
            return Alignment(None, None, skipped)
        score, word = min(scored)
        frames = [num_frames(segment) for segment in segments]
        mean = sum(value * count for (value, _), count in zip(scored, frames, strict=True)) / sum(frames)
        return Alignment(word, round(score, 3), skipped, round(mean, 4))


def word_segments(decoder: Any) -> list[Any]:
    """Segments of the last alignment that are words, not silence or noise."""
    return [segment for segment in (decoder.seg() or []) if segment.word[0] not in "<[+("]


def word_score(segment: Any) -> float:
    """Mean log likelihood per frame; `ascore` is linear and may underflow, so the sum is at least -690."""
    return math.log(max(segment.ascore, 1e-300)) / num_frames(segment)


def num_frames(segment: Any) -> int:
    """Length of a segment in frames of 10 ms."""
    return int(segment.end_frame - segment.start_frame + 1)
