"""The runner: samples the attempts at sentences in a running batch, and decodes them. The only loop of synthesis.

Upstream: `synthesizer`, whose `texts` give the sentences.  Downstream: a scheduler, and `sentence`, which decides.

A runner hands takes over whole, or piece by piece while they are made. Whole takes are decoded on another thread while
the engine computes the next patches, in chunks that do not depend on the other rows, and are checked a fixed number of
steps after they ended: so which rows share a batch does not depend on how fast the machine is.
Pieces are decoded at once, and their edges are found in what is known by then (`stream_edges`). Their sizes may depend
on who else listens. What is sent may not, so a sentence is begun only when the smallest sizes would have begun it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

from marstts.audio import Waveform
from marstts.errors import MarsError
from marstts.generation.request import Request, RequestState
from marstts.generation.scheduler import RequestScheduler
from marstts.synthesis.incremental_decoder import ChunkSizes, IncrementalDecoder, Samples, StreamConfig
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.sentence import Attempt, Delivery
from marstts.synthesis.speech import Take, at_other_times, at_speed
from marstts.synthesis.stream_edges import Outlet
from marstts.synthesis.texts import SentenceTask, TextRun
from marstts.synthesis.words.followed_take import FollowedTake, open_patches
from marstts.synthesis.words.word_times import Word

DECODE_DELAY_STEPS = 4
"""Steps between the end of a take and its check: time to decode it while other rows continue."""

DECODE_CHUNK_PATCHES = 16
"""Patches decoded at a time, 1.4 s of speech. Smaller chunks share more of their work with their neighbors; larger ones
leave more to decode at the end of a sentence. mini in int8 speaks ten seconds up to a fifth faster than with 12; the
70M with SNAC as fast; both a quarter faster than with 48."""

LONG_TEXT_CHUNK_PATCHES = 48
"""The same for a text of more sentences than a batch, where other rows run meanwhile: a patch takes mini's codec 1.8 ms
instead of 2.3."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A piece of a sentence that is still being made."""

    task: SentenceTask

    samples: Samples
    """(N,), N > 0."""

    words: tuple[Word, ...]
    """Words that were finished with it, times from the first piece of the sentence."""


@dataclass(frozen=True, eq=False)
class Finished:
    """The end of a sentence."""

    task: SentenceTask
    take: Take

    rest: Samples | None
    """What follows the pieces; None where there were none."""

    words: tuple[Word, ...] = ()
    """Words that came with no piece."""


@dataclass(frozen=True, eq=False)
class Failed:
    """The end of a text that cannot be spoken; its sentences in progress are canceled."""

    text: TextRun
    error: MarsError


Event = Piece | Finished | Failed


class SentenceSource(Protocol):
    """Gives the sentences to speak."""

    def next_task(self, num_waiting: int) -> SentenceTask | Failed | None:
        """Return the next sentence, while `num_waiting` requests wait; None where none can be begun now."""
        ...

    def wait(self) -> bool:
        """Wait for a sentence of a text that is still being written; False where there is nothing to wait for."""
        ...


@dataclass(eq=False)
class Unsent:
    """A take of which nothing was handed over, as a stream sends it."""

    take: Take
    waveform: Waveform
    timing: Callable[[], tuple[Word, ...]] | None


@dataclass(eq=False)
class Running:
    """An attempt that is being made."""

    task: SentenceTask
    attempt: Attempt
    followed: FollowedTake
    decoder: IncrementalDecoder
    """Used by one thread alone."""
    chunk_patches: int
    """Patches that are decoded at a time where the take is handed over whole."""
    outlet: Outlet | None
    """Where pieces are handed over."""
    has_sent: bool = False
    """Whether a listener has a piece of it."""
    is_held: bool = False
    """Whether it could be sent, but waits for its end, so that a flaw can be repaired unheard."""


