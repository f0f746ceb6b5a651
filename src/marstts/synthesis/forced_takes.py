"""Takes that a model is made to say: sentences spoken once, and tokens of one's choice with the attention they get.

Upstream: a session and its engine.  Downstream: `word_calibrating`, benchmarks of word times and flaws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marstts.errors import ConfigError
from marstts.generation.engine import ended_row, patch_vectors, text_attention
from marstts.generation.loop import generate_requests
from marstts.generation.request import EndingState, Generated, Request, RequestState, StopReason
from marstts.synthesis.attention_path import SentencePlaces, search_path
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.sentence import Attempt
from marstts.synthesis.speech import NO_WORD_TIMES
from marstts.synthesis.word_times import LAG_SECONDS, timed_spans
from marstts.text.segments import Segment
from marstts.voice import Voice


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


def speak_once(
    session: ModelSession, texts: Sequence[str], voices: Sequence[Voice], seed: int = 0, rows: int = 16
) -> list[SpokenSentence]:
    """Speak each text once, the voices in turn; ConfigError for a model without word times."""
    requests = [
        session.request(
            Attempt(segment=Segment(text=text), top_p=session.sampling.top_p, seed=(seed, index, 0)),
            voices[index % len(voices)],
        )
        for index, text in enumerate(texts)
    ]
    made = [
        result
        for first in range(0, len(requests), rows)
        for result in generate_requests(session.engine, requests[first : first + rows])
    ]
    spoken = []
    for text, request, generated in zip(texts, requests, made, strict=True):
        spans = session.model.text_spans(request.prompt)
        if spans is None:
            raise ConfigError(NO_WORD_TIMES)
        spoken.append(SpokenSentence(text, request, generated, SentencePlaces.of(text, spans)))
    return spoken


def forced_rows(
    session: ModelSession, spoken: SpokenSentence, takes: Sequence[NDArray[np.int64]]
) -> list[RequestState]:
    """The rows of a model that is made to say each of `takes` (T, P) for a sentence, with attention, as they end."""
    engine = session.engine
    state = engine.start([spoken.request.prompt] * len(takes))
    rows = [RequestState.begin(spoken.request, engine.layout)] * len(takes)
    for step in range(max(map(len, takes)) + 1):
        attention = text_attention(engine, state)
        vectors = patch_vectors(engine, state)
        assert attention is not None
        for index, tokens in enumerate(takes):
            row = replace(rows[index], attention=(*rows[index].attention, attention[index]))
            if vectors is not None:
                row = replace(row, vectors=(*row.vectors, vectors[index]))
            if step < len(tokens):
                rows[index] = replace(row, patches=(*row.patches, tokens[step]))
            elif step == len(tokens):
                alone = ended_row(engine, state, index)
                ending = None if alone is None else EndingState(alone)
                rows[index] = replace(row, stop=StopReason.EOS, ending=ending)
        state = engine.append(state, np.stack([tokens[min(step, len(tokens) - 1)] for tokens in takes]))
    return rows


def said_words(session: ModelSession, spoken: SpokenSentence) -> list[tuple[int, int]]:
    """First patch and last + 1 of each word that was said, as far as its sound goes."""
    lag = LAG_SECONDS * session.codec.spec.patch_rate
    spans = timed_spans(search_path(spoken.places, spoken.generated.attention))
    words = [(max(0, round(span.start - lag)), round(span.end - lag)) for span in spans]
    return [word for word in words if word[1] <= len(spoken.tokens)]
