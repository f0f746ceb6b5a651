"""The buffer of a caller, and what follows from it: the order of rows and of decoding, and the size of chunks.

Upstream: `speech_job`, which notes the audio that was sent.  Downstream: `PriorityScheduler`, `PriorityGate`.

Each caller has a time at which its buffer is empty ("dry"), and the earliest goes first. A caller without audio counts
as one whose buffer will be empty `FIRST_AUDIO_SECONDS` after it came; one who wants the whole file, as one whose buffer
lasts a few seconds longer than the speech.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from marstts.codec.base import Codec
from marstts.generation.request import RequestState

FIRST_AUDIO_SECONDS = 0.15
"""Callers without audio go before those whose buffers last longer than this."""

FIRST_PATCHES = ((4, 2), (12, 3))
"""Listeners up to which the first chunk of a sentence has so many patches. The more callers there are, the longer its
audio must last until the second chunk comes: with two patches, the buffers of 24 callers would run dry."""

CROWDED_PATCHES, MIN_PATCHES, MAX_PATCHES = 4, 4, 24
"""Patches of the first chunk with more listeners; of the following ones at least and at most."""

USED_SLACK, GROWTH = 0.6, 3
"""Share of a buffer that may go by while the next chunk is generated, and its size relative to the one before; larger
chunks are cheaper to decode."""


class Listener:
    """The buffer of one caller. Its methods may be called from any thread."""

    def __init__(
        self,
        codec: Codec,
        patience_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        num_listeners: Callable[[], int] = lambda: 1,
        *,
        checks_sent: bool = True,
    ) -> None:
        """`patience_seconds`: time until the first audio is due; `num_listeners`: callers at present, this included."""
        self._num_listeners, self.checks_sent = num_listeners, checks_sent
        self._rate, self._lookahead, self._clock = codec.spec.patch_rate, codec.lookahead_patches, clock
        self._due = clock() + patience_seconds
        self._playing_since: float | None = None
        self._sent_seconds = 0.0
        self._decoded_patches = self._first_patches = 0

    @property
    def dry_at(self) -> float:
        """When all audio that was sent will have been played (`time.monotonic`)."""
        return self._due if self._playing_since is None else self._playing_since + self._sent_seconds

    def sent(self, seconds: float) -> float:
        """Note audio that was sent -> seconds for which the buffer had been empty until then."""
        if seconds <= 0.0:
            return 0.0
        now = self._clock()
        if self._playing_since is None:
            self._playing_since = now
        dry_seconds = max(0.0, now - self.dry_at)
        self._playing_since += dry_seconds  # the listener paused for so long
        self._sent_seconds += seconds
        return dry_seconds

    def priority(self, row: RequestState | None) -> float:
        """When the buffer will be empty, counting what can be decoded of a row by now.

        Before the first audio, only what is more than the first chunk counts: then others go first.
        """
        if row is None:
            return self.dry_at
        first = self._first_patches if self._playing_since is None else 0
        decodable = len(row.patches) - self._lookahead - self._decoded_patches - first
        return self.dry_at + max(0, decodable) / self._rate

    def first(self) -> int:
        """Patches of the first chunk of a sentence."""
        self._decoded_patches = 0
        present = self._num_listeners()
        self._first_patches = next((size for most, size in FIRST_PATCHES if present <= most), CROWDED_PATCHES)
        return self._first_patches

    def following(self, size: int) -> int:
        """Patches of the next chunk after one of `size`: at most `GROWTH` times as many, and what the buffer allows.

        A buffer that is empty shows that the machine is too slow: chunks grow all the same, as small ones cost more.
        """
        self._decoded_patches += size
        slack = self.dry_at - self._clock()
        affordable = 2 * size if slack < 0.0 else int(slack * USED_SLACK * self._rate)
        return min(max(affordable, MIN_PATCHES), max(GROWTH * size, MIN_PATCHES), MAX_PATCHES)


class PriorityGate:
    """Lets a few threads compute at a time; of those that wait, the one with the smallest key goes first."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._lock = threading.Lock()
        self._waiting: list[tuple[float, int, threading.Event]] = []
        self._arrivals = count()

    @contextmanager
    def turn(self, key: float) -> Iterator[None]:
        """Wait for a place, and hold it for the body of a `with`."""
        admitted = threading.Event()
        with self._lock:
            if self._free:
                self._free -= 1
                admitted.set()
            else:
                heapq.heappush(self._waiting, (key, next(self._arrivals), admitted))
        admitted.wait()
        try:
            yield
        finally:
            with self._lock:
                if self._waiting:
                    heapq.heappop(self._waiting)[2].set()
                else:
                    self._free += 1
