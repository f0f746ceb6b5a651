"""Held-out sentences in packaged voices, spoken by a model: what the benchmarks of word times and flaws start from."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from marstts.generation.loop import generate_requests
from marstts.generation.request import Generated, Request
from marstts.synthesis.clone.packaged import packaged_names
from marstts.synthesis.sentence import Attempt
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.words.attention_path import SentencePlaces
from marstts.text.normalize import normalize
from marstts.text.segments import Segment
from marstts.voice import Voice
from marstts_lab.data.corpora.synthetic import split_of_sentence

SENTENCES = Path(__file__).parents[1] / "recipes" / "mini" / "text" / "modern.tsv.gz"


def held_out_sentences(count: int, seed: int, split: str = "test") -> list[str]:
    """Sentences of a split of the corpus, in an order that the seed decides."""
    with gzip.open(SENTENCES, "rt", encoding="utf-8") as lines:
        texts = dict.fromkeys(normalize(line.split("\t")[-1].strip()) for line in lines)
    found = [text for text in texts if split_of_sentence(text) == split and 12 <= len(text) <= 120]
    random.Random(seed).shuffle(found)
    return found[:count]


def sentences_of_length(
    count: int, fewest: int, most: int, *, is_fit: Callable[[str], bool] = bool, split: str = "test", seed: int = 0
) -> list[str]:
    """Sentences of a split with so many words; reads no more of the corpus than it needs."""
    with gzip.open(SENTENCES, "rt", encoding="utf-8") as lines:
        texts = [line.split("\t")[-1].strip() for line in lines]
    random.Random(seed).shuffle(texts)
    found: dict[str, None] = {}
    for written in texts:
        if len(found) == count:
            break
        text = normalize(written) if fewest <= len(written.split()) <= most else ""
        if fewest <= len(text.split()) <= most and split_of_sentence(text) == split and is_fit(text):
            found[text] = None
    return list(found)


@dataclass(frozen=True, eq=False)
class SpokenOnce:
    """A sentence as a model spoke it once, without backoff."""

    text: str
    request: Request
    generated: Generated
    places: SentencePlaces


def speak_once(
    synthesizer: Synthesizer, texts: Sequence[str], voices: Sequence[Voice], seed: int = 0, rows: int = 16
) -> list[SpokenOnce]:
    """Speak each text once, the voices in turn, with a model that has word times."""
    top_p = synthesizer.session.sampling.top_p
    requests = [
        synthesizer.session.request(
            Attempt(segment=Segment(text=text), top_p=top_p, seed=(seed, index, 0)), voices[index % len(voices)]
        )
        for index, text in enumerate(texts)
    ]
    batches = [requests[first : first + rows] for first in range(0, len(requests), rows)]
    made = [result for batch in batches for result in generate_requests(synthesizer.session.engine, batch)]
    spoken = []
    for text, request, generated in zip(texts, requests, made, strict=True):
        spans = synthesizer.session.model.text_spans(request.prompt)
        assert spans is not None, "a model with word times"
        spoken.append(SpokenOnce(text, request, generated, SentencePlaces.of(text, spans)))
    return spoken


def speak_sentences(synthesizer: Synthesizer, texts: list[str], seed: int = 0) -> list[SpokenOnce]:
    """Speak each text once, the packaged voices in turn."""
    return speak_once(synthesizer, texts, packaged_voices(synthesizer), seed)


def packaged_voices(synthesizer: Synthesizer) -> list[Voice]:
    """The packaged voices, in the order in which sentences take them in turn."""
    return [synthesizer.open_voice(name) for name in packaged_names()]
