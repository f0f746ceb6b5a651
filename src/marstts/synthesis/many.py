"""Many sentences at once, of one text or of many: they share a running batch, and none of them knows of the others.

Upstream: `Synthesizer.speak` and `speak_many`, `engine.batcher.Batcher`.  Downstream: command line, evaluation, mining.
MARS6 (arXiv:2501.05787), Sec. IV-B3 (backoff).

While the batch makes its next patches, those that are made are decoded on another thread, in windows that are the same
whoever else speaks. A take is judged a fixed number of patches after it ended, so that who runs beside whom does not
depend on how fast the machine is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from marstts.engine.batcher import Batcher
from marstts.errors import ConfigError, MarsError
from marstts.mars6.generate import Job, Row
from marstts.synthesis.backoff import best_of, find_flaw
from marstts.synthesis.continuation import Continuation, carry
from marstts.synthesis.speech import Speech, Take
from marstts.synthesis.stream import StreamConfig, Windows
from marstts.synthesis.synthesizer import SIDE_BY_SIDE, OnTake, Synthesizer
from marstts.voice import Voice

JUDGED_AFTER = 4
"""Patches between the end of a take and its judgement: time to decode it while others speak."""

AHEAD_PATCHES = 16
"""Decoded as soon as they are made, 1.4 seconds of speech: with fewer, windows would have much of their work in common
with their neighbours; with more, there would be more left to decode once the sentence is made. mini in int8 says ten
seconds up to a fifth sooner than with 12; the 70M with SNAC as soon; both a quarter sooner than with 48."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Wanted:
    """One text to be spoken."""

    number: int
    """From 1."""

    text: str
    voice: Voice
    seed: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Spoken:
    """What became of one text."""

    number: int
    """Which text, from 1."""

    text: str

    speech: Speech | None
    """As `Synthesizer.speak` would have given it; None where that would have raised an error."""

    problem: MarsError | None = None
    """That error."""


@dataclass(eq=False)
class Progress:
    """A text on its way."""

    wanted: Wanted
    sentences: list[str]
    started: float
    voice: Voice
    """What the next sentence is spoken with."""
    takes: dict[int, Take] = field(default_factory=dict)
    """Accepted ones, by the number of their sentence, from 0."""
    first_audio_seconds: float = 0.0
    has_failed: bool = False


@dataclass(eq=False)
class Attempts:
    """A sentence on its way."""

    progress: Progress
    index: int
    jobs: Iterator[Job]
    windows: Windows
    """What is decoded of the attempt that is being made; touched by the decoder's thread alone."""
    takes: list[Take] = field(default_factory=list)
    """So far."""


