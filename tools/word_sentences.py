"""Held-out sentences in packaged voices, spoken by a model: what the benchmarks of word times and flaws start from."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

from marstts.data.corpora.synthetic import split_of_sentence
from marstts.synthesis.forced_takes import SpokenSentence, speak_once
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.voices import packaged_names
from marstts.text.normalize import normalize
from marstts.voice import Voice

SENTENCES = Path(__file__).parents[1] / "recipes" / "mini" / "text" / "modern.tsv.gz"


def held_out_sentences(count: int, seed: int, split: str = "test") -> list[str]:
    """Sentences of a split of the corpus, in an order that the seed decides."""
    with gzip.open(SENTENCES, "rt", encoding="utf-8") as lines:
        texts = dict.fromkeys(normalize(line.split("\t")[-1].strip()) for line in lines)
    found = [text for text in texts if split_of_sentence(text) == split and 12 <= len(text) <= 120]
    random.Random(seed).shuffle(found)
    return found[:count]


def speak_sentences(synthesizer: Synthesizer, texts: list[str], seed: int = 0) -> list[SpokenSentence]:
    """Speak each text once, the packaged voices in turn."""
    return speak_once(synthesizer, texts, packaged_voices(synthesizer), seed)


def packaged_voices(synthesizer: Synthesizer) -> list[Voice]:
    """The packaged voices, in the order in which sentences take them in turn."""
    return [synthesizer.open_voice(name) for name in packaged_names()]
