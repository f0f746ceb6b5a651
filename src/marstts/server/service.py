"""The speech service: a synthesizer, one running batch for all callers, and what their requests share.

Upstream: the endpoints of `app`, `speech_request`.  Downstream: `admission`, `speech_job`, `voice_store`, `metrics`.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from marstts.generation.scheduler import AsyncScheduler
from marstts.server.admission import FIRST_ESTIMATE, Admission, Throughput, Ticket
from marstts.server.api_errors import ApiError
from marstts.server.arriving_text import ArrivingText
from marstts.server.audio_budget import measure_text, needs_reading
from marstts.server.callers import Caller
from marstts.server.encoders import AudioFormat
from marstts.server.idle_model import IdleModel, OpenModel
from marstts.server.listener import FIRST_AUDIO_SECONDS, SOON_SECONDS, Crowd, Listener, PriorityGate
from marstts.server.metrics import ServerMetrics
from marstts.server.schemas import MixBody, SpeechBody
from marstts.server.settings import ServeSettings
from marstts.server.speech_job import FilePiece, JobScheduler, JobSpec, SharedBatch, make_pieces
from marstts.server.uploads import UploadQueue
from marstts.server.voice_store import CallersVoices, StoredVoice, VoiceStore, next_step
from marstts.synthesis.clone.voice_folder import own_folder
from marstts.synthesis.speaking import Speaking
from marstts.synthesis.synthesizer import Synthesizer

log = logging.getLogger(__name__)

T = TypeVar("T")

OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-12-15")
"""OpenAI's model names, all of which mean the model that is served."""

MAX_UPLOADS = 8
"""Uploads that wait for the one that is at work."""

MAX_UPLOAD_WAIT_SECONDS = 30.0
"""An upload that waited this long gets status 429."""

BOOKS_AT_ONCE = 2
"""Callers whose books are read at the same time, each in a process: the book of one delays that of no other."""

RELEASE_SECONDS = 5.0
"""Time after a book, when its answer should have been sent, until its memory is given back."""

MAX_LOAD = 0.55
"""Share of the measured throughput that listeners may use. Many callers who begin at once get small chunks, which cost
more to decode: with 0.6, four of 64 buffers ran dry, with 0.55 none (dev/LOG.md)."""

WARMING_TEXT = "Hello there."

WARMING_TEXTS = (
    "Hello there. On May 3rd, 2024, 12 of 40 people came at 10:30.",
    "Dr. Smith paid $4.50 for 2 kg of apples; it was 7 °C.",
    "See the [notes](https://example.org): NASA, the FBI and e.g. H2O!",
    "She had not expected it. Nobody answered when she called.",
)
"""Texts of many kinds, since rules are compiled when they are first needed."""

WARMING_FACTOR = 2
"""Callers, for each row of the batch, who are spoken for at most to warm up."""

MEASURED_TEXT = "It was a bright cold day in April, and the clocks were striking."
"""Spoken at the start, once for each row of the batch, to measure the machine."""

EXPECTED_SHARE = 2.0
"""Seconds of audio for each row in a second, until the machine is measured."""

MAX_LISTENERS = 256
"""Requests that are spoken at a time on any machine."""


