"""The priority scheduler: which rows run follows from their priorities; rows that can wait are parked.

Upstream: `scheduler.AsyncScheduler`.  Downstream: `loop`, whose rows can be parked and resumed between two patches.

A row's priority is a number that may change with time, such as the time at which its listener has nothing left to
play; the smaller, the sooner it runs. Rows of equal priority run in the order of their arrival and are never parked.
While a row is due soon, the batch is small, because a step takes longer the more rows it has.
Parking does not change tokens: states are values, and a row's random numbers are its own.
Where a step fails, its rows are run one by one, so that only those that fail by themselves are given up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from marstts.generation.engine import Engine
from marstts.generation.loop import ParkedRow, RunningBatch, park_rows, step, without_done
from marstts.generation.request import Request, RequestState

Priority = Callable[[RequestState | None], float]
"""The priority of a row, from its state; None before its first patch."""

QUANTUM = 4
"""Patches that a row makes at least before it is parked: parking copies its caches."""

MARGIN = 0.05
"""A row is parked for another one only where the difference of their priorities is larger."""

SMALL_BATCH = 8
"""Rows of the batch while one of them is due soon."""

MAX_STARTS = 2
"""Prompts encoded in one step while other rows run, whose listeners wait meanwhile."""


@dataclass(eq=False)
class Entry:
    """A request in the scheduler."""

    request: Request
    priority: Priority
    arrival: int

    row: RequestState | None = None
    """The last state; None before its first patch."""

    parked: ParkedRow | None = None
    """Set where it has a state and does not run."""

    running_since: int | None = None
    """The step in which it joined the batch; None where it does not run."""

    @property
    def is_started(self) -> bool:
        """Whether the engine holds a state of it."""
        return self.parked is not None or self.running_since is not None


class PriorityScheduler:
    """At most `capacity` rows in the running batch, and at most `max_rows` rows with a state, parked ones included."""

    def __init__(
        self,
        engine: Engine[Any],
        capacity: int,
        max_rows: int | None = None,
        due_soon: Callable[[], float] = lambda: -math.inf,
    ) -> None:
        """Rows whose priority is less than `due_soon()` are due soon; by default none is."""
        assert capacity >= 1, f"a batch of {capacity} rows"
        self._engine, self._capacity, self._due_soon = engine, capacity, due_soon
        self._max_rows = 4 * capacity if max_rows is None else max(max_rows, capacity)
        self._entries: dict[Request, Entry] = {}
        self._cancelled: set[Request] = set()
        self._batch = RunningBatch()
        self._failures: dict[Request, Exception] = {}
        self._num_steps = 0
        self._arrivals, self._urgent_arrivals = count(), count(-1, -1)

    def add(
        self, request: Request, *, urgent: bool = False, priority: Priority | None = None, state: Any = None
    ) -> None:
        """Queue a request; `urgent` puts it before others of equal priority. `state` is that of `engine.start`, if
        the caller has started its prompt already.
        """
        arrival = next(self._urgent_arrivals if urgent else self._arrivals)
        entry = Entry(request, priority or no_priority, arrival)
        row = RequestState.begin(request, self._engine.layout)
        if state is not None and row.stop is None:
            entry.parked = ParkedRow(row, state)
        self._entries[request] = entry

    def drop(self, request: Request) -> None:
        """Cancel a request, whether it waits, runs or is parked; nothing happens where it has ended."""
        entry = self._entries.pop(request, None)
        if entry is not None and entry.running_since is not None:
            self._cancelled.add(request)

    @property
    def num_waiting(self) -> int:
        """Requests without a state."""
        return sum(not entry.is_started for entry in list(self._entries.values()))

    @property
    def num_running(self) -> int:
        """Rows of the running batch."""
        return sum(entry.running_since is not None for entry in list(self._entries.values()))

    @property
    def num_parked(self) -> int:
        """Rows that have a state and do not run."""
        return sum(entry.parked is not None for entry in list(self._entries.values()))

    @property
    def is_busy(self) -> bool:
        """True while `step` has work."""
        return bool(self._entries)

    def pop_failures(self) -> dict[Request, Exception]:
        """Requests that failed since the last call, and why."""
        failures, self._failures = self._failures, {}
        return failures

    def step(self) -> tuple[RequestState, ...]:
        """Make one patch of the rows that come first -> these rows. A row that has ended comes once."""
        self._num_steps += 1
        chosen = self._choose()
        running = [entry for entry in self._entries.values() if entry.running_since is not None]
        leaving = [entry for entry in running if entry not in chosen]
        joining = [entry for entry in chosen if entry.running_since is None]
        rows = self._advance(leaving, joining)
        for row in rows:
            if row.stop is None:
                self._entries[row.request].row = row
            else:
                del self._entries[row.request]
        return rows

    def _choose(self) -> list[Entry]:
        """The entries that run next, at most `capacity`."""
        entries = sorted(self._entries.values(), key=self._rank)
        capacity = self._capacity_now()
        free_states = self._max_rows - sum(entry.is_started for entry in entries)
        starts = MAX_STARTS if any(entry.is_started for entry in entries) else self._capacity
        chosen: list[Entry] = []
        for entry in entries:
            if not entry.is_started:
                if min(starts, free_states) <= 0:
                    continue
                starts, free_states = starts - 1, free_states - 1
            chosen.append(entry)
            if len(chosen) == capacity:
                break
        return chosen

    def _capacity_now(self) -> int:
        """Rows that may run in the next step."""
        bound = self._due_soon()
        is_hurried = any(entry.priority(entry.row) < bound for entry in self._entries.values())
        return min(self._capacity, SMALL_BATCH) if is_hurried else self._capacity

    def _rank(self, entry: Entry) -> tuple[bool, float, int]:
        """Sort key: first rows that joined a moment ago, then by priority, with an advantage for rows that run."""
        since = entry.running_since
        is_fresh = since is not None and self._num_steps - since < QUANTUM
        advantage = 0.0 if since is None else MARGIN
        return not is_fresh, entry.priority(entry.row) - advantage, entry.arrival

    def _advance(self, leaving: Sequence[Entry], joining: Sequence[Entry]) -> tuple[RequestState, ...]:
        """Park the rows that leave, let the others join, and make one patch -> the rows that made it."""
        batch = without_done(self._engine, self._batch, self._cancelled)
        self._batch, self._cancelled = RunningBatch(), set()
        parked = [entry.parked for entry in joining if entry.parked is not None]
        admitted = [entry.request for entry in joining if entry.parked is None]
        requests = [*(row.request for row in batch.rows), *(entry.request for entry in joining)]
        generators = [request.rng.bit_generator for request in requests]
        snapshots = [generator.state for generator in generators]
        try:
            batch, left = park_rows(self._engine, batch, {entry.request for entry in leaving})
            for one in left:
                self._park(one)
            self._batch = step(self._engine, batch, admitted, resumed=parked)
        except Exception:
            for generator, snapshot in zip(generators, snapshots, strict=True):
                generator.state = snapshot
            return self._advance_separately(batch, joining)
        for entry in joining:
            entry.parked, entry.running_since = None, self._num_steps
        return self._batch.rows

    def _park(self, one: ParkedRow) -> None:
        entry = self._entries[one.row.request]
        entry.row, entry.parked, entry.running_since = one.row, one, None

    def _advance_separately(self, batch: RunningBatch, joining: Sequence[Entry]) -> tuple[RequestState, ...]:
        """Make one patch of each row alone, and park it -> the rows that did not fail."""
        batches = [(row.request, partial(self._alone, batch, row)) for row in batch.rows]
        batches += [(entry.request, partial(self._joined, entry)) for entry in joining]
        rows = []
        for request, make in batches:
            try:
                alone = make()
                [row] = alone.rows
                if row.stop is None:
                    state = self._engine.append(alone.state, np.stack([row.patches[-1]]))
                    self._park(ParkedRow(row, state))
                rows.append(row)
            except Exception as error:
                self._failures[request] = error
                del self._entries[request]
        return tuple(rows)

    def _alone(self, batch: RunningBatch, row: RequestState) -> RunningBatch:
        """One more patch of a row of `batch`, by itself."""
        state = self._engine.select(batch.state, [batch.rows.index(row)])
        return step(self._engine, RunningBatch((row,), state, batch.is_appended))

    def _joined(self, entry: Entry) -> RunningBatch:
        """One more patch of a row that was about to join, by itself."""
        if entry.parked is not None:
            return step(self._engine, RunningBatch(), resumed=[entry.parked])
        return step(self._engine, RunningBatch(), [entry.request])


def no_priority(row: RequestState | None) -> float:
    """The priority of all requests that were given none: first come, first served."""
    return 0.0
