"""Sentences of a text in order, each as soon as it and all before it are done: for texts that do not fit into memory.

Upstream: `Synthesizer.speak_in_order`.  Downstream: `cli.streaming.write_sentences`.
The takes are those of `Synthesizer.speak`, sampled in the same running batch. The text is read as its sentences begin,
and at most `MAX_AHEAD` sentences are in work or wait for one before them.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from marstts import audio
from marstts.errors import MissingExtraError
from marstts.generation.scheduler import Scheduler
from marstts.synthesis.batch import (
    DEFAULT_BATCH,
    BatchSpeaker,
    SentenceState,
    SpeakRequest,
    SpeakResult,
    TextState,
    speech_of,
)
from marstts.synthesis.continuation import Continuation, first_voice, next_voice
from marstts.synthesis.incremental_decoder import Samples
from marstts.synthesis.model_session import ModelSession, OnTake
from marstts.synthesis.prepared_text import PreparedText
from marstts.synthesis.speech import Take, at_speed, pause_after, silence
from marstts.synthesis.styled import Part, at_rate, phrase_missing_rate, warning_of
from marstts.synthesis.voices import adapt_voice
from marstts.synthesis.word_times import Word
from marstts.text.segments import Segment

MAX_AHEAD = 4 * DEFAULT_BATCH
"""A batch runs, a batch waits, and the rest is room for sentences done before one that is sampled again."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SpokenSentence:
    """One sentence of a speech."""

    take: Take

    samples: Samples
    """(N,) float32: the pause before the take, and the take with faded ends. All sentences joined are the samples of
    `Speech` before its peak is limited."""

    words: tuple[Word, ...]
    """Times from the beginning of the speech; none from a model without word times."""

    text_warning: str | None = None
    """Parts of the text that could not be spoken; comes with one of the sentences."""


@dataclass(frozen=True, eq=False)
class PartReading:
    """One part of a text, as it is read."""

    part: Part
    state: TextState
    prepared: PreparedText


@dataclass(frozen=True, eq=False)
class NextSentence:
    """A sentence that is read and not begun."""

    reading: PartReading
    index: int
    """Counts from 0 in its part."""
    segment: Segment


