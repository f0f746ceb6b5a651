"""One request at work: its thread, its rows in the shared batch, and the bytes on their way to the client.

Upstream: `speech_request`, which admits and ends it.  Downstream: `Synthesizer.stream` and `speak`.

The synthesizer's generators block, so each job has a thread of a bounded pool, which is woken only when a chunk can be
decoded. `JobScheduler` is what the job sees of the shared scheduler: its rows and its decoding are ordered by what its
listener has to play. Ending it from the event loop wakes the thread wherever it waits, and its rows leave the batch
within a patch.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import CancelledError, Executor
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

import numpy as np

from marstts.errors import TextError
from marstts.generation.engine import can_start_concurrently
from marstts.generation.request import Request, RequestState
from marstts.generation.scheduler import AsyncScheduler, Event, Needed
from marstts.server.arriving_text import ArrivingText
from marstts.server.audio_budget import seconds_of
from marstts.server.encoders import EncodedStream
from marstts.server.listener import FIRST_AUDIO_SECONDS, Crowd, Listener, PriorityGate
from marstts.server.schemas import SpeechBody, StreamFormat
from marstts.synthesis.speaking import Speaking
from marstts.synthesis.speech import Chunk
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.texts import OnSentence
from marstts.synthesis.words.word_times import Word
from marstts.synthesis.words.written_forms import SpokenSegment

MAX_PIECES = 8
"""Pieces that are made ahead of a client that reads slowly."""

MAX_PIECE_SECONDS = 5
"""Audio of a piece."""

PATIENCE_SECONDS = 5.0
"""A whole file is due after this time and its expected length: streams go first, but not forever."""


class JobEnded(Exception):
    """The client has left, or the job took too long."""


@dataclass(frozen=True, eq=False)
class SharedBatch:
    """The one running batch of a server, and the gate of all other computation."""

    synthesizer: Synthesizer
    scheduler: AsyncScheduler
    gate: PriorityGate

    crowd: Crowd
    """Requests at work."""


class JobScheduler:
    """A shared scheduler as one job sees it; `end` makes all that the job waits for raise `JobEnded`."""

    def __init__(self, shared: SharedBatch, listener: Listener, *, starts_prompts: bool) -> None:
        """`starts_prompts`: encode prompts on the job's thread, where the engine can, so that no patch waits for it."""
        self._shared, self._gate, self._listener = shared.scheduler, shared.gate, listener
        self._engine = shared.synthesizer.session.engine
        self._starts_prompts = starts_prompts and can_start_concurrently(self._engine)
        self._lock = threading.Lock()
        self._queues: dict[int, SimpleQueue[Event]] = {}
        self._ended = False
        self._first_turn: ExitStack | None = None

    @contextmanager
    def first_turn(self) -> Iterator[None]:
        """Take a turn that ends when the first prompt is encoded, or with the body of the `with`.

        Texts are so prepared in turns, too: many threads at once would delay the prompts that come first.
        """
        with ExitStack() as turn:
            turn.enter_context(self.decode_turn())
            self._first_turn = turn
            yield

    @property
    def has_ended(self) -> bool:
        """Whether `end` was called."""
        return self._ended

    def submit(
        self, request: Request, events: SimpleQueue[Event], *, urgent: bool = False, needed: Needed | None = None
    ) -> None:
        """Queue a request in the shared scheduler, by the priority of this job's listener."""
        state: Any = None
        turn, self._first_turn = self._first_turn, None
        with turn or (self.decode_turn() if self._starts_prompts else nullcontext()):
            if self._starts_prompts:
                state = self._engine.start([request.prompt])
        with self._lock:
            if self._ended:
                raise JobEnded
            self._queues[id(events)] = events
        self._shared.submit(
            request, events, urgent=urgent, needed=needed, priority=self._listener.priority, state=state
        )

    @contextmanager
    def decode_turn(self) -> Iterator[None]:
        """Compute in the order of the listeners' buffers; raises JobEnded once the job has ended."""
        with self._gate.turn(self._listener.dry_at):
            if self._ended:
                raise JobEnded
            yield

    def cancel(self, request: Request) -> None:
        """Cancel a request in the shared scheduler."""
        self._shared.cancel(request)

    def next_event(self, events: SimpleQueue[Event]) -> RequestState:
        """Wait for the next row; raises JobEnded once the job has ended."""
        if self._ended:
            raise JobEnded
        return self._shared.next_event(events)

    def end(self) -> None:
        """End the job; may be called from any thread."""
        with self._lock:
            self._ended = True
            for events in self._queues.values():
                events.put(JobEnded())


