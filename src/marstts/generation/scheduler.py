"""The batch scheduler (continuous batching): requests join the running batch as soon as others have finished.

Upstream: any `Engine`, and callers that have `Request`s.  Downstream: `synthesis.runner`, servers.

`Scheduler` is the loop: which rows share a batch follows from the order of `add` and the lengths of the rows alone, so
that a run repeats exactly. `AsyncScheduler` runs a `PriorityScheduler` on a separate thread, for requests that arrive
at any time; `AsyncScheduler.client` gives one of many callers the interface of a `Scheduler`, so that all share one
running batch.
"""

from __future__ import annotations

import atexit
import math
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Protocol

from marstts.generation.engine import Engine
from marstts.generation.loop import RunningBatch, step
from marstts.generation.priority_scheduler import Priority, PriorityScheduler
from marstts.generation.request import Request, RequestState

CHECK_SECONDS = 1.0
"""Interval at which a waiting caller checks that the scheduler's thread is alive."""

Event = RequestState | BaseException
"""A row after one more patch, or the error that came instead."""

Needed = Callable[[], float]
"""Returns the patches that a row must have before its caller wants to see it."""


class RequestScheduler(Protocol):
    """The interface that `Scheduler` and `SchedulerClient` share."""

    @property
    def num_waiting(self) -> int:
        """Requests that are not in the batch yet."""
        ...

    @property
    def is_busy(self) -> bool:
        """True while `step` has work."""
        ...

    def add(self, request: Request, *, urgent: bool = False, needed: Needed | None = None) -> None:
        """Queue a request: at the end of the queue, or, if `urgent`, at its head. See `AsyncScheduler.stream`."""
        ...

    def drop(self, request: Request) -> None:
        """Cancel a request, whether it waits or runs; nothing happens where it has ended."""
        ...

    def step(self) -> tuple[RequestState, ...]:
        """Return rows that have one more patch; a row that has ended comes once."""
        ...

    def decode_turn(self) -> AbstractContextManager[None]:
        """Return a context in which audio is decoded; servers order their callers by it."""
        ...


class SharedScheduler(Protocol):
    """A scheduler that many callers share, each through a `SchedulerClient`."""

    def submit(
        self, request: Request, events: SimpleQueue[Event], *, urgent: bool = False, needed: Needed | None = None
    ) -> None:
        """Queue a request whose rows go to `events`; see `AsyncScheduler`."""
        ...

    def cancel(self, request: Request) -> None:
        """Cancel a request; nothing happens where it has ended."""
        ...

    def next_event(self, events: SimpleQueue[Event]) -> RequestState:
        """Wait for the next row in `events`; raises the error that came instead."""
        ...

    def decode_turn(self) -> AbstractContextManager[None]:
        """Return a context in which a caller decodes audio; servers order their callers by it."""
        ...


class Scheduler:
    """At most `capacity` requests in the running batch, the others in a queue."""

    def __init__(self, engine: Engine[Any], capacity: int) -> None:
        assert capacity >= 1, f"a batch of {capacity} rows"
        self._engine = engine
        self._capacity = capacity
        self._waiting: deque[Request] = deque()
        self._cancelled: set[Request] = set()
        self._batch = RunningBatch()

    def add(self, request: Request, *, urgent: bool = False, needed: Needed | None = None) -> None:
        """Queue a request: at the end of the queue, or, if `urgent`, at its head. Every patch is returned."""
        (self._waiting.appendleft if urgent else self._waiting.append)(request)

    def drop(self, request: Request) -> None:
        """Cancel a request, whether it waits or runs; nothing happens where it has ended."""
        if request in self._waiting:
            self._waiting.remove(request)
        else:
            self._cancelled.add(request)

    @property
    def num_waiting(self) -> int:
        """Requests that are not in the batch yet."""
        return len(self._waiting)

    @property
    def num_active(self) -> int:
        """Rows of the running batch that continue."""
        return sum(row.request not in self._cancelled for row in self._batch.active)

    @property
    def is_busy(self) -> bool:
        """True while `step` has work."""
        return bool(self._waiting or self.num_active)

    def step(self) -> tuple[RequestState, ...]:
        """Admit as many requests as fit, and make one patch of every row -> all rows.

        A row that has ended comes once.
        """
        free = self._capacity - self.num_active
        admitted = [self._waiting.popleft() for _ in range(min(free, len(self._waiting)))]
        batch, cancelled = self._batch, self._cancelled
        self._batch, self._cancelled = RunningBatch(), set()  # should the engine fail, its rows are gone
        self._batch = step(self._engine, batch, admitted, cancelled)
        return self._batch.rows

    def decode_turn(self) -> AbstractContextManager[None]:
        """Return a context in which audio is decoded: no one else needs it."""
        return nullcontext()