class InOrderSpeaker(BatchSpeaker):
    """One text in progress, whose sentences are results. Its parts may differ in voice and rate."""

    def open(self, parts: Sequence[Part], requests: Sequence[SpeakRequest]) -> None:
        """Read the beginning of all parts and queue the first sentences; raises the errors of `Synthesizer.speak`."""
        started = time.perf_counter()
        self.readings = [self.read_part(*pair, started) for pair in zip(parts, requests, strict=True)]
        self.unread = self.read_sentences()
        self.following = next(self.unread, None)
        self.order: dict[SentenceState, tuple[int, PartReading]] = {}
        self.rate_problems: dict[str, None] = {}
        self.num_characters_in_all = sum(len(request.text) for request in requests)
        self.num_begun = self.num_characters = self.num_kept = self.num_handed = 0
        self.max_ahead = 1 if self.continuation is Continuation.PER_CHUNK else MAX_AHEAD
        self.begin_sentences()

    def read_part(self, part: Part, request: SpeakRequest, started: float) -> PartReading:
        """Read the first sentence of a part."""
        voice = first_voice(adapt_voice(self.session, request.voice), self.continuation)
        prepared = self.session.prepare_text(request.text, voice, request.seed, self.top_p)
        return PartReading(part, TextState(request, (), started, voice), prepared)

    def read_sentences(self) -> Iterator[NextSentence]:
        """Read the sentences of all parts, as they are asked for."""
        for reading in self.readings:
            for index, segment in enumerate(reading.prepared):
                yield NextSentence(reading, index, segment)

    def feed(self, texts: Iterator[SpeakRequest]) -> Iterator[SpeakResult]:
        """Begin the next sentences of the text that is open."""
        self.begin_sentences()
        return iter(())

    def begin_sentences(self) -> None:
        """Begin sentences while few requests wait and few sentences are ahead of the last one handed over."""
        while (
            (following := self.following) is not None
            and self.scheduler.num_waiting < self.capacity
            and self.num_begun - self.num_handed < self.max_ahead
        ):
            state = self.sentence_state(following.reading.state, following.index, following.segment)
            self.order[state] = self.num_begun, following.reading
            self.add(state, next(state.attempts))
            self.num_begun += 1
            self.num_characters += len(following.segment.text)
            self.following = next(self.unread, None)

    def keep(self, state: SentenceState, kept: Take) -> Iterator[SpeakResult]:
        """Keep the take of a sentence: a result whose index is the sentence's place in the text, from 0."""
        if state.whole is not None:
            yield from self.keep_part(state, state.whole, kept)
            return
        text, (number, reading) = state.text, self.order.pop(state)
        text.voice = next_voice(text.voice, kept, self.continuation)
        self.num_kept += 1
        if self.on_take is not None:
            self.on_take(kept, self.num_kept, self.num_sentences)
        takes = self.at_rate_of(reading.part, at_speed(kept, self.speed))
        speech = self.session.assemble(takes, seed=text.request.seed, started=text.started, first_audio_seconds=0.0)
        yield SpeakResult(index=number, text=kept.text, speech=speech)

    def at_rate_of(self, part: Part, take: Take) -> list[Take]:
        """The take at the rate of its part; as it is, where no rate can be made."""
        try:
            return list(at_rate([take], part.rate))
        except MissingExtraError as error:
            self.rate_problems[phrase_missing_rate(error)] = None
            return [take]

    @property
    def num_sentences(self) -> int:
        """Sentences of the text; estimated by its characters until all of it is read."""
        if self.following is None:
            return self.num_begun
        return max(self.num_begun + 1, round(self.num_begun * self.num_characters_in_all / self.num_characters))

    def takes(self) -> Generator[Take, None, None]:
        """Yield the takes of the sentences in order."""
        done: dict[int, Take] = {}
        with closing(self.results(iter(()))) as results:
            for result in results:
                [done[result.index]] = speech_of(result).takes
                while self.num_handed in done:
                    take = done.pop(self.num_handed)
                    self.num_handed += 1
                    yield take

    def sentences(self) -> Generator[SpokenSentence, None, None]:
        """Yield the sentences in order; the last one with the warning about the text."""
        with closing(self.takes()) as takes:
            for sentence in joined(takes):
                is_last = self.following is None and self.num_handed == self.num_begun
                yield replace(sentence, text_warning=self.text_warning) if is_last else sentence

    @property
    def text_warning(self) -> str | None:
        """The warning about what was read so far."""
        parts = [reading.part for reading in self.readings]
        return warning_of(parts, [reading.prepared.warning for reading in self.readings], self.rate_problems)


def run_in_order(
    session: ModelSession,
    parts: Sequence[Part],
    requests: Sequence[SpeakRequest],
    *,
    top_p: float,
    continuation: Continuation,
    on_take: OnTake | None,
    speed: float,
) -> Generator[SpokenSentence, None, None]:
    """Speak one text, sentence by sentence: `requests` are those of its `parts`. Closing stops within a patch."""
    speaker = InOrderSpeaker(
        session,
        Scheduler(session.engine, DEFAULT_BATCH),
        top_p=top_p,
        continuation=continuation,
        capacity=DEFAULT_BATCH,
        on_take=on_take,
        speed=speed,
    )
    speaker.open(parts, requests)
    return speaker.sentences()


def joined(takes: Iterable[Take]) -> Iterator[SpokenSentence]:
    """Each take with the pause before it and its place in the speech, as `speech.join` and `take_offsets` set them."""
    pause, offset = None, 0.0
    for take in takes:
        pieces = [take.waveform] if pause is None else [pause, take.waveform]
        offset += 0.0 if pause is None else pause.seconds
        words = tuple(word.shifted(offset) for word in take.words or ())
        yield SpokenSentence(take=take, samples=audio.join(pieces).samples, words=words)
        pause = silence(pause_after(take.text) + take.extra_pause_seconds, take.waveform.sample_rate)
        offset += take.seconds