@dataclass(frozen=True, eq=False)
class JobSpec:
    """What a job speaks."""

    body: SpeechBody
    how: Speaking

    open_voices: Callable[[], Speaking]
    """Opens the voices, on the job's thread."""

    arriving: ArrivingText | None = None
    """The text, where it is still being written; else it is that of the body."""


@dataclass(frozen=True, eq=False)
class FilePiece:
    """The next bytes of a file."""

    content: bytes

    audio_seconds: float = 0.0
    """Audio that was made for it."""

    num_tokens: int = 0
    """Tokens of the takes that ended with it."""

    warning: str | None = None
    """Warning for the listener."""

    sentence: str | None = None
    """The sentence that begins with this piece."""

    number: int = 0
    """Number of the sentence that the piece belongs to, from 1; 0 for none."""

    ends_sentence: bool = False
    """Whether the sentence ends with this piece."""

    is_flawed: bool = False
    """Whether the sentence ends with this piece and its take is flawed."""

    words: tuple[Word, ...] = ()
    """Words that were finished since the last piece, in seconds of the file."""

    num_retries: int = 0
    """Takes that were refused, of the sentences that ended with it."""

    dry_seconds: float = 0.0
    """Time for which the listener had nothing left to play before it."""

    def after(self, earlier: FilePiece) -> FilePiece:
        """This piece, with all that an earlier one without bytes had to say."""
        warnings = [warning for warning in (earlier.warning, self.warning) if warning]
        sentence = earlier.sentence or self.sentence
        words = earlier.words + self.words
        return FilePiece(
            self.content,
            warning="; ".join(warnings) or None,
            sentence=sentence,
            number=earlier.number or self.number,
            ends_sentence=earlier.ends_sentence or self.ends_sentence,
            is_flawed=earlier.is_flawed or self.is_flawed,
            words=words,
        )


def make_pieces(
    synthesizer: Synthesizer,
    scheduler: JobScheduler,
    spec: JobSpec,
    listener: Listener,
    on_sentence: OnSentence | None = None,
) -> Generator[FilePiece, None, None]:
    """Speak and encode. Raises MarsError before the first piece where the request cannot be spoken.

    on_sentence: called before each sentence of a text that is still being written. Each is then a file of its own.
    """
    rate = synthesizer.session.codec.spec.sample_rate
    body, how = spec.body, spec.open_voices()
    encoded = EncodedStream(body.response_format, rate, whole=not body.stream)
    if body.sentence is not None:
        chunk = one_sentence(synthesizer, body, how, scheduler)
        listener.sent(chunk.seconds)
        piece = piece_of(chunk, body, is_first=True)
        yield replace(piece, content=encoded.push(chunk.samples) + encoded.finish())
        return
    if not body.stream:
        speech = synthesizer.speak(body.input, how, scheduler=scheduler)
        content = encoded.push(speech.samples) + encoded.finish()
        num_tokens = sum(len(codes) for take in speech.takes for codes in take.codes)
        warning, num_retries = "; ".join(speech.warnings) or None, sum(take.attempts - 1 for take in speech.takes)
        yield FilePiece(content, speech.seconds, num_tokens, warning, num_retries=num_retries)
        return
    size = MAX_PIECE_SECONDS * rate
    named = 0
    text = spec.arriving or body.input
    with closing(
        synthesizer.stream(text, how, config=listener, scheduler=scheduler, on_sentence=on_sentence)
    ) as chunks:
        for chunk in chunks:
            if spec.arriving is not None and chunk.sentence > named:
                encoded = EncodedStream(body.response_format, rate, whole=False)
            ends_file = chunk.is_last if spec.arriving is None else chunk.take is not None
            dry_seconds = listener.sent(chunk.seconds)
            piece = replace(piece_of(chunk, body, is_first=chunk.sentence > named), dry_seconds=dry_seconds)
            if spec.arriving is not None and piece.sentence is not None:
                piece = replace(piece, sentence=chunk.written or chunk.text)
            named = chunk.sentence
            parts = np.split(chunk.samples, range(size, len(chunk.samples), size))  # a chunk may end with a long pause
            for number, samples in enumerate(parts, start=1):
                content = encoded.push(samples) + (encoded.finish() if ends_file and number == len(parts) else b"")
                ends_sentence = chunk.take is not None and number == len(parts)
                made = replace(piece, content=content) if number == 1 else FilePiece(content)
                yield replace(made, ends_sentence=ends_sentence)


def one_sentence(synthesizer: Synthesizer, body: SpeechBody, how: Speaking, scheduler: JobScheduler) -> Chunk:
    """Speak one sentence of a text; TextError where the text has fewer."""
    assert body.sentence is not None
    start = body.sentence - 1
    with closing(synthesizer.stream(body.input, how, sentences=True, start=start, scheduler=scheduler)) as chunks:
        chunk = next(chunks, None)
    if chunk is None:
        raise TextError(f"the text has no sentence {body.sentence}; give the number of one of its sentences")
    return chunk


