"""Batch synthesis: the sentences of one text or of many share a running batch; none influences another.

Upstream: `Synthesizer.speak` and `speak_many`, a `generation.scheduler`.  Downstream: command line, evaluation, mining.
MARS6 (arXiv:2501.05787), Sec. IV-B3 (backoff).

While the engine computes the next patches, finished ones are decoded on another thread, in chunks that do not depend on
the other rows. A take is checked a fixed number of steps after it ended, so that which rows share a batch does not
depend on how fast the machine is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from marstts.errors import ConfigError, MarsError
from marstts.generation.request import Request, RequestState
from marstts.generation.scheduler import AsyncScheduler, RequestScheduler, Scheduler, SchedulerClient
from marstts.synthesis.backoff import best_of, rejection_reason
from marstts.synthesis.continuation import Continuation, first_voice, next_voice
from marstts.synthesis.incremental_decoder import IncrementalDecoder, StreamConfig
from marstts.synthesis.model_session import ModelSession, OnTake
from marstts.synthesis.speech import Speech, Take
from marstts.synthesis.voices import adapt_voice
from marstts.text.segments import Segment
from marstts.voice import Voice

DEFAULT_BATCH = 8
"""Sentences in one batch: each takes a quarter of the time that it takes alone."""

DECODE_DELAY_STEPS = 4
"""Steps between the end of a take and its check: time to decode it while other rows go on."""

DECODE_CHUNK_PATCHES = 16
"""Patches decoded at a time, 1.4 s of speech. Smaller chunks share more of their work with their neighbors; larger ones
leave more to decode at the end of a sentence. mini in int8 speaks ten seconds up to a fifth faster than with 12; the
70M with SNAC as fast; both a quarter faster than with 48."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SpeakRequest:
    """One text to speak."""

    index: int
    """Counts from 1."""

    text: str
    voice: Voice
    seed: int


@dataclass(frozen=True, eq=False, kw_only=True)
class SpeakResult:
    """The result for one text."""

    index: int
    """Number of the text, from 1."""

    text: str

    speech: Speech | None
    """The result of `Synthesizer.speak`; None where it raises an error."""

    error: MarsError | None = None
    """The error, if the text failed."""


@dataclass(eq=False)
class TextState:
    """A text in progress."""

    request: SpeakRequest
    segments: list[Segment]
    started: float
    voice: Voice
    """Voice of the next sentence."""
    takes: dict[int, Take] = field(default_factory=dict)
    """Accepted takes by the index of their sentence, from 0."""
    first_audio_seconds: float = 0.0
    text_warning: str | None = None
    has_failed: bool = False


@dataclass(eq=False)
class SentenceState:
    """A sentence in progress."""

    text: TextState
    index: int
    voice: Voice
    requests: Iterator[Request]
    decoder: IncrementalDecoder
    """Decoder of the attempt that is being generated; used by the decoder's thread alone."""
    takes: list[Take] = field(default_factory=list)
    """Takes of the attempts so far."""