class Run:
    """All texts on their way; lives inside `speak_wanted` only."""

    def __init__(
        self,
        synthesizer: Synthesizer,
        top_p: float,
        continuation: Continuation,
        capacity: int,
        on_take: OnTake | None,
    ) -> None:
        self.synthesizer, self.top_p, self.continuation = synthesizer, top_p, continuation
        self.capacity, self.on_take = capacity, on_take
        self.batcher = Batcher(synthesizer.stepper, capacity)
        self.speaking: dict[Job, Attempts] = {}
        """Jobs that wait or speak."""
        self.decoding: deque[tuple[int, Attempts, Future[Take]]] = deque()
        """Takes that ended, with the step after which they are judged."""
        self.num_steps = 0

    def results(self, texts: Iterator[Wanted]) -> Generator[Spoken, None, None]:
        """Texts as they are done."""
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="marstts-decoder") as decoder:
            try:
                while True:
                    while self.batcher.num_waiting < self.capacity and (wanted := next(texts, None)) is not None:
                        yield from self.begin(wanted)
                    if self.batcher.is_busy:
                        self.step(decoder)
                    elif not self.decoding:
                        return
                    yield from self.judge()
            finally:
                decoder.shutdown(wait=True, cancel_futures=True)

    def begin(self, wanted: Wanted) -> Iterator[Spoken]:
        """Let the sentences of a text wait for their places; if it cannot be spoken, say so."""
        started = time.perf_counter()
        try:
            sentences = self.synthesizer.sentences(wanted.text, wanted.voice, wanted.seed, self.top_p)
            progress = Progress(wanted, sentences, started, wanted.voice)
            at_once = 1 if self.continuation is Continuation.PER_CHUNK else len(sentences)
            first_attempts = [self.attempts(progress, index) for index in range(at_once)]
            first_jobs = [next(attempts.jobs) for attempts in first_attempts]
        except MarsError as problem:
            yield Spoken(number=wanted.number, text=wanted.text, speech=None, problem=problem)
            return
        for attempts, job in zip(first_attempts, first_jobs, strict=True):
            self.add(attempts, job)

    def attempts(self, progress: Progress, index: int) -> Attempts:
        """One sentence, not tried yet."""
        sentence, seed = progress.sentences[index], (progress.wanted.seed, index)
        jobs = self.synthesizer.jobs(sentence, progress.voice, self.top_p, seed)
        return Attempts(progress, index, jobs, self.windows())

    def windows(self) -> Windows:
        """Nothing is decoded yet."""
        portions = StreamConfig(first_patches=AHEAD_PATCHES, largest_patches=AHEAD_PATCHES)
        return Windows(self.synthesizer.codec, self.synthesizer.stepper.config, portions)

    def add(self, attempts: Attempts, job: Job, *, urgent: bool = False) -> None:
        """Let a job wait for its place."""
        self.speaking[job] = attempts
        self.batcher.add(job, urgent=urgent)

    def step(self, decoder: ThreadPoolExecutor) -> None:
        """One patch of every row; what is there to be decoded by then, is."""
        self.num_steps += 1
        for row in self.batcher.step():
            attempts, heard = self.speaking[row.job], len(row.patches) - self.synthesizer.codec.reach_patches
            if row.stop is not None:
                del self.speaking[row.job]
                future = decoder.submit(self.listen, attempts, row)
                self.decoding.append((self.num_steps + JUDGED_AFTER, attempts, future))
            elif heard > 0 and heard % AHEAD_PATCHES == 0:
                decoder.submit(attempts.windows.hear, row)  # should it fail, so will the rest

    def listen(self, attempts: Attempts, row: Row) -> Take:
        """The take that an ended row has become, on the decoder's thread."""
        attempts.windows.hear(row)
        sentence, result = attempts.progress.sentences[attempts.index], row.result(self.synthesizer.stepper.config)
        return self.synthesizer.listen(sentence, result, row.job.top_p, attempts.windows.waveform)

    def judge(self) -> Iterator[Spoken]:
        """Keep, or sample again, the takes whose time has come: all, where nobody speaks any more."""
        while self.decoding and (self.decoding[0][0] <= self.num_steps or not self.batcher.is_busy):
            _, attempts, future = self.decoding.popleft()
            if attempts.progress.has_failed:
                continue
            try:
                take = future.result()
            except MarsError as problem:
                yield self.fail(attempts.progress, problem)
            else:
                yield from self.settle(attempts, take)

    def settle(self, attempts: Attempts, take: Take) -> Iterator[Spoken]:
        """What follows from one take: another attempt, the next sentence, or the end of its text."""
        progress, index, backoff = attempts.progress, attempts.index, self.synthesizer.backoff
        attempts.takes.append(take)
        if find_flaw(take, backoff) is None:
            kept = replace(take, attempts=len(attempts.takes))
        elif (job := next(attempts.jobs, None)) is not None:
            attempts.windows = self.windows()
            self.add(attempts, job, urgent=True)
            return
        else:
            kept = best_of(attempts.takes, backoff)
        progress.takes[index] = kept
        progress.voice = carry(progress.voice, kept, self.continuation)
        progress.first_audio_seconds = progress.first_audio_seconds or time.perf_counter() - progress.started
        if self.on_take is not None:
            self.on_take(kept, len(progress.takes), len(progress.sentences))
        if len(progress.takes) == len(progress.sentences):
            yield self.finish(progress)
        elif self.continuation is Continuation.PER_CHUNK:
            following = self.attempts(progress, index + 1)
            self.add(following, next(following.jobs), urgent=True)

    def finish(self, progress: Progress) -> Spoken:
        """A text all of whose sentences are spoken."""
        wanted = progress.wanted
        speech = self.synthesizer.gather(
            wanted.text,
            [progress.takes[index] for index in range(len(progress.sentences))],
            seed=wanted.seed,
            started=progress.started,
            first_audio_seconds=progress.first_audio_seconds,
        )
        return Spoken(number=wanted.number, text=wanted.text, speech=speech)

    def fail(self, progress: Progress, problem: MarsError) -> Spoken:
        """A text one of whose takes cannot be heard; the rest of it is not waited for."""
        progress.has_failed = True
        for job in [job for job, attempts in self.speaking.items() if attempts.progress is progress]:
            self.batcher.drop(job)
            del self.speaking[job]
        return Spoken(number=progress.wanted.number, text=progress.wanted.text, speech=None, problem=problem)


def speak_wanted(
    synthesizer: Synthesizer,
    texts: Iterator[Wanted],
    *,
    top_p: float,
    continuation: Continuation,
    batch: int = SIDE_BY_SIDE,
    on_take: OnTake | None = None,
) -> Generator[Spoken, None, None]:
    """The texts as they are done, at most `batch` sentences at a time. Closing the iterator stops within a patch."""
    return Run(synthesizer, top_p, continuation, batch, on_take).results(texts)


def pair_up(texts: Sequence[str], voices: Voice | Sequence[Voice], seeds: int | Sequence[int]) -> list[Wanted]:
    """Texts with their voices and seeds; raises ConfigError where their numbers differ."""
    each_voice = [voices] * len(texts) if isinstance(voices, Voice) else list(voices)
    each_seed = [seeds] * len(texts) if isinstance(seeds, int) else list(seeds)
    if not len(texts) == len(each_voice) == len(each_seed):
        raise ConfigError(
            f"expected one voice and one seed for all texts or one for each, but there are {len(texts)} texts, "
            f"{len(each_voice)} voices and {len(each_seed)} seeds"
        )
    rows = zip(texts, each_voice, each_seed, strict=True)
    return [Wanted(number=n, text=text, voice=voice, seed=seed) for n, (text, voice, seed) in enumerate(rows, start=1)]