def piece_of(chunk: Chunk, body: SpeechBody, *, is_first: bool) -> FilePiece:
    """What the listener is told with a chunk, without its bytes; `is_first`: its sentence begins with it."""
    take = chunk.take
    return FilePiece(
        b"",
        chunk.seconds,
        num_tokens=0 if take is None else sum(len(codes) for codes in take.codes),
        warning=chunk.warning,
        sentence=chunk.text if body.sentences and is_first else None,
        number=chunk.sentence if body.sentences else 0,
        is_flawed=body.sentences and take is not None and take.warning is not None,
        words=chunk.words if body.words else (),
        num_retries=0 if take is None else take.attempts - 1,
    )


class SpeechJob:
    """A job as the event loop sees it: an iterator of pieces that can be ended at any time."""

    def __init__(self, shared: SharedBatch, spec: JobSpec) -> None:
        synthesizer = shared.synthesizer
        body, expected_seconds = spec.body, synthesizer.session.backoff.usual(spec.body.input)
        patience = FIRST_AUDIO_SECONDS if body.stream else PATIENCE_SECONDS + expected_seconds
        self._synthesizer, self._spec = synthesizer, spec
        self._listener = Listener(
            synthesizer.session.codec,
            patience,
            crowd=shared.crowd,
            checks_sent=body.stream_format is StreamFormat.SSE or body.words,
        )
        self._scheduler = JobScheduler(shared, self._listener, starts_prompts=body.stream)
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[FilePiece | Exception | None] = asyncio.Queue()
        self._slots = threading.Semaphore(MAX_PIECES)
        self._entering: asyncio.Task[None] | None = None
        """The wait for the last place."""

    def start(self, pool: Executor, on_end: Callable[[], None]) -> None:
        """Begin on a thread of `pool`; `on_end` is called in the event loop when the thread is free again."""
        future = pool.submit(self._run)
        future.add_done_callback(lambda _: self._call(on_end))

    def start_session(self, enter: Callable[[float], Coroutine[Any, Any, None]], on_rest: Callable[[], None]) -> None:
        """Begin with a text that is still being written, on a thread of its own, which takes no place while it waits.

        enter: called in the event loop before each sentence, with the seconds that it takes; it waits for a place.
        on_rest: called there when a sentence is made, and when the thread ends.
        """
        self._enter, self._on_rest = enter, on_rest
        threading.Thread(target=self._run, name="marstts-session", daemon=True).start()

    def end(self) -> None:
        """End the job, which only its request does; the thread is free and the rows are removed within a patch."""
        self._scheduler.end()
        if self._spec.arriving is not None:
            self._spec.arriving.end(JobEnded())
        if self._entering is not None:
            self._entering.cancel()
        self._slots.release()

    async def pieces(self) -> AsyncIterator[FilePiece]:
        """Yield pieces as they are made. Raises what the job raised; JobEnded where it was ended."""
        while (item := await self._pieces.get()) is not None:
            self._slots.release()
            if isinstance(item, Exception):
                raise item
            yield item

    def _wait_for_place(self, segment: SpokenSegment) -> None:
        """Wait for a place for the next sentence, on the job's thread."""
        seconds = seconds_of(self._synthesizer, segment, self._spec.how)
        try:
            asyncio.run_coroutine_threadsafe(self._enter_unless_ended(seconds), self._loop).result()
        except CancelledError as error:
            raise JobEnded from error
        self._listener.resume()

    async def _enter_unless_ended(self, seconds: float) -> None:
        """Wait for a place in the event loop, where `end` is called, too, so that neither misses the other."""
        if self._scheduler.has_ended:
            raise JobEnded
        self._entering = asyncio.current_task()
        await self._enter(seconds)

    def _run(self) -> None:
        is_session = self._spec.arriving is not None
        gate = self._wait_for_place if is_session else None
        try:
            made = make_pieces(self._synthesizer, self._scheduler, self._spec, self._listener, gate)
            with nullcontext() if is_session else self._scheduler.first_turn(), closing(made):
                for piece in made:
                    if is_session and piece.ends_sentence:
                        self._call(self._on_rest)
                    started = time.monotonic()
                    self._slots.acquire()
                    self._listener.held(time.monotonic() - started)
                    if self._scheduler.has_ended:
                        raise JobEnded
                    self._put(piece)
            self._put(None)
        except Exception as error:
            self._put(error)
        finally:
            if is_session:
                self._call(self._on_rest)

    def _put(self, item: FilePiece | Exception | None) -> None:
        self._call(lambda: self._pieces.put_nowait(item))

    def _call(self, act: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)
