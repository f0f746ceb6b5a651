"""The synthesizer: text and a voice in, speech out.

Upstream: `loading.load`, which opens its parts.  Downstream: command line, notebooks, evaluation, servers.
MARS6 (arXiv:2501.05787), Sec. IV.

`speak` joins the sentences of a text, `stream` hands its audio over while it is made, and `speak_many` speaks many
texts in one batch: three views of what `runner` does. How they speak is a value, `Speaking`.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from marstts.errors import ConfigError, MarsError
from marstts.generation.scheduler import AsyncScheduler, RequestScheduler, Scheduler, SchedulerClient, SharedScheduler
from marstts.synthesis import clone as cloning
from marstts.synthesis.clone.voices import open_voice
from marstts.synthesis.fitting import fitted
from marstts.synthesis.incremental_decoder import ChunkSizes, StreamConfig
from marstts.synthesis.model_session import ModelSession, OnTake
from marstts.synthesis.reference_types import Reference, as_reference
from marstts.synthesis.runner import Failed, Finished, Runner
from marstts.synthesis.speaking import USUAL, AnyVoice, Settings, Speaking
from marstts.synthesis.speech import Chunk, Samples, Speech, Take, led, pause_of, silence, spaced, take_offsets
from marstts.synthesis.text_in_pieces import TextInPieces
from marstts.synthesis.texts import DEFAULT_BATCH, OnSentence, SentenceTask, Text, TextRun, whole_text
from marstts.synthesis.words.word_times import Word
from marstts.synthesis.words.written_forms import SpokenSegment
from marstts.text.phones import readable
from marstts.voice import Voice, average_voice

MAX_AHEAD = 8 * DEFAULT_BATCH
"""Sentences of a text in work, or waiting for one before them, at most: a batch runs, a batch waits, and the rest is
room for sentences done before one that is sampled again. It takes up to seven attempts, one after the other, and would
run alone with less."""

OTHER_READING, MAX_SEED = 7919, 2**32
"""What sets the seeds of other readings of a text apart, and the first seed that there is not."""

How = AnyVoice | Speaking
"""A voice, or all of how a text is spoken."""


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


@dataclass(frozen=True, eq=False)
class Synthesizer:
    """A model that is ready to speak. It has no state: calls do not influence each other.

    `speak`, `stream` and `speak_many` take the voice and the other fields of `Speaking` as keyword arguments, or a
    whole `Speaking` in place of the voice. They may share one `AsyncScheduler` made for `self.session.engine`, so that
    many callers run in one batch; their results do not depend on it.
    """

    session: ModelSession
    """The model with its codec and speaker encoders."""

    usual: Speaking = USUAL
    """How texts are spoken where nothing else is said."""

    def __repr__(self) -> str:
        session = self.session
        encoders = ", ".join(session.encoder_names.values())
        codec = session.codec.spec.name
        return f"Synthesizer({session.label!r}, {session.model.architecture}, codec {codec}, encoders {encoders})"

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
            codec=self.session.codec,
            encoders=self.session.encoders,
            model=None
            if self.usual.paper
            else self.session.model,  # without a model, the prefix is the whole reference
            name=name,
            consent=consent,
            keep_reference=keep_reference,
        )
        return replace(voice, model=self.session.label)

    def open_voice(self, voice: AnyVoice = None) -> Voice:
        """Open a voice for this model: a `Voice`, a packaged voice's name, a voice file, or a recording to clone.

        None is the default voice; see `synthesis.clone.voices.open_voice`.
        """
        return open_voice(self._session_for(self.usual), voice)

    def speak(
        self,
        text: Text,
        voice: How = None,
        *,
        on_take: OnTake | None = None,
        scheduler: SharedScheduler | None = None,
        **settings: Unpack[Settings],
    ) -> Speech:
        """Speak `text`, whole or in pieces that are joined; its sentences share a batch.

        `settings` are the fields of `Speaking`. `Speech.warnings` names text that could not be spoken, and sentences
        without an acceptable take.

        Raises TextError if there is nothing to speak, ConfigError for an impossible setting, and VoiceError if the
        voice was made for another model.
        """
        run = self._text(whole_text(text), self._how(voice, settings))
        if run.open().must_fit:
            return self._fit(run, on_take, scheduler)
        [result] = self._run_texts(run.session, [run], self._queue(scheduler), DEFAULT_BATCH, on_take)
        if result.speech is None:
            assert result.error is not None
            raise result.error
        return result.speech

    def speak_many(
        self,
        texts: Sequence[Text],
        voice: How | Sequence[How] = None,
        *,
        batch: int = DEFAULT_BATCH,
        seeds: int | Sequence[int] | None = None,
        scheduler: SharedScheduler | None = None,
        **settings: Unpack[Settings],
    ) -> Generator[SpeakResult, None, None]:
        """Speak each text as `speak` does, at most `batch` sentences at a time; yields results as they are done.

        `voice` and `seeds` are one value for all texts, or a sequence with one for each.
        The result of a text that cannot be spoken has its error; the other texts are spoken all the same. Raises
        ConfigError if the numbers of texts, voices and seeds differ, for a single text instead of a list, and for a
        `batch` below 1.
        """
        if batch < 1:
            raise ConfigError(f"a batch needs room for 1 sentence or more, but has {batch}")
        manners = [self._how(each, settings) for each in one_for_each(texts, voice)]
        manners = [replace(how, seed=seed) for how, seed in zip(manners, seed_for_each(manners, seeds), strict=True)]
        if len({how.paper for how in manners}) > 1:
            raise ConfigError("`paper` is one setting for all texts of a batch")
        session = self._session_for(manners[0] if manners else self.usual)
        opened: dict[int, Speaking] = {}
        for how in manners:
            if id(how.voice) not in opened:
                opened[id(how.voice)] = how.opened(session)
        runs = [
            TextRun(
                session=session, text=whole_text(text), how=replace(how, voice=opened[id(how.voice)].voice), index=index
            )
            for index, (text, how) in enumerate(zip(texts, manners, strict=True), 1)
        ]
        if any(how.seconds is not None for how in manners):
            return self._each_fitted(runs, scheduler)
        return self._run_texts(session, runs, self._queue(scheduler, batch), batch, None)

    def stream(
        self,
        text: Text,
        voice: How = None,
        *,
        sentences: bool = False,
        start: int = 0,
        config: ChunkSizes | None = None,
        on_take: OnTake | None = None,
        on_sentence: OnSentence | None = None,
        scheduler: SharedScheduler | None = None,
        **settings: Unpack[Settings],
    ) -> Generator[Chunk, None, None]:
        """Speak as `speak` does, but yield the audio in chunks, the first of them after a few patches.

        The text may come in pieces while it is still being written, such as the words of a chat model: each sentence is
        spoken as soon as it is certain where it ends. Pieces are awaited on a thread of their own. The audio is that of
        the whole text; the last chunk, without a take, comes when the text has ended.

        The tokens are those of `speak`, and so is their audio but for the edges of sentences (`stream_edges`). A take
        that fails before any of it was sent is sampled again; what was sent is not taken back: a flaw that is found
        later comes as a warning with the sentence's last chunk.

        With `sentences`, each chunk is a whole sentence, which comes as soon as it and all earlier sentences are done.
        Chunks joined are then the samples of `speak`. The text is read while it is spoken, and only sentences in
        progress are held in memory, so that the number of sentences that `on_take` receives is an estimate until all of
        a long text is read. In the batch of a shared `scheduler`, one sentence is spoken at a time.

        `start`: the number of sentences that were spoken before, which are passed over; the others are as they would
        be without it, unless each continues from the one before. `config`: the sizes of chunks that are no sentences.
        `on_sentence` is called with each sentence before it is begun, and with the pause at the end of a text in
        pieces; what it raises ends the speech.

        Closing the generator stops all work within a patch. Raises the errors of `speak`, before the first chunk.
        """
        how, pieces = self._how(voice, settings), text if is_iterator(text) else whole_text(text)
        if how.seconds is not None:
            return self._stream_fitted(pieces, how, start, on_take, on_sentence, scheduler)
        run = self._text(pieces, how, num_skipped=start, on_sentence=on_sentence).open()
        if run.must_fit:
            return self._stream_fitted(pieces, how, start, on_take, on_sentence, scheduler)
        if sentences:
            return self._in_order(run, on_take, scheduler)
        return self._stream(run, config or StreamConfig(), on_take, scheduler)

    def _fit(self, run: TextRun, on_take: OnTake | None, scheduler: SharedScheduler | None) -> Speech:
        """Speak a text that is to last for a given time."""
        plain = replace(run.how, seconds=None)

        def read(number: int) -> Speech:
            seed = plain.seed if number == 0 else (plain.seed + number * OTHER_READING) % MAX_SEED
            again = TextRun(session=run.session, text=run.text, how=replace(plain, seed=seed))
            [result] = self._run_texts(run.session, [again], self._queue(scheduler), DEFAULT_BATCH, on_take)
            if result.speech is None:
                assert result.error is not None
                raise result.error
            return result.speech

        made = read(0)
        takes = fitted(lambda number: made if number == 0 else read(number), run.how.seconds)
        first = made.first_audio_seconds
        return run.session.assemble(
            takes, seed=plain.seed, started=run.started, first_audio_seconds=first, text_warning=made.text_warning
        )

    def _stream_fitted(
        self,
        text: Text,
        how: Speaking,
        start: int,
        on_take: OnTake | None,
        on_sentence: OnSentence | None,
        scheduler: SharedScheduler | None,
    ) -> Generator[Chunk, None, None]:
        """Yield the sentences of a text that is to last for a given time; all of them are made before the first."""
        whole = whole_text(text)
        if on_sentence is not None:
            on_sentence(SpokenSegment(text=whole))
        speech = self.speak(whole, how, on_take=on_take, scheduler=scheduler)
        offsets, rate = take_offsets(speech.takes), speech.sample_rate
        for index, take in enumerate(speech.takes[start:], start):
            is_last = index == len(speech.takes) - 1
            yield Chunk(
                samples=spaced(take, is_last=is_last),
                sample_rate=rate,
                sentence=index + 1,
                text=readable(take.text),
                take=take,
                text_warning=speech.text_warning if index == start else None,
                is_last=is_last,
                words=tuple(word.shifted(offsets[index]) for word in take.words or ()),
            )

    def _each_fitted(
        self, runs: Sequence[TextRun], scheduler: SharedScheduler | None
    ) -> Generator[SpeakResult, None, None]:
        """Speak texts of a given length one after the other."""
        for run in runs:
            text = whole_text(run.text)
            try:
                yield SpeakResult(index=run.index, text=text, speech=self._fit(run.open(), None, scheduler))
            except MarsError as error:
                yield SpeakResult(index=run.index, text=text, speech=None, error=error)

    def _how(self, voice: How, settings: Settings) -> Speaking:
        """How a text is spoken: a whole value, or the usual one in a voice, with these settings in place of its own."""
        if isinstance(voice, Speaking):
            how = replace(voice, **settings)
        elif voice is None:
            how = replace(self.usual, **settings)
        else:
            how = replace(self.usual, voice=voice, **settings)
        how.check()
        return how

    def _session_for(self, how: Speaking) -> ModelSession:
        return self.session.as_in_paper() if how.paper else self.session

    def _text(self, text: Text, how: Speaking, **others: Any) -> TextRun:
        """The text with all that decides how it is spoken; not read yet."""
        session = self._session_for(how)
        return TextRun(session=session, text=text, how=how.opened(session), **others)

    def _queue(self, scheduler: SharedScheduler | None, batch: int = DEFAULT_BATCH) -> RequestScheduler:
        return Scheduler(self.session.engine, batch) if scheduler is None else SchedulerClient(scheduler)

    def _run_texts(
        self,
        session: ModelSession,
        runs: Sequence[TextRun],
        queue: RequestScheduler,
        batch: int,
        on_take: OnTake | None,
    ) -> Generator[SpeakResult, None, None]:
        """Speak texts, as many sentences at a time as fit; yields results as they are done."""
        takes: dict[TextRun, dict[int, Take]] = {}
        first_audio: dict[TextRun, float] = {}
        with closing(Runner(session, queue).run(Sentences(iter(runs), batch))) as events:
            for event in events:
                if isinstance(event, Failed):
                    takes.pop(event.text, None)
                    yield SpeakResult(
                        index=event.text.index, text=whole_text(event.text.text), speech=None, error=event.error
                    )
                    continue
                text, done = event.task.text, takes.setdefault(event.task.text, {})
                assert isinstance(event, Finished), "takes are handed over whole"
                done[event.task.index] = event.take
                first_audio.setdefault(text, time.perf_counter() - text.started)
                if on_take is not None:
                    on_take(event.take, len(done), text.prepared.num_segments)
                if text.is_done:
                    speech = session.assemble(
                        [done[index] for index in range(len(done))],
                        seed=text.how.seed,
                        started=text.started,
                        first_audio_seconds=first_audio.pop(text),
                        text_warning=text.warning,
                    )
                    del takes[text]
                    yield SpeakResult(index=text.index, text=whole_text(text.text), speech=speech)

    def _in_order(
        self, text: TextRun, on_take: OnTake | None, scheduler: SharedScheduler | None
    ) -> Generator[Chunk, None, None]:
        """Yield whole sentences in their order."""
        ahead = MAX_AHEAD if scheduler is None else 1
        source = Sentences(iter([text]), DEFAULT_BATCH, ahead, num_passed=text.num_skipped)
        done: dict[int, Finished] = {}
        sent = Sent(self.session.codec.spec.sample_rate)
        with closing(Runner(text.session, self._queue(scheduler)).run(source)) as events:
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
        if text.is_in_pieces:
            yield sent.end(text)

    def _stream(
        self, text: TextRun, sizes: ChunkSizes, on_take: OnTake | None, scheduler: SharedScheduler | None
    ) -> Generator[Chunk, None, None]:
        """Yield the pieces of the sentences, one sentence after the other."""
        source = Sentences(iter([text]), 1, 1, num_passed=text.num_skipped)
        sent = Sent(self.session.codec.spec.sample_rate)
        opened: AbstractContextManager[SharedScheduler] = (
            AsyncScheduler(self.session.engine, capacity=1) if scheduler is None else nullcontext(scheduler)
        )
        with opened as shared, closing(Runner(text.session, SchedulerClient(shared), sizes).run(source)) as events:
            for event in events:
                if isinstance(event, Failed):
                    raise event.error
                if on_take is not None and isinstance(event, Finished):
                    on_take(event.take, text.num_kept, text.prepared.num_segments)
                if not isinstance(event, Finished):
                    yield sent.piece(event.task, event.samples, event.words)
                elif event.rest is None:
                    yield sent.whole(event.task, event.take)
                else:
                    yield sent.piece(event.task, event.rest, event.words, event.take)
                source.num_handed += isinstance(event, Finished)
        if text.is_in_pieces:
            yield sent.end(text)


class Sentences:
    """The sentences of texts in the order in which they begin, few of them ahead of those that run."""

    def __init__(
        self, texts: Iterator[TextRun], capacity: int, max_ahead: int | None = None, *, num_passed: int = 0
    ) -> None:
        """`capacity`: requests that may wait. `max_ahead`: sentences that are begun and not counted by `num_handed`.

        num_passed: sentences that are passed over at the beginning.
        """
        self._texts, self._capacity, self._max_ahead = texts, capacity, max_ahead
        self._unread: list[TextRun] = []
        self.num_begun = self.num_handed = num_passed

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

    def wait(self) -> bool:
        """Wait for a sentence of a text that is still being written; False where all are read."""
        return any(text.wait() for text in self._unread)

    def _read(self, text: TextRun) -> SentenceTask | Failed | None:
        try:
            task = text.next_task()
        except MarsError as error:
            text.has_failed = True
            return Failed(text, error)
        self.num_begun += task is not None
        return task


class Sent:
    """What was handed over of a speech: gives the chunks their places and the pauses between sentences.

    In a text that is still being written, the pause after a sentence comes with the next one, or with the end.
    """

    def __init__(self, sample_rate: int) -> None:
        self._rate, self._num_samples = sample_rate, 0
        self._task: SentenceTask | None = None
        self._start = 0
        """First sample of the sentence."""
        self._before: Take | None = None
        """The take before, whose pause is not handed over."""

    def whole(self, task: SentenceTask, take: Take) -> Chunk:
        """A sentence that is handed over at once."""
        owed = self._owed_before(task)
        self._start = self._num_samples + len(owed) + len(silence(take.lead_seconds, self._rate).samples)
        samples = led(take) if self._owes(task, take) else spaced(take, is_last=task.is_last)
        return self._chunk(task, np.concatenate([owed, samples]), take.words or (), take)

    def piece(self, task: SentenceTask, samples: Samples, words: Sequence[Word], take: Take | None = None) -> Chunk:
        """A piece of a sentence; its take comes with the last."""
        if task is not self._task:
            lead = np.concatenate([self._owed_before(task), silence(task.segment.lead_seconds, self._rate).samples])
            self._start, samples = self._num_samples + len(lead), np.concatenate([lead, samples])
        if take is not None and not self._owes(task, take):
            samples = np.concatenate([samples, silence(pause_of(take, is_last=task.is_last), self._rate).samples])
        return self._chunk(task, samples, words, take)

    def end(self, text: TextRun) -> Chunk:
        """The end of a text that was still being written."""
        assert isinstance(text.prepared, TextInPieces) and self._task is not None, "something was spoken"
        seconds = text.prepared.end_seconds
        if text.on_sentence is not None and seconds:
            text.on_sentence(SpokenSegment(lead_seconds=seconds))
        return Chunk(
            samples=silence(seconds, self._rate).samples,
            sample_rate=self._rate,
            sentence=self._task.index + 1,
            text_warning=text.warning,
            is_last=True,
        )

    def _owes(self, task: SentenceTask, take: Take) -> bool:
        """Note the pause after a take where it comes later; whether it does."""
        if task.text.is_in_pieces:
            self._before = take
        return task.text.is_in_pieces

    def _owed_before(self, task: SentenceTask) -> Samples:
        """The pause after the sentence before, where it was not handed over."""
        before, self._before = self._before, None
        if before is None:
            return silence(0.0, self._rate).samples
        longer = replace(before, extra_pause_seconds=before.extra_pause_seconds + task.gap_seconds)
        return silence(pause_of(longer, is_last=False), self._rate).samples

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
            written=task.segment.written,
            take=take,
            text_warning=task.text.warning if warns else None,
            is_last=is_last,
            voice=task.segment.voice,
            words=tuple(word.shifted(offset) for word in words),
        )


def is_iterator(text: Text) -> bool:
    """Whether a text may still be being written; a list of pieces and what is no text are not."""
    return isinstance(text, Iterable) and not isinstance(text, (str, bytes, bytearray, Mapping, list, tuple))


def one_for_each(texts: Sequence[Text], voice: How | Sequence[How]) -> list[How]:
    """The voice of each text; raises ConfigError where the numbers differ, or for one text alone."""
    if isinstance(texts, str):  # which is a sequence of its letters
        raise ConfigError("expected a list of texts, but this is one text; put it into a list")
    if voice is None or isinstance(voice, (Voice, Path, str, Speaking)):
        return [voice] * len(texts)
    if len(voice) != len(texts):
        raise ConfigError(
            f"expected one voice for all texts or one for each, but there are {len(texts)} texts, {len(voice)} voices"
        )
    return list(voice)


def seed_for_each(manners: Sequence[Speaking], seeds: int | Sequence[int] | None) -> list[int]:
    """The seed of each text; raises ConfigError where the numbers differ."""
    if seeds is None:
        return [how.seed for how in manners]
    if isinstance(seeds, int):
        return [seeds] * len(manners)
    if len(seeds) != len(manners):
        raise ConfigError(
            f"expected one seed for all texts or one for each, but there are {len(manners)} texts, {len(seeds)} seeds"
        )
    return list(seeds)
