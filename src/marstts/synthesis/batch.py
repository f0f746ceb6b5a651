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

from marstts.audio.tempo import check_speed
from marstts.errors import ConfigError, MarsError
from marstts.generation.request import Request, RequestState
from marstts.generation.scheduler import AsyncScheduler, RequestScheduler, Scheduler, SchedulerClient
from marstts.synthesis.backoff import best_of, rejection_reason
from marstts.synthesis.continuation import Continuation, first_voice, next_voice
from marstts.synthesis.guard import TakeGuard
from marstts.synthesis.incremental_decoder import IncrementalDecoder, StreamConfig
from marstts.synthesis.model_session import ModelSession, OnTake
from marstts.synthesis.repair import OTHER_SEED, divide, join_parts
from marstts.synthesis.speech import Speech, Take, at_speed
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
    segments: Sequence[Segment]
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
    sentence: Segment
    attempts: Iterator[Request]
    """The requests of the attempts that are left."""
    takes: list[Take] = field(default_factory=list)
    """Takes of the attempts so far."""
    in_repair: bool = False
    """Backoff is over, and the words of no take were all right."""
    whole: SentenceState | None = None
    """The sentence that this is a part of."""
    parts: dict[int, Take | None] = field(default_factory=dict)
    """Takes of the parts that a flawed sentence was divided into."""
    part: int = 0
    """Number of this part, from 0."""


