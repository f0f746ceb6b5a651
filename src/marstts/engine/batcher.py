"""Continuous batching: more utterances than run at once, each coming in as soon as another has left.

Upstream: any engine, and whoever has `Job`s.  Downstream: `synthesis.many` (a batch of texts), `synthesis.stream`
(callers who come and go).  It owes nothing to the paper.

`Batcher` is the loop: who runs beside whom follows from the order of `add` and from the lengths of the rows alone, so a
batch repeats exactly. `LiveBatcher` runs one on a thread of its own, for rows that begin whenever somebody asks.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from marstts.mars6.generate import Batch, Job, Row, Stepper, step

CHECK_SECONDS = 1.0
"""How often who waits for a row looks whether the batcher is still there."""


class Batcher:
    """At most `capacity` jobs side by side, the others waiting in line."""

    def __init__(self, stepper: Stepper[Any], capacity: int) -> None:
        assert capacity >= 1, f"a batch of {capacity} rows"
        self._stepper = stepper
        self._capacity = capacity
        self._waiting: deque[Job] = deque()
        self._leaving: set[Job] = set()
        self._batch = Batch()

    def add(self, job: Job, *, urgent: bool = False) -> None:
        """Let a job wait for its place: at the end of the line, or, if `urgent`, at its head."""
        (self._waiting.appendleft if urgent else self._waiting.append)(job)

    def drop(self, job: Job) -> None:
        """Forget a job, whether it waits or speaks; nothing happens where it has ended."""
        if job in self._waiting:
            self._waiting.remove(job)
        else:
            self._leaving.add(job)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_busy(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._waiting or any(row.job not in self._leaving for row in self._batch.speaking))

    def step(self) -> tuple[Row, ...]:
        """Admit as many as there is room for, and make one patch of every row: where each of them stands then.

        A row that has ended comes this once.
        """
        staying = sum(row.job not in self._leaving for row in self._batch.speaking)
        coming = [self._waiting.popleft() for _ in range(min(self._capacity - staying, len(self._waiting)))]
        batch, leaving = self._batch, self._leaving
        self._batch, self._leaving = Batch(), set()  # should the engine fail, its rows are gone
        self._batch = step(self._stepper, batch, coming, leaving)
        return self._batch.rows


class LiveBatcher:
    """A `Batcher` that runs on a thread of its own while there is something to do. Close it, or use it in a `with`."""

    def __init__(self, stepper: Stepper[Any], capacity: int = 8) -> None:
        self._batcher = Batcher(stepper, capacity)
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._listeners: dict[Job, SimpleQueue[Row | BaseException]] = {}
        self._thread = threading.Thread(target=self._run, name="marstts-batcher", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a thread that is within the engine when Python ends takes the process down

    def watch(self, job: Job) -> Generator[Row, None, None]:
        """Where a job stands after every patch; the last row has ended.

        Closing the iterator drops the job: at most the patch that is being made is still finished. Raises what the
        engine raised, and RuntimeError where the batcher is closed before the job has ended.
        """
        listener: SimpleQueue[Row | BaseException] = SimpleQueue()
        self._inbox.put(lambda: self._admit(job, listener))
        try:
            row = self._hear(listener)
            while row.stop is None:
                yield row
                row = self._hear(listener)
            yield row
        finally:
            self._inbox.put(lambda: self._dismiss(job))

    def close(self) -> None:
        """Stop after the patch that is being made; who still waits for rows is told."""
        atexit.unregister(self.close)
        self._inbox.put(None)
        self._thread.join()

    def __enter__(self) -> LiveBatcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _hear(self, listener: SimpleQueue[Row | BaseException]) -> Row:
        """The next row, or the error that came instead."""
        while True:
            is_open = self._thread.is_alive()
            try:
                row = listener.get(timeout=CHECK_SECONDS) if is_open else listener.get_nowait()
            except Empty:
                if not is_open:
                    raise RuntimeError("this batcher is closed") from None
                continue
            if isinstance(row, BaseException):
                raise row
            return row

    def _run(self) -> None:
        """The thread: what came in, one patch, what came in, …"""
        while True:
            while not self._batcher.is_busy or not self._inbox.empty():
                message = self._inbox.get()
                if message is None:
                    self._tell_all(RuntimeError("the batcher was closed before the end"))
                    return
                message()
            try:
                for row in self._batcher.step():
                    if row.job in self._listeners:
                        self._listeners[row.job].put(row)
            except Exception as error:
                self._tell_all(error)

    def _admit(self, job: Job, listener: SimpleQueue[Row | BaseException]) -> None:
        self._listeners[job] = listener
        self._batcher.add(job)

    def _dismiss(self, job: Job) -> None:
        if self._listeners.pop(job, None) is not None:
            self._batcher.drop(job)

    def _tell_all(self, error: Exception) -> None:
        for listener in self._listeners.values():
            listener.put(error)
