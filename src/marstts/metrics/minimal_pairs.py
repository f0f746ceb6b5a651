"""Minimal-pair test (forced choice): which one of a word and its near-homophones is in the take?

Upstream: prepared audio (`sphinx.prepare`) and plain words.  Downstream: `panel`, `preference`.

A word of the sentence and up to four words that differ from it in one phone ("house", "mouse") are alternatives of a
grammar that fixes the rest of the sentence; the score is the fraction recognized correctly. No language model is used,
so the score depends on the sounds alone: LJ Speech's reader scores 0.94, and 0.75 under noise at 10 dB. The test does
not detect speech after the sentence, and a take without any path through the sentence scores 0: read it together with
the length check and the alignment.

The vocabulary is pocketsphinx's, so that the test is the same everywhere: words of CMUdict with three phones or more
whose unigram log probability in the package's language model is above -16 (some 44,500 words).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache, lru_cache

from marstts.errors import require
from marstts.io.hash_order import hash_order
from marstts.metrics import sphinx

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
