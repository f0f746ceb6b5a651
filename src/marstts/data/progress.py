"""Progress of long commands: the fraction done and the time left, logged now and then.

Upstream: stages that work through many items.  Downstream: the logger of the caller.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

INTERVAL_SECONDS = 10.0
"""Least time between two lines of progress."""


class Progress:
    """Counts finished items and logs a line every INTERVAL_SECONDS, with the time left by the average rate so far."""

    def __init__(
        self, log: logging.Logger, what: str, total: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`what` names the items, such as "shards"; `total` is None where the number of items is unknown."""
        self._log, self._what, self._total, self._clock = log, what, total, clock
        self._begun = self._logged = clock()
        self.done = 0

    def advance(self, note: str = "") -> None:
        """Count one item; `note` is added to the line, if one is logged now."""
        self.done += 1
        now = self._clock()
        if now - self._logged >= INTERVAL_SECONDS or self.done == self._total:
            self._logged = now
            self._log.info("%s%s", self.line(now - self._begun), f"; {note}" if note else "")

    def line(self, elapsed: float) -> str:
        """The state after `elapsed` seconds; see `progress_line`."""
        if self._total is None:
            return f"{self.done} {self._what}"
        seconds = elapsed / self.done * (self._total - self.done) if self.done else None
        return progress_line(self.done, self._total, self._what, seconds)


def progress_line(done: int, total: int, what: str, seconds: float | None) -> str:
    """The share that is done, and the time left, such as "12 of 40 shards (30%), about 3 min left"."""
    text = f"{done} of {total} {what}" + (f" ({done / total:.0%})" if total else "")
    return text + (f", about {show_duration(seconds)} left" if done < total and seconds is not None else "")


def show_duration(seconds: float) -> str:
    """A duration in its largest unit, such as 3 min."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 1.95 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
