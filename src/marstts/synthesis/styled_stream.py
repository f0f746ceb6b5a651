"""Streams of SSML whose voice or rate changes within the text: part by part, each as `stream` sends it.

Upstream: `Synthesizer.stream`, for SSML documents alone.  Downstream: `stream`, `audio.tempo`.
A rate is made while the part is sent; the tempo filter holds back some samples, so that a sentence may end one chunk
later than its `take` is reported.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace

import numpy as np

from marstts.audio.tempo import TempoFilter
from marstts.errors import MissingExtraError
from marstts.generation.scheduler import AsyncScheduler
from marstts.synthesis.continuation import Continuation
from marstts.synthesis.incremental_decoder import ChunkSizes
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.speech import at_speed, pause_after, silence
from marstts.synthesis.stream import Chunk, stream_text
from marstts.synthesis.styled import Part, phrase_missing_rate
from marstts.synthesis.voices import voice_of_part
from marstts.voice import Voice


def stream_parts(
    session: ModelSession,
    parts: Sequence[Part],
    voice: Voice,
    *,
    seed: int,
    top_p: float,
    continuation: Continuation,
    config: ChunkSizes,
    scheduler: AsyncScheduler | None,
) -> Generator[Chunk, None, None]:
    """Yield the audio of all parts as one stream. Raises the errors of `Synthesizer.stream` before the first chunk."""
    voices = [voice_of_part(session, part.voice, voice) for part in parts]
    texts = [session.prepare_text(part.text, own, seed, top_p) for part, own in zip(parts, voices, strict=True)]

    def send() -> Generator[Chunk, None, None]:
        num_samples = num_sentences = 0
        with nullcontext(scheduler) if scheduler else AsyncScheduler(session.engine, capacity=1) as rows:
            for number, (part, own, text) in enumerate(zip(parts, voices, texts, strict=True), start=1):
                chunks = stream_text(
                    session, text, own, seed=seed, top_p=top_p, continuation=continuation, config=config, scheduler=rows
                )
                with closing(_styled(chunks, part, number == len(parts), num_samples, num_sentences)) as styled:
                    for chunk in styled:
                        num_samples += len(chunk.samples)
                        last_sentence = chunk.sentence
                        yield chunk
                num_sentences = last_sentence

    return send()


def _styled(
    chunks: Generator[Chunk, None, None], part: Part, is_last: bool, num_samples: int, num_sentences: int
) -> Generator[Chunk, None, None]:
    """The chunks of one part at its rate, numbered and timed after what was sent, with the pause that follows it."""
    rate, warnings = part.rate, ["not supported and ignored: emphasis"] if part.is_emphasized else []
    tempo = None
    with closing(chunks):
        for chunk in chunks:
            if rate != 1.0 and tempo is None:
                try:
                    tempo = TempoFilter(rate, chunk.sample_rate)
                except MissingExtraError as error:
                    rate = 1.0
                    warnings.append(phrase_missing_rate(error))
            samples = chunk.samples if tempo is None else tempo.push(chunk.samples, is_last=chunk.is_last)
            if chunk.is_last and not is_last and chunk.take is not None:
                pause = silence(pause_after(chunk.take.text) + chunk.take.extra_pause_seconds, chunk.sample_rate)
                samples = np.concatenate([samples, pause.samples])
            start = num_samples / chunk.sample_rate
            yield replace(
                chunk,
                samples=np.clip(samples, -1.0, 1.0),
                sentence=num_sentences + chunk.sentence,
                take=None if chunk.take is None else at_speed(chunk.take, rate),
                warning="; ".join([*filter(None, [chunk.warning]), *warnings]) or None,
                is_last=chunk.is_last and is_last,
                words=tuple(word.scaled(1.0 / rate).shifted(start) for word in chunk.words),
            )
            warnings = []