class BatchSpeaker:
    """All texts in progress; lives inside `run_requests` only."""

    def __init__(
        self,
        session: ModelSession,
        scheduler: RequestScheduler,
        *,
        top_p: float,
        continuation: Continuation,
        capacity: int,
        on_take: OnTake | None,
    ) -> None:
        self.session, self.scheduler, self.top_p, self.continuation = session, scheduler, top_p, continuation
        self.capacity, self.on_take = capacity, on_take
        self.active: dict[Request, SentenceState] = {}
        """Requests that wait or run."""
        self.decoding: deque[tuple[int, SentenceState, Future[Take]]] = deque()
        """Takes that ended, with the step after which they are checked."""
        self.num_steps = 0

    def results(self, texts: Iterator[SpeakRequest]) -> Generator[SpeakResult, None, None]:
        """Yield results as texts are done."""
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="marstts-decoder") as decoder:
            try:
                while True:
                    while self.scheduler.num_waiting < self.capacity and (request := next(texts, None)) is not None:
                        yield from self.begin(request)
                    if self.scheduler.is_busy:
                        self.step(decoder)
                    elif not self.decoding:
                        return
                    yield from self.resolve_ready()
            finally:
                for unfinished in list(self.active):
                    self.scheduler.drop(unfinished)
                decoder.shutdown(wait=True, cancel_futures=True)

    def begin(self, request: SpeakRequest) -> Iterator[SpeakResult]:
        """Queue the sentences of a text; yields its error if it cannot be spoken."""
        started = time.perf_counter()
        try:
            voice = first_voice(adapt_voice(self.session, request.voice), self.continuation)
            prepared = self.session.prepare_text(request.text, voice, request.seed, self.top_p)
            segments = list(prepared)
            text = TextState(request, segments, started, voice, text_warning=prepared.warning)
            at_once = 1 if self.continuation is Continuation.PER_CHUNK else len(segments)
            states = [self.sentence_state(text, index) for index in range(at_once)]
            first_requests = [next(state.requests) for state in states]
        except MarsError as error:
            yield SpeakResult(index=request.index, text=request.text, speech=None, error=error)
            return
        for state, first_request in zip(states, first_requests, strict=True):
            self.add(state, first_request)

    def sentence_state(self, text: TextState, index: int) -> SentenceState:
        """The state of a sentence before its first attempt."""
        seed = (text.request.seed, index)
        requests = self.session.requests(text.segments[index].text, text.voice, self.top_p, seed)
        return SentenceState(text, index, text.voice, requests, self.new_decoder(text.voice))

    def new_decoder(self, voice: Voice) -> IncrementalDecoder:
        """A decoder with chunks of one size."""
        chunks = StreamConfig(first_chunk_patches=DECODE_CHUNK_PATCHES, max_chunk_patches=DECODE_CHUNK_PATCHES)
        return IncrementalDecoder(self.session, voice, chunks)

    def add(self, state: SentenceState, request: Request, *, urgent: bool = False) -> None:
        """Queue one attempt at a sentence."""
        self.active[request] = state
        self.scheduler.add(request, urgent=urgent)

    def step(self, decoder: ThreadPoolExecutor) -> None:
        """Generate one patch of every row, and hand to the decoder what fills a chunk."""
        self.num_steps += 1
        for row in self.scheduler.step():
            state, decodable = self.active[row.request], len(row.patches) - self.session.codec.lookahead_patches
            if row.stop is not None:
                del self.active[row.request]
                future = decoder.submit(self.decode_take, state, row)
                self.decoding.append((self.num_steps + DECODE_DELAY_STEPS, state, future))
            elif decodable > 0 and decodable % DECODE_CHUNK_PATCHES == 0:
                decoder.submit(self.decode_chunk, state, row)  # should it fail, so will the rest

    def decode_chunk(self, state: SentenceState, row: RequestState) -> None:
        """Decode what fills a chunk, on the decoder's thread."""
        with self.scheduler.decode_turn():
            state.decoder.decode_until(row)

    def decode_take(self, state: SentenceState, row: RequestState) -> Take:
        """Decode the rest of an ended row, on the decoder's thread."""
        self.decode_chunk(state, row)
        return self.session.decode_take(state.text.segments[state.index], row, state.voice, state.decoder.decoded)

    def resolve_ready(self) -> Iterator[SpeakResult]:
        """Check the takes whose time has come; all of them, where no request is left."""
        while self.decoding and (self.decoding[0][0] <= self.num_steps or not self.scheduler.is_busy):
            _, state, future = self.decoding.popleft()
            if state.text.has_failed:
                continue
            try:
                take = future.result()
            except MarsError as error:
                yield self.fail(state.text, error)
            else:
                yield from self.resolve_take(state, take)

    def resolve_take(self, state: SentenceState, take: Take) -> Iterator[SpeakResult]:
        """Keep a take or sample again, then go on with the next sentence or finish the text."""
        text, index, backoff = state.text, state.index, self.session.backoff
        state.takes.append(take)
        if rejection_reason(take, backoff) is None:
            kept = replace(take, attempts=len(state.takes))
        elif (request := next(state.requests, None)) is not None:
            state.decoder = self.new_decoder(state.voice)
            self.add(state, request, urgent=True)
            return
        else:
            kept = best_of(state.takes, backoff)
        text.takes[index] = kept
        text.voice = next_voice(text.voice, kept, self.continuation)
        text.first_audio_seconds = text.first_audio_seconds or time.perf_counter() - text.started
        if self.on_take is not None:
            self.on_take(kept, len(text.takes), len(text.segments))
        if len(text.takes) == len(text.segments):
            yield self.finish(text)
        elif self.continuation is Continuation.PER_CHUNK:
            following = self.sentence_state(text, index + 1)
            self.add(following, next(following.requests), urgent=True)

    def finish(self, text: TextState) -> SpeakResult:
        """Assemble a text all of whose sentences are done."""
        request = text.request
        speech = self.session.assemble(
            [text.takes[index] for index in range(len(text.segments))],
            seed=request.seed,
            started=text.started,
            first_audio_seconds=text.first_audio_seconds,
            text_warning=text.text_warning,
        )
        return SpeakResult(index=request.index, text=request.text, speech=speech)

    def fail(self, text: TextState, error: MarsError) -> SpeakResult:
        """Give up a text one of whose takes cannot be decoded; its other sentences are canceled."""
        text.has_failed = True
        for request in [request for request, state in self.active.items() if state.text is text]:
            self.scheduler.drop(request)
            del self.active[request]
        return SpeakResult(index=text.request.index, text=text.request.text, speech=None, error=error)


def run_requests(
    session: ModelSession,
    texts: Iterator[SpeakRequest],
    *,
    top_p: float,
    continuation: Continuation,
    batch: int = DEFAULT_BATCH,
    on_take: OnTake | None = None,
    scheduler: AsyncScheduler | None = None,
) -> Generator[SpeakResult, None, None]:
    """Speak texts, at most `batch` sentences at a time. Closing the iterator stops within a patch.

    With a `scheduler` the sentences run in its batch, next to those of other callers.
    """
    queue: Scheduler | SchedulerClient = Scheduler(session.engine, batch) if scheduler is None else scheduler.client()
    speaker = BatchSpeaker(session, queue, top_p=top_p, continuation=continuation, capacity=batch, on_take=on_take)
    return speaker.results(texts)


def speech_of(result: SpeakResult) -> Speech:
    """The speech of a result; raises its error where there is none."""
    if result.speech is None:
        assert result.error is not None
        raise result.error
    return result.speech


def pair_up(texts: Sequence[str], voices: Voice | Sequence[Voice], seeds: int | Sequence[int]) -> list[SpeakRequest]:
    """Pair texts with their voices and seeds; raises ConfigError where their numbers differ."""
    each_voice = [voices] * len(texts) if isinstance(voices, Voice) else list(voices)
    each_seed = [seeds] * len(texts) if isinstance(seeds, int) else list(seeds)
    if not len(texts) == len(each_voice) == len(each_seed):
        raise ConfigError(
            f"expected one voice and one seed for all texts or one for each, but there are {len(texts)} texts, "
            f"{len(each_voice)} voices and {len(each_seed)} seeds"
        )
    rows = zip(texts, each_voice, each_seed, strict=True)
    return [SpeakRequest(index=n, text=text, voice=voice, seed=seed) for n, (text, voice, seed) in enumerate(rows, 1)]
