"""The synthesizer: text and a voice in, speech out.

Upstream: `loading.load`, which opens its parts.  Downstream: command line, notebooks, evaluation, servers.
MARS6 (arXiv:2501.05787), Sec. IV.

`speak` joins the sentences of a text, `speak_in_order` hands them over one by one, `stream` while they are made, and
`speak_many` speaks many texts in one batch: four views of what `runner` does.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from marstts.errors import ConfigError, MarsError
from marstts.generation.scheduler import AsyncScheduler, RequestScheduler, Scheduler, SchedulerClient, SharedScheduler
from marstts.synthesis import clone as cloning
from marstts.synthesis.backoff import PAPER
from marstts.synthesis.clone.voices import open_voice
from marstts.synthesis.incremental_decoder import ChunkSizes, StreamConfig
from marstts.synthesis.model_session import ModelSession, OnTake
from marstts.synthesis.reference_types import Reference, as_reference
from marstts.synthesis.runner import Failed, Finished, Runner
from marstts.synthesis.speech import Chunk, Continuation, Samples, Speech, Take, pause_of, silence, spaced
from marstts.synthesis.texts import DEFAULT_BATCH, SentenceTask, TextRun
from marstts.synthesis.words.word_times import Word
from marstts.text.phones import readable
from marstts.text.reading import USUAL_PAUSES
from marstts.text.segments import Pauses
from marstts.voice import Voice, average_voice

MAX_AHEAD = 8 * DEFAULT_BATCH
"""Sentences of a text in work, or waiting for one before them, at most: a batch runs, a batch waits, and the rest is
room for sentences done before one that is sampled again. It takes up to seven attempts, one after the other, and would
run alone with less."""

NO_VOICES: Mapping[str, Voice] = {}

AnyVoice = Voice | Path | str | None
"""A voice, a packaged voice's name, a path to a voice file or recording, or None for the default voice."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SpeakResult:
    """The result for one of many texts."""

    index: int
    """Number of the text, from 1."""

    text: str

    speech: Speech | None
    """The result of `Synthesizer.speak`; None where it raises an error."""

    error: MarsError | None = None
    """The error, if the text failed."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Synthesizer(ModelSession):
    """A model that is ready to speak. It has no state: calls do not influence each other.

    `speak`, `stream` and `speak_many` may share one `AsyncScheduler` made for `self.engine`, so that many callers run
    in one batch. Their results do not depend on it.
    """

    def __repr__(self) -> str:
        encoders = ", ".join(self.encoder_names.values())
        return (
            f"Synthesizer({self.label!r}, {self.model.architecture}, codec {self.codec.spec.name}, encoders {encoders})"
        )

    def clone(
        self,
        reference: Reference | list[Reference],
        transcript: str | None = None,
        *,
        sample_rate: int | None = None,
        name: str | None = None,
        consent: str = "",
        keep_reference: bool = True,
    ) -> Voice:
        """Clone the voice of a recording: a shallow clone, or with the `transcript` of the recording a deep one.

        `reference` is a path, a `Waveform`, the bytes of an audio file, an array with its `sample_rate`, or a pair of
        both. A list of several, all of one speaker, gives a voice that is nearer to the speaker
        (`voice.average_voice`); the transcript, the prefix and the kept reference are those of the first.
        See `synthesis.clone.clone` for the requirements on a reference.
        """
        if isinstance(reference, list) and sample_rate is None:
            return average_voice(
                [
                    self.clone(
                        one,
                        None if number else transcript,
                        name=name,
                        consent=consent,
                        keep_reference=keep_reference and not number,
                    )
                    for number, one in enumerate(reference)
                ]
            )
        voice = cloning.clone(
            as_reference(reference, sample_rate),
            transcript,
            codec=self.codec,
            encoders=self.encoders,
            model=None if self.paper else self.model,  # without a model, the prefix is the whole reference
            name=name,
            consent=consent,
            keep_reference=keep_reference,
        )
        return replace(voice, model=self.label)

    def as_in_paper(self) -> Synthesizer:
        """The same model without all that this project adds at synthesis (docs/paper.md lists it).

        Takes are sampled again where they are too short or silent, and for no other reason; nothing ends, repairs or
        divides a sentence, but for one of more than a thousand characters; no offset is added to the style.
        """
        model: Any = self.model
        if getattr(model, "style_offset", ()):
            model = replace(model, style_offset=())
        return replace(self, model=model, backoff=PAPER, paper=True)

    def open_voice(self, voice: AnyVoice = None) -> Voice:
        """Open a voice for this model: a `Voice`, a packaged voice's name, a voice file, or a recording to clone.

        None is the default voice; see `synthesis.clone.voices.open_voice`.
        """
        return open_voice(self, voice)

    def open_voices(self, voices: AnyVoice | Sequence[AnyVoice]) -> Voice | list[Voice]:
        """Open one voice, or each of several."""
        if isinstance(voices, Voice):
            return voices  # adapted for each text, so that an error is that of one text
        if voices is None or isinstance(voices, (Path, str)):
            return open_voice(self, voices)
        return [voice if isinstance(voice, Voice) else open_voice(self, voice) for voice in voices]

    def speak(
        self,
        text: str,
        voice: AnyVoice = None,
        *,
        seed: int = 0,
        top_p: float | None = None,
        continuation: Continuation = Continuation.FIXED_REFERENCE,
        on_take: OnTake | None = None,
        scheduler: SharedScheduler | None = None,
        speed: float = 1.0,
        voices: Mapping[str, Voice] = NO_VOICES,
        dialogue: str | None = None,
        pauses: Pauses = USUAL_PAUSES,
    ) -> Speech:
        """Speak `text` in `voice`; its sentences share a batch.

        `top_p` is the nucleus of the first attempt (default: `self.sampling.top_p`). `speed`, 0.8 to 1.25, changes the
        tempo at the same pitch and needs the extra `formats`. The text may change voice and rate; `voices` are those
        that it may name, besides the packaged ones. `dialogue` names the one of them that says what stands in
        quotation marks. `pauses` is the silence after sentences, paragraphs, scenes and the whole.
        `Speech.warnings` names text that could not be spoken, and sentences without an acceptable take.

        Raises TextError if there is nothing to speak, and VoiceError if the voice was made for another model.
        """
        run = self._text(
            text, voice, seed, top_p, continuation, speed=speed, voices=voices, dialogue=dialogue, pauses=pauses
        )
        queue = Scheduler(self.engine, DEFAULT_BATCH) if scheduler is None else SchedulerClient(scheduler)
        [result] = self._run_texts(iter([run]), queue, DEFAULT_BATCH, on_take)
        if result.speech is None:
            assert result.error is not None
            raise result.error
        return result.speech

    def speak_many(
        self,
        texts: Sequence[str],
        voices: AnyVoice | Sequence[AnyVoice] = None,
        *,
        seeds: int | Sequence[int] = 0,
        top_p: float | None = None,
        continuation: Continuation = Continuation.FIXED_REFERENCE,
        batch: int = DEFAULT_BATCH,
        scheduler: SharedScheduler | None = None,
        named: Mapping[str, Voice] = NO_VOICES,
        dialogue: str | None = None,
        pauses: Pauses = USUAL_PAUSES,
    ) -> Generator[SpeakResult, None, None]:
        """Speak each text as `speak` does, at most `batch` sentences at a time; yields results as they are done.

        `voices` and `seeds` are one value for all texts, or one value for each; `named` are the voices that texts may
        name. The result of a text that cannot be
        spoken has its error; the other texts are spoken all the same. Raises ConfigError if the numbers of texts,
        voices and seeds differ, for a single text instead of a list, and for a `batch` below 1.
        """
        if batch < 1:
            raise ConfigError(f"a batch needs room for 1 sentence or more, but has {batch}")
        rows = pair_up(texts, self.open_voices(voices), seeds)
        shared = {"voices": named, "dialogue": dialogue, "pauses": pauses}
        runs = [self._text(*row, top_p, continuation, index=index, **shared) for index, row in enumerate(rows, 1)]
        queue = Scheduler(self.engine, batch) if scheduler is None else SchedulerClient(scheduler)
        return self._run_texts(iter(runs), queue, batch, None)

    def speak_in_order(
        self,
        text: str,
        voice: AnyVoice = None,
        *,
        seed: int = 0,
        top_p: float | None = None,
        continuation: Continuation = Continuation.FIXED_REFERENCE,
        on_take: OnTake | None = None,
        speed: float = 1.0,
        voices: Mapping[str, Voice] = NO_VOICES,
        dialogue: str | None = None,
        pauses: Pauses = USUAL_PAUSES,
        start: int = 0,
        scheduler: SharedScheduler | None = None,
    ) -> Generator[Chunk, None, None]:
        """Speak as `speak` does, but yield each sentence as soon as it and all earlier sentences are done.

        The text is read while it is spoken, and only sentences in progress are held in memory. So the number of
        sentences that `on_take` receives is an estimate until all of a long text is read. Raises the errors of
        `speak`, most of them before the first sentence. Chunks joined are the samples of `speak`.

        `start`: the number of sentences that were spoken before, which are passed over; the others are as they would
        be without it, unless each continues from the one before. In the batch of a shared `scheduler`, one sentence
        is spoken at a time.
        """
        run = self._text(
            text, voice, seed, top_p, continuation, speed=speed, voices=voices, dialogue=dialogue, pauses=pauses,
            num_skipped=start,
        ).open()  # fmt: skip
        return self._in_order(run, on_take, scheduler)

    def stream(
        self,
        text: str,
        voice: AnyVoice = None,
        *,
        seed: int = 0,
        top_p: float | None = None,
        continuation: Continuation = Continuation.FIXED_REFERENCE,
        config: ChunkSizes | None = None,
        scheduler: SharedScheduler | None = None,
        voices: Mapping[str, Voice] = NO_VOICES,
        dialogue: str | None = None,
        pauses: Pauses = USUAL_PAUSES,
    ) -> Generator[Chunk, None, None]:
        """Speak as `speak` does, but yield the audio in chunks, the first of them after a few patches.

        The tokens are those of `speak`, and so is their audio but for the edges of sentences (`stream_edges`). A take
        that fails before any of it was sent is sampled again; what was sent is not taken back: a flaw that is found
        later comes as a warning with the sentence's last chunk.

        Closing the generator stops all work within a patch. Raises the errors of `speak`, before the first chunk.
        """
        run = self._text(text, voice, seed, top_p, continuation, voices=voices, dialogue=dialogue, pauses=pauses).open()
        return self._stream(run, config or StreamConfig(), scheduler)

    def _text(
        self,
        text: str,
        voice: AnyVoice,
        seed: int,
        top_p: float | None,
        continuation: Continuation,
        **others: Any,
    ) -> TextRun:
        """The text with all that decides how it is spoken; not read yet."""
        return TextRun(
            session=self,
            text=text,
            voice=voice if isinstance(voice, Voice) else self.open_voice(voice),
            seed=seed,
            top_p=self.sampling.top_p if top_p is None else top_p,
            continuation=continuation,
            **others,
        )

    def _run_texts(
        self, runs: Iterator[TextRun], queue: RequestScheduler, batch: int, on_take: OnTake | None
    ) -> Generator[SpeakResult, None, None]:
        """Speak texts, as many sentences at a time as fit; yields results as they are done."""
        takes: dict[TextRun, dict[int, Take]] = {}
        first_audio: dict[TextRun, float] = {}
        with closing(Runner(self, queue).run(Sentences(runs, batch))) as events:
            for event in events:
                if isinstance(event, Failed):
                    takes.pop(event.text, None)
                    yield SpeakResult(index=event.text.index, text=event.text.text, speech=None, error=event.error)
                    continue
                text, done = event.task.text, takes.setdefault(event.task.text, {})
                assert isinstance(event, Finished), "takes are handed over whole"
                done[event.task.index] = event.take
                first_audio.setdefault(text, time.perf_counter() - text.started)
                if on_take is not None:
                    on_take(event.take, len(done), text.prepared.num_segments)
                if text.is_done:
                    speech = self.assemble(
                        [done[index] for index in range(len(done))],
                        seed=text.seed,
                        started=text.started,
                        first_audio_seconds=first_audio.pop(text),
                        text_warning=text.warning,
                    )
                    del takes[text]
                    yield SpeakResult(index=text.index, text=text.text, speech=speech)

    def _in_order(
        self, text: TextRun, on_take: OnTake | None, scheduler: SharedScheduler | None
    ) -> Generator[Chunk, None, None]:
        """Yield whole sentences in their order."""
        queue = Scheduler(self.engine, DEFAULT_BATCH) if scheduler is None else SchedulerClient(scheduler)
        source = Sentences(iter([text]), DEFAULT_BATCH, MAX_AHEAD if scheduler is None else 1)
        source.num_begun = source.num_handed = text.num_skipped
        done: dict[int, Finished] = {}
        sent = Sent(self.codec.spec.sample_rate)
        with closing(Runner(self, queue).run(source)) as events:
            for event in events:
                if isinstance(event, Failed):
                    raise event.error
                assert isinstance(event, Finished), "takes are handed over whole"
                done[event.task.index] = event
                if on_take is not None:
                    on_take(event.take, text.num_kept, text.prepared.num_segments)
                while source.num_handed in done:
                    finished = done.pop(source.num_handed)
                    source.num_handed += 1
                    yield sent.whole(finished.task, finished.take)

    def _stream(
        self, text: TextRun, sizes: ChunkSizes, scheduler: SharedScheduler | None
    ) -> Generator[Chunk, None, None]:
        """Yield the pieces of the sentences, one sentence after the other."""
        source, sent = Sentences(iter([text]), 1, 1), Sent(self.codec.spec.sample_rate)
        opened: AbstractContextManager[SharedScheduler] = (
            AsyncScheduler(self.engine, capacity=1) if scheduler is None else nullcontext(scheduler)
        )
        with opened as shared, closing(Runner(self, SchedulerClient(shared), sizes).run(source)) as events:
            for event in events:
                if isinstance(event, Failed):
                    raise event.error
                if not isinstance(event, Finished):
                    yield sent.piece(event.task, event.samples, event.words)
                elif event.rest is None:
                    yield sent.whole(event.task, event.take)
                else:
                    yield sent.piece(event.task, event.rest, event.words, event.take)
                source.num_handed += isinstance(event, Finished)


class Sentences:
    """The sentences of texts in the order in which they begin, few of them ahead of those that run."""

    def __init__(self, texts: Iterator[TextRun], capacity: int, max_ahead: int | None = None) -> None:
        """`capacity`: requests that may wait. `max_ahead`: sentences that are begun and not counted by `num_handed`."""
        self._texts, self._capacity, self._max_ahead = texts, capacity, max_ahead
        self._unread: list[TextRun] = []
        self.num_begun = 0
        self.num_handed = 0

    def next_task(self, num_waiting: int) -> SentenceTask | Failed | None:
        """Return the next sentence; None while enough of them wait, run, or are done and wait for one before them."""
        if self._max_ahead is not None and self.num_begun - self.num_handed >= self._max_ahead:
            return None
        has_room = num_waiting < self._capacity
        self._unread = [text for text in self._unread if not (text.is_read or text.has_failed)]
        for text in self._unread:
            if (has_room or text.continues) and (item := self._read(text)) is not None:
                return item
        if has_room and (new := next(self._texts, None)) is not None:
            self._unread.append(new)
            return self._read(new)
        return None

    def _read(self, text: TextRun) -> SentenceTask | Failed | None:
        try:
            task = text.next_task()
        except MarsError as error:
            text.has_failed = True
            return Failed(text, error)
        self.num_begun += task is not None
        return task


class Sent:
    """What was handed over of a speech: gives the chunks their places and the pauses between sentences."""

    def __init__(self, sample_rate: int) -> None:
        self._rate, self._num_samples = sample_rate, 0
        self._task: SentenceTask | None = None
        self._start = 0
        """First sample of the sentence."""

    def whole(self, task: SentenceTask, take: Take) -> Chunk:
        """A sentence that is handed over at once."""
        self._start = self._num_samples + len(silence(take.lead_seconds, self._rate).samples)
        return self._chunk(task, spaced(take, is_last=task.is_last), take.words or (), take)

    def piece(self, task: SentenceTask, samples: Samples, words: Sequence[Word], take: Take | None = None) -> Chunk:
        """A piece of a sentence; its take comes with the last."""
        if task is not self._task:
            lead = silence(task.segment.lead_seconds, self._rate).samples
            self._start, samples = self._num_samples + len(lead), np.concatenate([lead, samples])
        if take is not None:
            samples = np.concatenate([samples, silence(pause_of(take, is_last=task.is_last), self._rate).samples])
        return self._chunk(task, samples, words, take)

    def _chunk(self, task: SentenceTask, samples: Samples, words: Sequence[Word], take: Take | None) -> Chunk:
        is_first, is_last = self._task is None, task.is_last and take is not None
        offset = self._start / self._rate
        self._num_samples, self._task = self._num_samples + len(samples), task
        warns = is_first if task.text.prepared.is_whole else is_last
        return Chunk(
            samples=samples,
            sample_rate=self._rate,
            sentence=task.index + 1,
            text=readable(task.segment.text),
            take=take,
            text_warning=task.text.warning if warns else None,
            is_last=is_last,
            voice=task.segment.voice,
            words=tuple(word.shifted(offset) for word in words),
        )


Row = tuple[str, Voice, int]


def pair_up(texts: Sequence[str], voices: Voice | Sequence[Voice], seeds: int | Sequence[int]) -> list[Row]:
    """Pair texts with their voices and seeds; raises ConfigError where their numbers differ, or for one text alone."""
    if isinstance(texts, str):  # which is a sequence of its letters
        raise ConfigError("expected a list of texts, but this is one text; put it into a list")
    each_voice = [voices] * len(texts) if isinstance(voices, Voice) else list(voices)
    each_seed = [seeds] * len(texts) if isinstance(seeds, int) else list(seeds)
    if not len(texts) == len(each_voice) == len(each_seed):
        raise ConfigError(
            f"expected one voice and one seed for all texts or one for each, but there are {len(texts)} texts, "
            f"{len(each_voice)} voices and {len(each_seed)} seeds"
        )
    return list(zip(texts, each_voice, each_seed, strict=True))
