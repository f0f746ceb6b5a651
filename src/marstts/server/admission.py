"""Admission: which requests are spoken now, which wait, and which are refused with a time to try again.

Upstream: the speech endpoint.  Downstream: the shared scheduler, whose batch has one row for each place here.

Everything here runs in the event loop. The time to try again is the audio that is owed to all callers, divided by the
audio that the machine was measured to make in a second while it was busy.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from marstts.server.api_errors import ApiError

FIRST_ESTIMATE = 2.0
"""Seconds of audio per second, before any was measured: slower than any machine that is of use as a server."""

MEASURED_SECONDS = 30.0
"""Busy time over which the throughput is averaged."""

MAX_RETRY_SECONDS = 60.0
"""Clients of OpenAI's API wait no longer than a minute."""


class Throughput:
    """Seconds of audio made per second, averaged over the last busy time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, estimate: float = FIRST_ESTIMATE) -> None:
        """`estimate`: seconds of audio per second, before any was measured."""
        self._clock = clock
        self._audio, self._busy = estimate, 1.0
        self._since: float | None = None

    def set_busy(self, is_busy: bool) -> None:
        """Note that work has begun or that nothing is left to do."""
        self._count()
        self._since = self._clock() if is_busy else None

    def add(self, seconds: float) -> None:
        """Note audio that was made."""
        self._audio += seconds

    @property
    def factor(self) -> float:
        """Seconds of audio per second."""
        self._count()
        return max(self._audio / self._busy, 0.1)

    def _count(self) -> None:
        if self._since is not None:
            now = self._clock()
            self._busy, self._since = self._busy + now - self._since, now
        if self._busy > MEASURED_SECONDS:
            self._audio *= MEASURED_SECONDS / self._busy
            self._busy = MEASURED_SECONDS


@dataclass(eq=False)
class Ticket:
    """One request that was admitted."""

    owed_seconds: float
    """Audio that is expected and was not made yet."""

    owner: str = ""
    """The caller's key or address."""

    wait_seconds: float = 0.0


class Admission:
    """At most `places` requests at work and `queue` that wait.

    A free place goes to the caller with the fewest requests at work; of equal ones, to the one that came first. In a
    full queue, the caller with the most waiting requests gives up its last one for a caller that has fewer.
    """

    def __init__(self, places: int, queue: int, max_wait_seconds: float, throughput: Throughput) -> None:
        self.places, self.queue, self.max_wait_seconds = places, queue, max_wait_seconds
        self.throughput = throughput
        self._active: set[Ticket] = set()
        self._waiting: deque[tuple[asyncio.Future[None], Ticket]] = deque()

    @property
    def num_active(self) -> int:
        """Requests at work."""
        return len(self._active)

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a place."""
        return len(self._waiting)

    @property
    def owed_seconds(self) -> float:
        """Audio that is expected by all callers and was not made yet."""
        return sum(ticket.owed_seconds for ticket in [*self._active, *(waiting for _, waiting in self._waiting)])

    def retry_after(self) -> float:
        """Seconds until the work of today's callers should be done."""
        return min(max(self.owed_seconds / self.throughput.factor, 1.0), MAX_RETRY_SECONDS)

    async def enter(self, expected_seconds: float, owner: str = "") -> Ticket:
        """Wait for a place -> a ticket to give back with `leave`; ApiError 429 where there is no place in time.

        Canceling the wait gives up the turn.
        """
        ticket = Ticket(expected_seconds, owner)
        if len(self._active) < self.places:
            self._start(ticket)
            return ticket
        if len(self._waiting) >= self.queue:
            self._make_room(owner)
        started = time.monotonic()
        entry = (asyncio.get_running_loop().create_future(), ticket)
        self._waiting.append(entry)
        try:
            await asyncio.wait({entry[0]}, timeout=self.max_wait_seconds)
        except asyncio.CancelledError:
            if entry[0].done() and entry[0].exception() is None:
                self.leave(ticket)
            raise
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)
        if not entry[0].done() or entry[0].exception() is not None:
            raise self._refusal()
        ticket.wait_seconds = time.monotonic() - started
        return ticket

    def made(self, ticket: Ticket, seconds: float, spoken_seconds: float | None = None) -> None:
        """Note audio that was made for a ticket; `spoken_seconds` of it were computed, the others are pauses."""
        ticket.owed_seconds = max(0.0, ticket.owed_seconds - seconds)
        self.throughput.add(seconds if spoken_seconds is None else spoken_seconds)

    def set_places(self, places: int) -> None:
        """Have this many places; requests at work beyond them go on."""
        self.places = places
        self._fill()

    def leave(self, ticket: Ticket) -> None:
        """Free the place of a ticket for the first that waits."""
        self._active.discard(ticket)
        self._fill()
        if not self._active:
            self.throughput.set_busy(False)

    def _fill(self) -> None:
        while self._waiting and len(self._active) < self.places:
            first = min(self._waiting, key=lambda entry: self._num_active_of(entry[1].owner))
            self._waiting.remove(first)
            future, following = first
            if not future.done():
                self._start(following)
                future.set_result(None)

    def _num_active_of(self, owner: str) -> int:
        return sum(ticket.owner == owner for ticket in self._active)

    def _make_room(self, owner: str) -> None:
        """Refuse the last request of the caller with the most waiting ones; ApiError where that is `owner`, too."""
        waiting = Counter(ticket.owner for _, ticket in self._waiting)
        greediest, most = max(waiting.items(), key=lambda item: item[1], default=(owner, 0))
        if most <= waiting[owner] + 1:
            raise self._refusal()
        last = [entry for entry in self._waiting if entry[1].owner == greediest][-1]
        self._waiting.remove(last)
        last[0].set_exception(self._refusal())

    def _start(self, ticket: Ticket) -> None:
        if not self._active:
            self.throughput.set_busy(True)
        self._active.add(ticket)

    def _refusal(self) -> ApiError:
        return ApiError(
            429,
            f"The server is busy: {self.num_active} requests are spoken and {self.num_waiting} wait. Try again later.",
            retry_after=self.retry_after(),
        )