@dataclass(eq=False)
class AttemptState:
    """An attempt at a sentence that is being made."""

    sentence: SentenceState
    decoder: IncrementalDecoder
    """Used by the decoder's thread alone."""
    guard: TakeGuard


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
        speed: float = 1.0,
    ) -> None:
        check_speed(speed)
        self.session = session
        self.scheduler, self.top_p, self.continuation = scheduler, top_p, continuation
        self.capacity, self.on_take, self.speed = capacity, on_take, speed
        self.active: dict[Request, AttemptState] = {}
        """Requests that wait or run."""
        self.decoding: deque[tuple[int, AttemptState, Future[Take]]] = deque()
        """Takes that ended, with the step after which they are checked."""
        self.num_steps = 0

    def results(self, texts: Iterator[SpeakRequest]) -> Generator[SpeakResult, None, None]:
        """Yield results as texts are done."""
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="marstts-decoder") as decoder:
            try:
                while True:
                    yield from self.feed(texts)
                    if self.scheduler.is_busy:
                        self.step(decoder)
                    elif not self.decoding:
                        return
                    yield from self.resolve_ready()
            finally:
                for unfinished in list(self.active):
                    self.scheduler.drop(unfinished)
                decoder.shutdown(wait=True, cancel_futures=True)

    def feed(self, texts: Iterator[SpeakRequest]) -> Iterator[SpeakResult]:
        """Begin texts while few requests wait; yields the errors of those that cannot be spoken."""
        while self.scheduler.num_waiting < self.capacity and (request := next(texts, None)) is not None:
            yield from self.begin(request)

    def begin(self, request: SpeakRequest) -> Iterator[SpeakResult]:
        """Queue the sentences of a text; yields its error if it cannot be spoken."""
        started = time.perf_counter()
        try:
            voice = first_voice(adapt_voice(self.session, request.voice), self.continuation)
            prepared = self.session.prepare_text(request.text, voice, request.seed, self.top_p)
            segments = list(prepared)
            text = TextState(request, segments, started, voice, text_warning=prepared.warning)
            at_once = 1 if self.continuation is Continuation.PER_CHUNK else len(segments)
            states = [self.sentence_state(text, index, segments[index]) for index in range(at_once)]
            requests = [next(state.attempts) for state in states]
        except MarsError as error:
            yield SpeakResult(index=request.index, text=request.text, speech=None, error=error)
            return
        for state, attempt in zip(states, requests, strict=True):
            self.add(state, attempt)

    def sentence_state(self, text: TextState, index: int, segment: Segment) -> SentenceState:
        """The state of a sentence before its first attempt."""
        seed = text.request.seed, index
        attempts = self.session.requests(segment.text, text.voice, self.top_p, seed)
        return SentenceState(text, index, text.voice, segment, attempts)

    def add(self, state: SentenceState, request: Request, *, urgent: bool = False) -> None:
        """Queue an attempt at a sentence."""
        chunks = StreamConfig(first_chunk_patches=DECODE_CHUNK_PATCHES, max_chunk_patches=DECODE_CHUNK_PATCHES)
        may_give_up = len(state.takes) + 1 < self.session.backoff.attempts
        guard = TakeGuard(self.session, state.sentence.text, may_give_up=may_give_up)
        decoder = IncrementalDecoder(self.session, state.voice, chunks)
        self.active[request] = AttemptState(state, decoder, guard)
        self.scheduler.add(request, urgent=urgent)

    def step(self, decoder: ThreadPoolExecutor) -> None:
        """Generate one patch of every row, and hand to the decoder what fills a chunk."""
        self.num_steps += 1
        for made in self.scheduler.step():
            attempt = self.active.get(made.request)
            if attempt is None:
                continue  # ended at an earlier one of several patches that came together
            row = attempt.guard.judge(made)
            decodable = len(row.patches) - self.session.codec.lookahead_patches
            if row.stop is not None:
                del self.active[row.request]
                if made.stop is None:
                    self.scheduler.drop(row.request)
                future = decoder.submit(self.decode_take, attempt, row)
                self.decoding.append((self.num_steps + DECODE_DELAY_STEPS, attempt, future))
            elif decodable > 0 and decodable % DECODE_CHUNK_PATCHES == 0:
                decoder.submit(self.decode_chunk, attempt, row)  # should it fail, so will the rest

    def decode_chunk(self, attempt: AttemptState, row: RequestState) -> None:
        """Decode what fills a chunk, on the decoder's thread."""
        with self.scheduler.decode_turn():
            attempt.decoder.decode_until(row)

    def decode_take(self, attempt: AttemptState, row: RequestState) -> Take:
        """Decode the rest of an ended row, on the decoder's thread."""
        self.decode_chunk(attempt, row)
        state = attempt.sentence
        return self.session.decode_take(state.sentence, row, state.voice, attempt.decoder.decoded, attempt.guard.search)

    def resolve_ready(self) -> Iterator[SpeakResult]:
        """Check the takes whose time has come; all of them, where no request is left."""
        while self.decoding and (self.decoding[0][0] <= self.num_steps or not self.scheduler.is_busy):
            _, attempt, future = self.decoding.popleft()
            if attempt.sentence.text.has_failed:
                continue
            try:
                take = future.result()
            except MarsError as error:
                yield self.fail(attempt.sentence.text, error)
            else:
                attempt.sentence.takes.append(take)
                yield from self.resolve_take(attempt.sentence)

    def resolve_take(self, state: SentenceState) -> Iterator[SpeakResult]:
        """Keep the last take, or sample again."""
        backoff, take = self.session.backoff, state.takes[-1]
        if rejection_reason(take, backoff) is None:
            repaired = OTHER_SEED if state.in_repair else None
            yield from self.keep(state, replace(take, attempts=len(state.takes), repaired=repaired))
        elif (following := next(state.attempts, None)) is not None:
            self.add(state, self.session.lengthened(following, state.takes), urgent=True)
        else:
            yield from self.repair(state, best_of(state.takes, backoff))

    def repair(self, state: SentenceState, best: Take) -> Iterator[SpeakResult]:
        """Speak a sentence of flawed words with other seeds, then in parts; keep `best` where nothing is left."""
        text = state.text
        seed = (text.request.seed, state.index)
        parts = divide(state.sentence) if best.flaws and state.whole is None else []
        if parts and not state.in_repair:
            state.in_repair = True
            state.attempts = self.session.repairs(state.sentence.text, state.voice, self.top_p, seed)
            self.add(state, next(state.attempts), urgent=True)
        elif len(parts) > 1:
            state.parts = dict.fromkeys(range(len(parts)))
            for number, part in enumerate(parts):
                attempts = self.session.requests(part.text, state.voice, self.top_p, (*seed, 2, number))
                part_state = SentenceState(text, state.index, state.voice, part, attempts, whole=state, part=number)
                self.add(part_state, next(attempts), urgent=True)
        else:
            yield from self.keep(state, best)

    def keep_part(self, state: SentenceState, whole: SentenceState, kept: Take) -> Iterator[SpeakResult]:
        """Keep the take of a part; after the last one, keep the joined parts or the best whole take."""
        whole.parts[state.part] = kept
        takes = [take for take in whole.parts.values() if take is not None]
        if len(takes) < len(whole.parts):
            return
        joined = join_parts(whole.sentence, takes, len(whole.takes))
        best = best_of(whole.takes, self.session.backoff)
        yield from self.keep(whole, joined if len(joined.flaws) < len(best.flaws) else best)

    def keep(self, state: SentenceState, kept: Take) -> Iterator[SpeakResult]:
        """Keep the take of a sentence, then go on with the next sentence or finish the text."""
        if state.whole is not None:
            yield from self.keep_part(state, state.whole, kept)
            return
        text, index = state.text, state.index
        text.takes[index] = kept
        text.voice = next_voice(text.voice, kept, self.continuation)
        text.first_audio_seconds = text.first_audio_seconds or time.perf_counter() - text.started
        if self.on_take is not None:
            self.on_take(kept, len(text.takes), len(text.segments))
        if len(text.takes) == len(text.segments):
            yield self.finish(text)
        elif self.continuation is Continuation.PER_CHUNK:
            following = self.sentence_state(text, index + 1, text.segments[index + 1])
            self.add(following, next(following.attempts), urgent=True)

    def finish(self, text: TextState) -> SpeakResult:
        """Assemble a text all of whose sentences are done."""
        request = text.request
        speech = self.session.assemble(
            [at_speed(text.takes[index], self.speed) for index in range(len(text.segments))],
            seed=request.seed,
            started=text.started,
            first_audio_seconds=text.first_audio_seconds,
            text_warning=text.text_warning,
        )
        return SpeakResult(index=request.index, text=request.text, speech=speech)

    def fail(self, text: TextState, error: MarsError) -> SpeakResult:
        """Give up a text one of whose takes cannot be decoded; its other sentences are canceled."""
        text.has_failed = True
        for request in [request for request, state in self.active.items() if state.sentence.text is text]:
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
    speed: float = 1.0,
) -> Generator[SpeakResult, None, None]:
    """Speak texts, at most `batch` sentences at a time. Closing the iterator stops within a patch.

    With a `scheduler` the sentences run in its batch, next to those of other callers. `speed`
    changes the tempo of what is kept.
    """
    queue: Scheduler | SchedulerClient = Scheduler(session.engine, batch) if scheduler is None else scheduler.client()
    speaker = BatchSpeaker(
        session,
        queue,
        top_p=top_p,
        continuation=continuation,
        capacity=batch,
        on_take=on_take,
        speed=speed,
    )
    return speaker.results(texts)


def speech_of(result: SpeakResult) -> Speech:
    """The speech of a result; raises its error where there is none."""
    if result.speech is None:
        assert result.error is not None
        raise result.error
    return result.speech


def pair_up(texts: Sequence[str], voices: Voice | Sequence[Voice], seeds: int | Sequence[int]) -> list[SpeakRequest]:
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
    rows = zip(texts, each_voice, each_seed, strict=True)
    return [SpeakRequest(index=n, text=text, voice=voice, seed=seed) for n, (text, voice, seed) in enumerate(rows, 1)]
