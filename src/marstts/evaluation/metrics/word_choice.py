"""Closed-response word test: of a word and its near-homophones, which one was said?

Upstream: prepared audio and plain words.  Downstream: `judges`.

Every word of a sentence that has near-homophones (words with one other phone: "house", "mouse") may be itself or one of
up to four of them, in a grammar that otherwise fixes the sentence; the score is the share chosen rightly. No language
model helps, so this follows the sounds alone: LJSpeech's reader scores 0.94, under noise at 10 dB 0.75. It does not
hear what is said after the sentence, and where no path through the sentence is found a take scores 0: read it beside
length and alignment.

The vocabulary is pocketsphinx's own, so that the test is the same everywhere: words of CMUdict with three phones or
more, to which the package's language model gives a unigram log probability above -16 (some 44,500 words).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache, lru_cache

from marstts.errors import require
from marstts.evaluation.metrics import sphinx
from marstts.evaluation.ordering import stable_order

MIN_PHONES = 3
MIN_LOG_PROBABILITY = -16.0
MAX_ALTERNATIVES = 4

Phones = tuple[str, ...]


@dataclass(frozen=True)
class WordChoices:
    """Outcome for one take: `right` of `choices` words; `skipped` words had no known pronunciation."""

    right: int
    choices: int
    skipped: int


class WordChoiceTest:
    """One decoder for any number of sentences; about ten times as fast as the audio on one core."""

    def __init__(self) -> None:
        wide = {"beam": 1e-60, "wbeam": 1e-40, "pbeam": 1e-60}
        self._decoder = sphinx.new_decoder(lw=1.0, wip=1.0, **wide)

    def score(self, pcm: bytes, words: list[str]) -> WordChoices:
        """Let the decoder choose in `pcm` (prepared audio) the words of the sentence from their alternatives."""
        known = sphinx.pronounceable(words)
        slots = [[word, *near_homophones(word)] for word in known]
        choices = sum(len(slot) > 1 for slot in slots)
        if choices == 0:
            return WordChoices(0, 0, len(words) - len(known))
        sphinx.teach(self._decoder, known)
        self._decoder.add_jsgf_string("choices", grammar(slots))
        self._decoder.activate_search("choices")
        sphinx.decode(self._decoder, pcm)
        return WordChoices(count_right(slots, sphinx.heard_words(self._decoder)), choices, len(words) - len(known))


def grammar(slots: list[list[str]]) -> str:
    """JSGF for a sentence with a choice in each slot."""
    sentence = " ".join(f"( {' | '.join(slot)} )" for slot in slots)
    return f"#JSGF V1.0;\ngrammar choices;\npublic <sentence> = {sentence} ;\n"


def count_right(slots: list[list[str]], heard: list[str]) -> int:
    """Slots with alternatives whose first word was heard; 0 if no path through the whole sentence was found."""
    if len(heard) != len(slots):
        return 0
    return sum(word == slot[0] for slot, word in zip(slots, heard, strict=True) if len(slot) > 1)


@cache
def near_homophones(word: str) -> tuple[str, ...]:
    """Up to four words of the vocabulary one phone away from `word`, the same ones on every machine."""
    words, by_pattern = vocabulary()
    if word not in words:
        return ()
    phones = words[word]
    near = {other for pattern in masked(phones) for other in by_pattern[pattern] if words[other] != phones}
    return tuple(sorted(near, key=lambda other: stable_order(f"{word} {other}"))[:MAX_ALTERNATIVES])


@lru_cache(maxsize=1)
def vocabulary() -> tuple[dict[str, Phones], dict[Phones, list[str]]]:
    """Phones of each ordinary word, and the words by each pattern of their phones with one masked."""
    language_model = require("pocketsphinx", "eval").NGramModel.readfile(sphinx.model_path("en-us/en-us.lm.bin"))
    log_base = 1e-4  # the package's logarithms are to the base 1.0001

    def is_ordinary(word: str) -> bool:
        return word.isalpha() and language_model.prob([word]) * log_base > MIN_LOG_PROBABILITY

    words = {
        word: phones for word, phones in sphinx.dictionary().items() if len(phones) >= MIN_PHONES and is_ordinary(word)
    }
    by_pattern = defaultdict(list)
    for word, phones in words.items():
        for pattern in masked(phones):
            by_pattern[pattern].append(word)
    return words, dict(by_pattern)


def masked(phones: Phones) -> list[Phones]:
    """The phones with each position in turn replaced by "*"."""
    return [(*phones[:index], "*", *phones[index + 1 :]) for index in range(len(phones))]
