"""Held-out sentences in packaged voices, spoken by a model: what the benchmarks of word times and flaws start from."""

from __future__ import annotations

import gzip
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marstts.data.corpora.synthetic import split_of_sentence
from marstts.generation.loop import generate_requests
from marstts.generation.request import Generated, Request
from marstts.synthesis.attention_path import SentencePlaces
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.voices import packaged_names
from marstts.text.normalize import normalize

SENTENCES = Path(__file__).parents[1] / "recipes" / "mini" / "text" / "modern.tsv.gz"


@dataclass(frozen=True, eq=False)
class SpokenSentence:
    """A sentence as a model spoke it once, without backoff."""

    text: str
    request: Request
    generated: Generated
    places: SentencePlaces

    @property
    def tokens(self) -> NDArray[np.int64]:
        """(T, P)."""
        return self.generated.tokens


def held_out_sentences(count: int, seed: int, split: str = "test") -> list[str]:
    """Sentences of a split of the corpus, in an order that the seed decides."""
    with gzip.open(SENTENCES, "rt", encoding="utf-8") as lines:
        texts = dict.fromkeys(normalize(line.split("\t")[-1].strip()) for line in lines)
    found = [text for text in texts if split_of_sentence(text) == split and 12 <= len(text) <= 120]
    random.Random(seed).shuffle(found)
    return found[:count]


def speak_sentences(synthesizer: Synthesizer, texts: list[str], seed: int = 0, rows: int = 16) -> list[SpokenSentence]:
    """Speak each text once, the packaged voices in turn."""
    voices = [synthesizer.open_voice(name) for name in packaged_names()]
    requests = [
        next(synthesizer.requests(text, voices[index % len(voices)], synthesizer.sampling.top_p, (seed, index)))
        for index, text in enumerate(texts)
    ]
    made = [
        result
        for first in range(0, len(requests), rows)
        for result in generate_requests(synthesizer.engine, requests[first : first + rows])
    ]
    return [
        SpokenSentence(text, request, generated, SentencePlaces.of(text, synthesizer.model.text_spans(request.prompt)))
        for text, request, generated in zip(texts, requests, made, strict=True)
    ]
