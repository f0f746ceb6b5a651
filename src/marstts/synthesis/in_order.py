"""Sentences of a text in order, each as soon as it and all before it are done: for texts that do not fit into memory.

Upstream: `Synthesizer.speak_in_order`.  Downstream: `cli.streaming.write_sentences`.
The takes are those of `Synthesizer.speak`, sampled in the same running batch. The text is read as its sentences begin,
and at most `MAX_AHEAD` sentences are in work or wait for one before them.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from marstts import audio
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
from marstts.synthesis.speech import Speech, Take, at_speed, pause_after, silence
from marstts.synthesis.voices import adapt_voice
from marstts.synthesis.word_times import Word

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


class InOrderSpeaker(BatchSpeaker):
    """One text in progress, whose sentences are results."""

    def open(self, request: SpeakRequest) -> None:
        """Read the beginning of a text and queue its first sentences; raises the errors of `Synthesizer.speak`."""
        started = time.perf_counter()
        voice = first_voice(adapt_voice(self.session, request.voice), self.continuation)
        self.prepared = self.session.prepare_text(request.text, voice, request.seed, self.top_p)
        self.text = TextState(request, (), started, voice)
        self.following = next(self.prepared, None)
        self.num_begun = self.num_characters = self.num_kept = self.num_handed = 0
        self.max_ahead = 1 if self.continuation is Continuation.PER_CHUNK else MAX_AHEAD
        self.begin_sentences()

    def feed(self, texts: Iterator[SpeakRequest]) -> Iterator[SpeakResult]:
        """Begin the next sentences of the text that is open."""
        self.begin_sentences()
        return iter(())

    def begin_sentences(self) -> None:
        """Begin sentences while few requests wait and few sentences are ahead of the last one handed over."""
        while (
            self.following is not None
            and self.scheduler.num_waiting < self.capacity
            and self.num_begun - self.num_handed < self.max_ahead
        ):
            state = self.sentence_state(self.text, self.num_begun, self.following)
            self.add(state, next(state.rounds))
            self.num_begun += 1
            self.num_characters += len(self.following.text)
            self.following = next(self.prepared, None)

    def keep(self, state: SentenceState, kept: Take) -> Iterator[SpeakResult]:
        """Keep the take of a sentence: a result whose index is that of the sentence, from 0."""
        if state.whole is not None:
            yield from self.keep_part(state, state.whole, kept)
            return
        text = self.text
        text.voice = next_voice(text.voice, kept, self.continuation)
        self.num_kept += 1
        if self.on_take is not None:
            self.on_take(kept, self.num_kept, self.num_sentences)
        speech = self.session.assemble(
            [at_speed(kept, self.speed)], seed=text.request.seed, started=text.started, first_audio_seconds=0.0
        )
        yield SpeakResult(index=state.index, text=kept.text, speech=speech)

    @property
    def num_sentences(self) -> int:
        """Sentences of the text; estimated by its characters until all of it is read."""
        if self.following is None:
            return self.num_begun
        return max(self.num_begun + 1, round(self.num_begun * len(self.text.request.text) / self.num_characters))

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
                yield replace(sentence, text_warning=self.prepared.warning) if is_last else sentence


def run_in_order(
    session: ModelSession,
    request: SpeakRequest,
    *,
    top_p: float,
    continuation: Continuation,
    on_take: OnTake | None,
    takes: int,
    speed: float,
) -> Generator[SpokenSentence, None, None]:
    """Speak one text, sentence by sentence. Closing the iterator stops within a patch."""
    speaker = InOrderSpeaker(
        session,
        Scheduler(session.engine, DEFAULT_BATCH),
        top_p=top_p,
        continuation=continuation,
        capacity=DEFAULT_BATCH,
        on_take=on_take,
        takes=takes,
        speed=speed,
    )
    speaker.open(request)
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


def sentences_of(speech: Speech) -> Generator[SpokenSentence, None, None]:
    """The sentences of a speech that is done; the first one with the warning about the text."""
    for number, sentence in enumerate(joined(speech.takes)):
        yield sentence if number else replace(sentence, text_warning=speech.text_warning)