class SpeechService:
    """The service behind the endpoints. Close it when the server stops."""

    def __init__(self, synthesizer: Synthesizer, settings: ServeSettings, reopen: OpenModel | None = None) -> None:
        """`reopen` loads the model again, where `settings` let it leave memory."""
        self.settings = settings
        self.model_name, self.model_label = synthesizer.session.name, synthesizer.session.label
        self.lexicon = synthesizer.usual.lexicon
        self.voices = VoiceStore(synthesizer, settings.voices_folder or own_folder(), settings.limits)
        places = settings.listeners or settings.capacity
        throughput = Throughput(estimate=max(FIRST_ESTIMATE, (settings.listeners or 0.0) / MAX_LOAD))
        self.admission = Admission(places, settings.queue, settings.max_wait_seconds, throughput)
        most = max(places, MAX_LISTENERS) if settings.adapts_places else places
        self._most_places = MAX_LISTENERS if settings.adapts_places else places
        crowd = Crowd(lambda: self.admission.num_active, lambda: throughput.factor)
        self.model = IdleModel(
            synthesizer,
            lambda synthesizer: shared_batch(synthesizer, settings.capacity, most, crowd),
            self.voices.use_model,
            reopen=reopen,
            seconds=settings.unload_after_seconds,
        )
        self.metrics = ServerMetrics(self.admission, lambda: self.model.counts)
        self.metrics.voices.set_function(lambda: len(self.voices))
        self.pool = ThreadPoolExecutor(most, thread_name_prefix="marstts-speech")
        self.started_at = int(time.time())
        self.is_closing = False
        self._uploads = UploadQueue(MAX_UPLOADS, MAX_UPLOAD_WAIT_SECONDS, "marstts-clone")
        self._books = UploadQueue(MAX_UPLOADS, MAX_UPLOAD_WAIT_SECONDS, "marstts-books", at_once=BOOKS_AT_ONCE)
        self.whole_seconds = 0.0
        """Audio of whole files that are at work or wait."""
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="marstts-read")

    @property
    def batch(self) -> SharedBatch:
        """The running batch, for users of the model."""
        return self.model.batch

    @property
    def scheduler(self) -> AsyncScheduler:
        """The scheduler of the batch, for users of the model."""
        return self.batch.scheduler

    @property
    def synthesizer(self) -> Synthesizer:
        """The model, for its users."""
        return self.batch.synthesizer

    def note_made(self, ticket: Ticket, piece: FilePiece) -> None:
        """Count a piece of audio, and admit more or fewer listeners where the machine became faster or slower."""
        layout, model = self.synthesizer.session.engine.layout, self.synthesizer.session.model
        spoken_seconds = (
            piece.num_tokens / layout.patch_size / (model.patch_rate or self.synthesizer.session.codec.spec.patch_rate)
        )
        self.admission.made(ticket, piece.audio_seconds, spoken_seconds)
        self.metrics.count_piece(piece, layout.patch_size)
        if self.settings.adapts_places or self.settings.listeners is not None:
            self._adapt_places(has_run_dry=piece.dry_seconds > 0)

    def _adapt_places(self, *, has_run_dry: bool) -> None:
        """Admit as many listeners as were supplied: more at once, fewer only where the buffer of one has run dry.

        Few listeners need less audio than the machine can make, so little audio alone shows nothing. A number that the
        operator has chosen is the most.
        """
        supplied = min(self._most_places, max(1, int(MAX_LOAD * self.admission.throughput.factor)))
        if supplied > self.admission.places or (has_run_dry and supplied < self.admission.num_active):
            self.admission.set_places(supplied)

    @property
    def has_keys(self) -> bool:
        """Whether callers over HTTP need a key."""
        return bool(self.settings.api_keys or self.settings.admin_key)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The name of the model, then its aliases."""
        return (self.model_name, *(name for name in OPENAI_MODELS if name != self.model_name))

    def has_model(self, name: str) -> bool:
        """Whether a name in any case is that of the model, or an alias."""
        return name.casefold() in map(str.casefold, self.model_names)

    def warm_up(self) -> None:
        """Speak for many simulated callers at once, which creates threads and buffers and compiles rules of text."""
        places = min(self.admission.places, WARMING_FACTOR * self.settings.capacity)
        texts = [WARMING_TEXTS[place % len(WARMING_TEXTS)] for place in range(places)]
        with self.model.used():
            stream_at_once(self.batch, self.pool, texts)

    def close(self) -> None:
        """Stop the batch and all threads; requests that still run fail."""
        self.is_closing = True
        self.model.close()
        self.pool.shutdown(wait=True, cancel_futures=True)
        self._uploads.close()
        self._books.close()
        self._reading.shutdown(wait=True, cancel_futures=True)

    def spec_of(self, body: SpeechBody, caller: Caller, arriving: ArrivingText | None = None) -> JobSpec:
        """Return what a caller's request speaks; ApiError where model, voice or text cannot be spoken.

        `arriving` is a text that is still being written, in place of that of the body.
        """
        if self.is_closing:
            raise ApiError(503, "The server is stopping.", retry_after=5)
        if body.model is not None and not self.has_model(body.model):
            sentence = f"There is no model {body.model[:80]!r} here; the list of models (GET /v1/models) has all names."
            raise ApiError(404, sentence, param="model", code="model_not_found")
        limit = self.settings.limits.input_characters
        if len(body.input) > limit:
            raise ApiError(400, f"input: expected at most {limit} characters, not {len(body.input)}.", param="input")
        key = self.voices.resolve(body.voice_name, caller)
        how = body.speaking(CallersVoices(self.voices, caller, body.voices), self.lexicon)
        style = None if body.style_of is None else self.voices.resolve(body.style_of, caller)

        def open_voices() -> Speaking:
            return replace(
                how, voice=self.voices.open(key), style_of=None if style is None else self.voices.open(style)
            )

        return JobSpec(body, how, open_voices, arriving)

    def arriving_text(self) -> ArrivingText:
        """Return a text that a client will send piece by piece."""
        return ArrivingText(self.settings.limits.input_characters)

    async def measure_text(self, text: str, how: Speaking) -> float:
        """Return the seconds of audio that a text takes; long texts are read on a thread of their own."""
        if not needs_reading(text, how):
            seconds = self.synthesizer.session.backoff.usual(text) / how.speed
        else:
            loop = asyncio.get_running_loop()
            seconds = await loop.run_in_executor(self._reading, measure_text, self.synthesizer, text, how)
        return seconds if how.seconds is None else max(seconds, how.seconds)

    async def upload(
        self, name: str, recordings: Sequence[bytes], transcript: str, consent: str, caller: Caller
    ) -> tuple[StoredVoice, list[str]]:
        """Clone recordings of one speaker on the thread for uploads, and keep the voice -> the voice, and warnings.

        Another caller waits for the recording that is being cloned, not for all of them.
        """
        steps = self.voices.create_in_steps(name, recordings, transcript, consent, caller)
        return await self._uploads.run_steps(caller.name, lambda: self._with_model(lambda: next_step(steps)))

    async def mix(self, body: MixBody, caller: Caller) -> StoredVoice:
        """Mix voices of a caller on the thread for uploads, and keep the new one."""
        return await self.run_upload(caller, lambda: self.voices.mix(body.name, body.voices, body.consent, caller))

    async def run_upload(self, caller: Caller, work: Callable[[], T]) -> T:
        """Run work on a caller's recording on the thread for uploads; ApiError 429 where too many wait for it."""
        return await self._uploads.run(caller.name, lambda: self._with_model(work))

    async def run_without_model(self, caller: Caller, work: Callable[[], T]) -> T:
        """Run work on a caller's book or audio, which delays no recordings; ApiError 429 where too many wait for it."""
        try:
            return await self._books.run(caller.name, work)
        finally:
            asyncio.get_running_loop().call_later(RELEASE_SECONDS, release_memory)

    def _with_model(self, work: Callable[[], T]) -> T:
        with self.model.used():
            return work()


