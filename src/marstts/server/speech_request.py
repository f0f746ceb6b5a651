"""One request for speech, from its admission to its last byte, whichever door it came through.

Upstream: the doors: `speech_response` (HTTP), `websocket`, `wyoming_server`, `mcp_tools`.  Downstream: `service`, of
which it takes a place, a thread, memory and the use of the model; `speech_job`, the thread's side of it.

A request has one life and one end. Whether it is finished, its client leaves, its deadline comes or it fails:
`SpeechRequest.end` gives all of it back and counts it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType

from marstts.errors import MarsError
from marstts.server.admission import Ticket
from marstts.server.api_errors import ApiError
from marstts.server.arriving_text import ArrivingText
from marstts.server.audio_budget import AudioBudget
from marstts.server.callers import Caller
from marstts.server.metrics import RequestOutcome
from marstts.server.schemas import SpeechBody
from marstts.server.service import SpeechService
from marstts.server.speech_job import FilePiece, JobEnded, SpeechJob

log = logging.getLogger(__name__)

EXTRA_SECONDS = 10.0
"""Added to the time that a request may take."""


class SpeechRequest:
    """A request for speech; a context manager, so that it ends with the body of the `with`."""

    def __init__(
        self, service: SpeechService, body: SpeechBody, caller: Caller, arriving: ArrivingText | None = None
    ) -> None:
        """ApiError where model, voice or text cannot be spoken.

        `arriving` is a text that is still being written, in place of that of the body.
        """
        self._service, self._owner = service, caller.name
        self._spec = service.spec_of(body, caller, arriving)
        self.body = body
        self.num_tokens = 0
        """Tokens of the takes that ended so far."""
        self.outcome: RequestOutcome | None = None
        """How it has ended; None while it runs."""
        self._budget = AudioBudget(service.settings.limits.audio_seconds)
        self._uses_model = False
        self._held_seconds = 0.0
        """Audio that it holds in memory to its end."""
        self._ticket: Ticket | None = None
        """Its place, where it has one."""
        self._timer: asyncio.TimerHandle | None = None
        self._job: SpeechJob | None = None

    async def __aenter__(self) -> SpeechRequest:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(RequestOutcome.LEFT)  # of all ends, the one that the request does not see by itself

    async def pieces(self) -> AsyncGenerator[FilePiece, None]:
        """Wait for a place, and yield all pieces as they are made; the first has bytes, but for an arriving text.

        Raises ApiError where there is too much audio, or no place or no audio in time, MarsError where the text cannot
        be spoken.
        """
        try:
            async for piece in self._whole_text() if self._spec.arriving is None else self._arriving_text():
                yield piece
        except JobEnded as error:
            raise self._ended_error() from error
        except Exception as error:
            self.end(outcome_of(error))
            if self._service.is_closing and not isinstance(error, MarsError):
                raise self._ended_error() from error
            raise
        self.end(RequestOutcome.OK)

    def end(self, outcome: RequestOutcome) -> None:
        """End the request, and give back all that it has; only the first end counts.

        Its thread is free within a patch, and gives the place back then.
        """
        if self.outcome is not None:
            return
        self.outcome = outcome
        self._stop_clock()
        if self._job is not None:
            self._job.end()
        self._service.whole_seconds -= self._held_seconds
        if self._uses_model:
            self._service.model.leave()
        self._service.metrics.count(self.body.response_format.value, outcome)

    async def _whole_text(self) -> AsyncIterator[FilePiece]:
        """Speak a text that is known: one place and one deadline for all of it."""
        service, started = self._service, time.monotonic()
        await self._use_model()
        expected_seconds = await service.measure_text(self.body.input, self._spec.how)
        speaking_seconds = self._speaking_seconds(expected_seconds)
        waited = await self._take_place(expected_seconds)
        self._job = SpeechJob(service.batch, self._spec)
        self._job.start(service.pool, self._leave_place)
        first_seconds = service.settings.limits.first_audio_seconds + (0.0 if self.body.stream else speaking_seconds)
        self._end_after(first_seconds - waited)
        pieces = self._counted(self._job)
        first = await first_with_bytes(pieces)
        service.metrics.first_audio.observe(time.monotonic() - started)
        self._end_after(EXTRA_SECONDS + speaking_seconds)
        yield first
        async for piece in pieces:
            yield piece

    async def _arriving_text(self) -> AsyncIterator[FilePiece]:
        """Speak a text that is still being written: a place and a deadline for each of its sentences."""
        await self._use_model()
        self._job = SpeechJob(self._service.batch, self._spec)
        self._job.start_session(self._begin_sentence, self._rest)
        async for piece in self._counted(self._job):
            yield piece

    async def _begin_sentence(self, expected_seconds: float) -> None:
        """Wait for a place for the next sentence of a text that is still being written."""
        self._leave_place()
        waited = await self._take_place(expected_seconds)
        seconds = self._service.settings.limits.first_audio_seconds + self._speaking_seconds(expected_seconds)
        self._end_after(seconds + EXTRA_SECONDS - waited)

    def _rest(self) -> None:
        """Wait for more text, which takes no place and has no deadline."""
        self._leave_place()
        self._stop_clock()

    async def _use_model(self) -> None:
        await self._service.model.enter()
        self._uses_model = True

    async def _take_place(self, expected_seconds: float) -> float:
        """Wait for a place for so much audio -> the seconds that it waited."""
        service = self._service
        self._budget.spend(expected_seconds)
        self._hold(expected_seconds)
        ticket = await service.admission.enter(expected_seconds, self._owner)
        if self.outcome is not None:  # it has ended meanwhile
            service.admission.leave(ticket)
            raise JobEnded
        self._ticket = ticket
        service.metrics.wait.observe(ticket.wait_seconds)
        return ticket.wait_seconds

    def _leave_place(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._service.admission.leave(ticket)

    def _hold(self, seconds: float) -> None:
        """Note audio that is held in memory to its end; ApiError 429 where there is too much of it."""
        if self.body.stream:
            return
        if self._service.whole_seconds + seconds > self._service.settings.limits.whole_audio_seconds:
            sentence = "The server is busy with long files. Try again later, or ask for a stream."
            raise ApiError(429, sentence, retry_after=self._service.admission.retry_after())
        self._service.whole_seconds += seconds
        self._held_seconds = seconds

    async def _counted(self, job: SpeechJob) -> AsyncIterator[FilePiece]:
        """The pieces of a job, counted."""
        async for piece in job.pieces():
            self._service.note_made(self._ticket or Ticket(0.0), piece)
            self.num_tokens += piece.num_tokens
            yield piece

    def _speaking_seconds(self, expected_seconds: float) -> float:
        """Seconds that so much audio may take to be made."""
        return self._service.settings.limits.seconds_per_audio_second * expected_seconds * max(self.body.speed, 1.0)

    def _end_after(self, seconds: float) -> None:
        """Set the deadline, in place of the one before."""
        self._stop_clock()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, seconds), self._expire)

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        log.warning("a request took longer than its time limit and was ended; the machine may be overloaded")
        self.end(RequestOutcome.DEADLINE)

    def _ended_error(self) -> ApiError:
        """Why there are no more pieces, for a client that still waits for them."""
        is_late = self.outcome is RequestOutcome.DEADLINE
        reason = "The request took too long; try again." if is_late else "The server is stopping."
        return ApiError(503, reason, retry_after=5)


async def first_with_bytes(pieces: AsyncIterator[FilePiece]) -> FilePiece:
    """The first piece with bytes, with all that those before it had to say."""
    first = FilePiece(b"")
    async for piece in pieces:
        first = piece.after(first)
        if first.content:
            break
    return first


def outcome_of(error: Exception) -> RequestOutcome:
    """The outcome of a request that failed by this error."""
    is_refused = isinstance(error, ApiError) and error.status == 429
    return RequestOutcome.REFUSED if is_refused else RequestOutcome.ERROR