class Runner:
    """All sentences in progress of one caller."""

    def __init__(self, session: ModelSession, scheduler: RequestScheduler, sizes: ChunkSizes | None = None) -> None:
        """`sizes`: those of the pieces that are handed over; None: takes are handed over whole."""
        self._session, self._scheduler, self._sizes = session, scheduler, sizes
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="marstts-decoder")
        self._active: dict[Request, Running] = {}
        """Requests that wait or run."""
        self._decoding: deque[tuple[int, Running, Future[Take]]] = deque()
        """Takes that ended, with the step after which they are checked."""
        self._unsent: dict[SentenceTask, list[Unsent]] = {}
        """Attempts at sentences that are not finished, where pieces are handed over."""
        self._num_steps = 0

    def run(self, source: SentenceSource) -> Generator[Event, None, None]:
        """Speak all sentences of a source. Closing the iterator stops within a patch."""
        try:
            while True:
                while (item := source.next_task(self._scheduler.num_waiting)) is not None:
                    yield from self._begin(item)
                if self._scheduler.is_busy:
                    yield from self._step()
                elif not self._decoding and not source.wait():
                    return
                yield from self._check_decoded()
        finally:
            for unfinished in list(self._active):
                self._scheduler.drop(unfinished)
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _begin(self, item: SentenceTask | Failed) -> Iterator[Event]:
        if isinstance(item, Failed):
            yield item
            return
        try:
            self._add(item, item.sentence.start(), urgent=item.is_urgent)
        except MarsError as error:
            yield self._fail(item.text, error)

    def _add(self, task: SentenceTask, attempt: Attempt, *, urgent: bool = True) -> None:
        """Queue an attempt at a sentence."""
        session, sizes = self._session, self._sizes
        chunk = LONG_TEXT_CHUNK_PATCHES if task.text.is_long else DECODE_CHUNK_PATCHES
        blocks = StreamConfig(first_chunk_patches=chunk, max_chunk_patches=chunk)
        decoder = IncrementalDecoder(session, task.voice, sizes or blocks)
        request = session.request(attempt, task.voice)
        is_sent = sizes is not None and attempt.part is None
        running = self._active[request] = Running(
            task,
            attempt,
            session.follow(attempt.segment, request, may_give_up=attempt.may_give_up and sizes is None),
            decoder,
            chunk,
            Outlet(session.codec.spec.sample_rate, task.rate) if is_sent else None,
        )
        needed = None if sizes is None else lambda: min(decoder.needed, self._held_until(running))
        self._scheduler.add(request, urgent=urgent, needed=needed)

    def _step(self) -> Iterator[Event]:
        """Generate one patch of every row, and decode what fills a chunk."""
        self._num_steps += 1
        for made in self._scheduler.step():
            running = self._active.get(made.request)
            if running is None:
                continue  # ended at an earlier one of several patches that came together
            row = running.followed.ended(made)
            if row.stop is not None:
                del self._active[row.request]
                if made.stop is None:
                    self._scheduler.drop(row.request)
            if self._sizes is None:
                self._decode_aside(running, row)
            else:
                yield from self._hand_over(running, row, self._sizes)

    def _decode_aside(self, running: Running, row: RequestState) -> None:
        """Leave it to the decoder's thread to decode a whole take."""
        if row.stop is not None:
            future = self._pool.submit(self._decode_take, running, row)
            self._decoding.append((self._num_steps + DECODE_DELAY_STEPS, running, future))
            return
        decodable = len(row.patches) - self._session.codec.lookahead_patches
        if decodable > 0 and decodable % running.chunk_patches == 0:
            self._pool.submit(self._decode, running, row)  # should it fail, so will the rest

    def _decode(self, running: Running, row: RequestState) -> Samples:
        """Decode what fills a chunk; all that is left of an ended row."""
        with self._scheduler.decode_turn():
            return running.decoder.decode_until(row)

    def _decode_take(self, running: Running, row: RequestState) -> Take:
        """Decode the rest of an ended row, and find its flaws."""
        self._decode(running, row)
        return self._take_of(running, row)

    def _take_of(self, running: Running, row: RequestState, *, is_sent: bool = False) -> Take:
        """The take of an ended row that was decoded, with its flaws."""
        decoded, voice = running.decoder.decoded, running.task.voice
        return self._session.decode_take(running.followed, row, voice, decoded, may_repeat=not is_sent)

    def _check_decoded(self) -> Iterator[Event]:
        """Check the takes whose time has come; all of them, where no request is left."""
        while self._decoding and (self._decoding[0][0] <= self._num_steps or not self._scheduler.is_busy):
            _, running, future = self._decoding.popleft()
            if running.task.text.has_failed:
                continue
            try:
                take = future.result()
            except MarsError as error:
                yield self._fail(running.task.text, error)
            else:
                yield from self._advance(running, take)

    def _advance(self, running: Running, take: Take) -> Iterator[Event]:
        """Keep a take of which nothing was handed over, or make the next attempts."""
        task = running.task
        following = task.sentence.advance(running.attempt, take)
        if isinstance(following, Take):
            try:
                as_sent = self._as_sent(task, following)
                kept = as_sent or at_speed(following, task.rate)
            except MarsError as error:
                yield self._fail(task.text, error)
                return
            task.text.keep(task, kept)
            samples = None if as_sent is None else as_sent.waveform.samples  # with the edges of a stream already
            yield Finished(task, kept, samples, kept.words or () if self._sizes else ())
            return
        for attempt in following:
            self._add(task, attempt)

    def _hand_over(self, running: Running, row: RequestState, sizes: ChunkSizes) -> Iterator[Event]:
        """Decode what there is of a row, and hand over what a listener may have of it."""
        self._push(running, row, sizes)
        is_begun = open_patches(row) >= self._begins_with(running.outlet, sizes)
        if row.stop is None and is_begun:
            yield from self._send(running, row, sizes)
        elif row.stop is not None and is_begun and not running.is_held:
            yield self._end_sent(running, row, sizes)
        elif row.stop is not None:
            yield from self._advance(running, self._unsent_take(running, row))

    def _push(self, running: Running, row: RequestState, sizes: ChunkSizes) -> None:
        """Decode what there is of a row, for the words of its take and for its outlet."""
        decoded = self._decode(running, row)
        if sizes.checks_sent:
            running.followed.hear(decoded)
        if running.outlet is not None:
            running.outlet.push(decoded, is_last=row.stop is not None)

    def _send(self, running: Running, row: RequestState, sizes: ChunkSizes) -> Iterator[Piece]:
        """Hand over what is new of a take that goes on, or hold it back: nothing was sent and the listener has time."""
        task, outlet = running.task, running.outlet
        assert outlet is not None, "it is begun"
        if not running.has_sent and sizes.may_wait(self._seconds_left(running, row)):
            running.is_held = True
        elif len(samples := outlet.take()):
            running.has_sent, running.is_held = True, False
            words = running.followed.new_words(row, outlet.start) if sizes.checks_sent else ()
            yield Piece(task, samples, tuple(word.scaled(1.0 / task.rate) for word in words))

    def _end_sent(self, running: Running, row: RequestState, sizes: ChunkSizes) -> Finished:
        """The end of a sentence of which a part was handed over: its take is kept as it is."""
        task, outlet = running.task, running.outlet
        assert outlet is not None, "it is begun"
        kept = self._sent_take(running, row, outlet, sizes)
        task.text.keep(task, kept)
        self._unsent.pop(task, None)
        return Finished(task, kept, outlet.take(), running.followed.rest_of(kept.words))

    def _begins_with(self, outlet: Outlet | None, sizes: ChunkSizes) -> float:
        """Patches of a row with which its sentence begins to be sent, whatever the sizes of its chunks are now."""
        codec = self._session.codec
        if outlet is None or outlet.ready_at is None or not self._session.model.is_incremental:
            return math.inf
        return sizes.least.chunk_end(-(-outlet.ready_at // codec.spec.patch_samples)) + codec.lookahead_patches

    def _held_until(self, running: Running) -> float:
        """Patches with which audio can be sent that is decoded already and held back; infinity where there is none."""
        if running.has_sent or running.is_held or self._sizes is None:
            return math.inf
        return self._begins_with(running.outlet, self._sizes)

    def _unsent_take(self, running: Running, row: RequestState) -> Take:
        """The take of an ended row of which nothing was handed over; noted with the edges that a stream gives it."""
        take, outlet = self._take_of(running, row), running.outlet
        if outlet is not None and outlet.start is not None and self._session.model.is_incremental:
            edged = Waveform(outlet.all_samples, take.waveform.sample_rate)
            unsent = Unsent(take, edged, running.followed.timing(*outlet.span))
            self._unsent.setdefault(running.task, []).append(unsent)
        return take

    def _as_sent(self, task: SentenceTask, kept: Take) -> Take | None:
        """The take that is kept of a sentence as a stream sends it; None where it has the edges of a whole take.

        These are takes that are handed over whole, sentences that were divided, and models that stream nothing.
        """
        for unsent in self._unsent.pop(task, ()):
            if unsent.take.codes is kept.codes:
                timed = at_other_times(replace(kept, timing=unsent.timing), task.rate)
                return replace(timed, waveform=unsent.waveform)
        return None

    def _seconds_left(self, running: Running, row: RequestState) -> float:
        """Seconds of a sentence that are still to be made, by the usual length of its text."""
        rate = self._session.model.patch_rate or self._session.codec.spec.patch_rate
        usual = self._session.backoff.usual(running.attempt.segment.text)
        return max(usual - len(row.patches) / rate, 0.0)

    def _sent_take(self, running: Running, row: RequestState, outlet: Outlet, sizes: ChunkSizes) -> Take:
        """The take of a sentence of which a part was handed over: it is kept as it is."""
        task, followed = running.task, running.followed
        if sizes.checks_sent:
            take, delivery = self._take_of(running, row, is_sent=True), Delivery.CHECKED
            take = replace(take, timing=followed.timing(*outlet.span))
        else:
            take = self._session.unchecked_take(followed.segment, row, running.decoder.decoded)
            delivery = Delivery.UNCHECKED
        kept = task.sentence.advance(running.attempt, take, delivery)
        assert isinstance(kept, Take), "a take of which a part was handed over is kept"
        sent = Waveform(outlet.all_samples, self._session.codec.spec.sample_rate)
        return replace(at_other_times(kept, task.rate), waveform=sent)

    def _fail(self, text: TextRun, error: MarsError) -> Failed:
        """Give up a text: its other sentences are canceled."""
        text.has_failed = True
        for request in [request for request, running in self._active.items() if running.task.text is text]:
            self._scheduler.drop(request)
            del self._active[request]
        return Failed(text, error)