def release_memory() -> None:
    """Give memory that is free back to the system, where its C library keeps it (glibc)."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shared_batch(synthesizer: Synthesizer, capacity: int, places: int, crowd: Crowd) -> SharedBatch:
    """A running batch of `capacity` rows for `places` callers, which begins to run."""
    scheduler = AsyncScheduler(
        synthesizer.session.engine, capacity, places + capacity, due_soon=lambda: time.monotonic() + SOON_SECONDS
    )
    return SharedBatch(synthesizer, scheduler, PriorityGate(num_cores(), lambda: scheduler.is_busy), crowd)


def measure_listeners(synthesizer: Synthesizer, rows: int) -> int:
    """Return how many streams this machine keeps supplied: `MAX_LOAD` of the audio that it makes per second.

    As many streams as rows begin at once and are made as those of callers are, by their order and with their chunks.
    The first speech of a process takes longer, so that one is not measured.
    """
    for _ in synthesizer.stream(WARMING_TEXT):
        pass
    crowd = Crowd(lambda: rows, lambda: EXPECTED_SHARE * rows)
    shared = shared_batch(synthesizer, rows, rows, crowd)
    with shared.scheduler, ThreadPoolExecutor(rows) as pool:
        started = time.perf_counter()
        seconds = stream_at_once(shared, pool, [MEASURED_TEXT] * rows)
        return max(1, int(MAX_LOAD * seconds / (time.perf_counter() - started)))


def stream_at_once(shared: SharedBatch, pool: ThreadPoolExecutor, texts: Sequence[str]) -> float:
    """Stream texts as callers' requests are, on the threads of `pool` -> seconds of audio."""
    synthesizer = shared.synthesizer
    voice = synthesizer.open_voice()

    def stream(seed: int, text: str) -> float:
        body = SpeechBody(input=text, voice=voice.name, seed=seed, response_format=AudioFormat.PCM)
        how = replace(synthesizer.usual, seed=seed, voice=voice)
        spec = JobSpec(body, how, lambda: how)
        listener = Listener(synthesizer.session.codec, FIRST_AUDIO_SECONDS, crowd=shared.crowd, checks_sent=False)
        job = JobScheduler(shared, listener, starts_prompts=True)
        return sum(piece.audio_seconds for piece in make_pieces(synthesizer, job, spec, listener))

    return sum(pool.map(stream, range(len(texts)), texts))