class AsyncScheduler:
    """A `PriorityScheduler` that runs on a separate thread while there is work. Close it, or use it in a `with`."""

    def __init__(
        self,
        engine: Engine[Any],
        capacity: int = 8,
        max_rows: int | None = None,
        due_soon: Callable[[], float] = lambda: -math.inf,
    ) -> None:
        """See `PriorityScheduler` for `max_rows` and `due_soon`."""
        self.capacity = capacity
        self._scheduler = PriorityScheduler(engine, capacity, max_rows, due_soon)
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._subscribers: dict[Request, tuple[SimpleQueue[Event], Needed]] = {}
        self._thread = threading.Thread(target=self._run, name="marstts-scheduler", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a thread that is within the engine when Python ends takes the process down

    @property
    def is_busy(self) -> bool:
        """Whether its thread has rows to run."""
        return self._scheduler.is_busy

    @property
    def counts(self) -> dict[str, int]:
        """Rows by what they do: running, parked, waiting. The numbers may be those of different patches."""
        rows = self._scheduler
        return {"running": rows.num_running, "parked": rows.num_parked, "waiting": rows.num_waiting}

    def stream(self, request: Request, needed: Needed | None = None) -> Generator[RequestState, None, None]:
        """Yield the state of a request after every patch; the last one has ended.

        With `needed`, states of fewer patches than it returns are left out, so that the caller is not woken for them.
        Closing the iterator cancels the request: at most the patch in the making is still finished. Raises what the
        engine raised, and RuntimeError where the scheduler is closed before the request has ended.
        """
        client = self.client()
        client.add(request, needed=needed)
        try:
            while client.is_busy:
                yield from client.step()
        finally:
            client.close()

    def client(self) -> SchedulerClient:
        """A new caller of this scheduler."""
        return SchedulerClient(self)

    def close(self) -> None:
        """Stop after the patch in the making; callers that still wait get a RuntimeError."""
        atexit.unregister(self.close)
        self._inbox.put(None)
        self._thread.join()

    def __enter__(self) -> AsyncScheduler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(
        self,
        request: Request,
        events: SimpleQueue[Event],
        *,
        urgent: bool = False,
        needed: Needed | None = None,
        priority: Priority | None = None,
        state: Any = None,
    ) -> None:
        """Queue a request whose rows go to `events`. Returns at once.

        See `stream` for `needed`, and `PriorityScheduler.add` for the rest. Both functions run on this scheduler's
        thread, between two patches.
        """

        def admit() -> None:
            self._subscribers[request] = events, needed or every_patch
            self._scheduler.add(request, urgent=urgent, priority=priority, state=state)

        self._inbox.put(admit)

    def decode_turn(self) -> AbstractContextManager[None]:
        """Return a context in which a caller decodes audio; servers order their callers by it."""
        return nullcontext()

    def cancel(self, request: Request) -> None:
        """Cancel a request. Returns at once; nothing happens where it has ended."""
        self._inbox.put(lambda: self._cancel(request))

    def next_event(self, events: SimpleQueue[Event]) -> RequestState:
        """Wait for the next row in `events`; raises the error that came instead."""
        while True:
            is_open = self._thread.is_alive()
            try:
                event = events.get(timeout=CHECK_SECONDS) if is_open else events.get_nowait()
            except Empty:
                if not is_open:
                    raise RuntimeError("this scheduler is closed") from None
                continue
            if isinstance(event, BaseException):
                raise event
            return event

    def _run(self) -> None:
        """Alternate between the inbox and one patch of the batch, until closed."""
        while True:
            while not self._scheduler.is_busy or not self._inbox.empty():
                message = self._inbox.get()
                if message is None:
                    self._broadcast(RuntimeError("the scheduler was closed before the end"))
                    return
                message()
            try:
                self._publish(self._scheduler.step())
            except Exception as error:
                self._broadcast(error)

    def _publish(self, rows: Sequence[RequestState]) -> None:
        """Hand rows and failures to their callers."""
        for row in rows:
            if row.request in self._subscribers:
                events, needed = self._subscribers[row.request]
                if row.stop is not None:
                    del self._subscribers[row.request]
                if row.stop is not None or len(row.patches) >= needed():
                    events.put(row)
        for request, error in self._scheduler.pop_failures().items():
            if request in self._subscribers:
                self._subscribers.pop(request)[0].put(error)

    def _cancel(self, request: Request) -> None:
        if self._subscribers.pop(request, None) is not None:
            self._scheduler.drop(request)

    def _broadcast(self, error: Exception) -> None:
        for events in {id(queue): queue for queue, _ in self._subscribers.values()}.values():
            events.put(error)
        self._subscribers.clear()


def every_patch() -> float:
    """A caller that wants to see a row after every patch."""
    return 0.0


class SchedulerClient:
    """One caller of a scheduler that others share, with the interface of a `Scheduler`."""

    def __init__(self, scheduler: SharedScheduler) -> None:
        self._scheduler = scheduler
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._pending: set[Request] = set()
        """Requests that have not ended."""
        self._started: set[Request] = set()

    @property
    def num_waiting(self) -> int:
        """This caller's requests of which no patch has come yet."""
        return len(self._pending - self._started)

    @property
    def is_busy(self) -> bool:
        """True while a request of this caller has not ended."""
        return bool(self._pending)

    def add(self, request: Request, *, urgent: bool = False, needed: Needed | None = None) -> None:
        """Queue a request in the shared scheduler."""
        self._pending.add(request)
        self._scheduler.submit(request, self._events, urgent=urgent, needed=needed)

    def drop(self, request: Request) -> None:
        """Cancel a request; nothing happens where it has ended."""
        self._pending.discard(request)
        self._started.discard(request)
        self._scheduler.cancel(request)

    def step(self) -> tuple[RequestState, ...]:
        """Wait for at least one row, and return all rows that came; every patch of every request comes once."""
        rows = [self._scheduler.next_event(self._events)]
        while not self._events.empty():
            rows.append(self._scheduler.next_event(self._events))
        kept = tuple(row for row in rows if row.request in self._pending)
        self._started |= {row.request for row in kept}
        ended = {row.request for row in kept if row.stop is not None}
        self._pending -= ended
        self._started -= ended
        return kept

    def decode_turn(self) -> AbstractContextManager[None]:
        """Return a context in which audio is decoded."""
        return self._scheduler.decode_turn()

    def close(self) -> None:
        """Cancel all requests that have not ended."""
        for request in list(self._pending):
            self.drop(request)
