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
from dataclasses import dataclass
from itertools import count

from marstts.codec.base import Codec
from marstts.generation.request import RequestState
from marstts.synthesis.incremental_decoder import StreamConfig

FIRST_AUDIO_SECONDS = 0.15
"""Callers without audio go before those whose buffers last longer than this."""

FIRST_PATCHES = ((4, 2), (12, 3), (24, 5))
"""Listeners up to which the first chunk of a sentence has this many patches. The more callers there are, the longer its
audio must last until the second chunk comes: with two patches, the buffers of 24 callers would run dry."""

CROWDED_PATCHES, MIN_PATCHES, MAX_PATCHES = 6, 4, 24
"""Patches of the first chunk with more listeners; of the following ones at least and at most."""

LEAST = StreamConfig(first_chunk_patches=FIRST_PATCHES[0][1], max_chunk_patches=MIN_PATCHES)
"""The smallest chunks. They alone decide what is sent of a sentence by the time it ends, and so whether a flawed take
can be sampled again: that may not depend on who else listens."""

TRIMMED_PATCHES = 1
"""Part of the first chunk of a sentence that is not sent yet: silence, and what is held until more follows."""

USED_SLACK, GROWTH = 0.5, 3
"""Share of a buffer that may go by while the next chunk is generated, and its size relative to the one before; larger
chunks are cheaper to decode."""

KEPT_SECONDS = 1.0
"""What a buffer must still hold when a sentence that was held back is made: time to begin another attempt."""

SOON_SECONDS = 0.15
"""A buffer that will be empty within this time makes the running batch small."""


@dataclass(frozen=True)
class Crowd:
    """All callers at present, as each of them sees it."""

    num_listeners: Callable[[], int] = lambda: 1
    """Returns their number."""

    throughput: Callable[[], float] = lambda: 1.0
    """Returns the seconds of audio that are made for all of them in a second."""

    @property
    def share(self) -> float:
        """Seconds of audio that are made for each of them in a second."""
        return self.throughput() / max(1, self.num_listeners())


class Listener:
    """The buffer of one caller. Its methods may be called from any thread."""

    def __init__(
        self,
        codec: Codec,
        patience_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        crowd: Crowd = Crowd(),
        *,
        checks_sent: bool = True,
    ) -> None:
        """`patience_seconds`: time until the first audio is due."""
        self._crowd, self.checks_sent = crowd, checks_sent
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

    def resume(self) -> None:
        """Note that more text has come: a buffer that ran empty meanwhile is as one that never had audio."""
        if self._playing_since is not None and self.dry_at < self._clock():
            self._playing_since, self._sent_seconds = None, 0.0
        if self._playing_since is None:
            self._due = self._clock() + FIRST_AUDIO_SECONDS

    def held(self, seconds: float) -> None:
        """Note that the client did not take what was made for so long: it has that much more to play."""
        if self._playing_since is not None:
            self._playing_since += seconds

    def priority(self, row: RequestState | None) -> float:
        """When the buffer will be empty, counting what can be decoded of a row by now.

        Before the first audio nothing counts until the first chunk is whole; then others go first.
        """
        if row is None:
            return self.dry_at
        decodable = len(row.patches) - self._lookahead - self._decoded_patches
        least = self._first_patches if self._playing_since is None else 0
        return self.dry_at + max(0, decodable) / self._rate * (decodable >= least)

    def first(self) -> int:
        """Patches of the first chunk of a sentence, for as many listeners as there are now."""
        self._decoded_patches = 0
        present = self._crowd.num_listeners()
        self._first_patches = next((size for most, size in FIRST_PATCHES if present <= most), CROWDED_PATCHES)
        return self._first_patches

    @property
    def least(self) -> StreamConfig:
        """The smallest chunks that it chooses."""
        return LEAST

    def following(self, size: int) -> int:
        """Patches of the next chunk after one of `size`, which was decoded and not sent yet.

        At most `GROWTH` times as many, and as many as are made while `USED_SLACK` of the buffer goes by.
        """
        self._decoded_patches += size
        is_first = self._playing_since is None
        ahead = -TRIMMED_PATCHES if is_first else max(0.0, self.dry_at - self._clock()) * self._rate
        affordable = int((ahead + size) * USED_SLACK * self._crowd.share)
        return min(max(affordable, MIN_PATCHES), max(GROWTH * size, MIN_PATCHES), MAX_PATCHES)

    def may_wait(self, seconds: float) -> bool:
        """Whether the buffer lasts until so many more seconds of audio are made, with `KEPT_SECONDS` left."""
        if self._playing_since is None:
            return False
        return self.dry_at - self._clock() >= KEPT_SECONDS + seconds / max(self._crowd.share, 1e-9)


class PriorityGate:
    """Lets a few threads compute at a time; of those that wait, the one with the smallest key goes first."""

    def __init__(self, places: int, is_shared: Callable[[], bool] = lambda: False) -> None:
        """`is_shared`: whether the patches of the running batch need one of the places, which is not the only one."""
        self._places, self._is_shared = places, is_shared
        self._held = 0
        self._lock = threading.Lock()
        self._waiting: list[tuple[float, int, threading.Event]] = []
        self._arrivals = count()

    @contextmanager
    def turn(self, key: float) -> Iterator[None]:
        """Wait for a place, and hold it for the body of a `with`."""
        admitted = threading.Event()
        with self._lock:
            heapq.heappush(self._waiting, (key, next(self._arrivals), admitted))
            self._admit()
        admitted.wait()
        try:
            yield
        finally:
            with self._lock:
                self._held -= 1
                self._admit()

    def _admit(self) -> None:
        """Give free places to those that wait; the lock is held."""
        places = max(1, self._places - self._is_shared())
        while self._waiting and self._held < places:
            heapq.heappop(self._waiting)[2].set()
            self._held += 1
