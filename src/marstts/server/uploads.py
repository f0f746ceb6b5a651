"""Work on uploaded files, one at a time, in turns between callers.

Upstream: `service`.  Downstream: a thread. A caller who sends many files waits for them; another one waits for at most
the one that is at work.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from marstts.server.api_errors import ApiError

T = TypeVar("T")


class UploadQueue:
    """Runs the work of callers on one thread, each caller's next work in turn. Used from one event loop.

    In a full queue, the caller with the most waiting work gives up its last one for a caller that has fewer.
    """

    def __init__(self, max_waiting: int, max_seconds: float, thread_name: str) -> None:
        """`max_waiting`: work that waits, of all callers; `max_seconds`: the longest wait."""
        self._max, self._max_seconds = max_waiting, max_seconds
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=thread_name)
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._is_busy, self._last = False, ""

    async def run(self, owner: str, work: Callable[[], T]) -> T:
        """Run work in its turn -> its result; ApiError 429 where too much waits, or for too long."""
        loop = asyncio.get_running_loop()
        if self._is_busy:
            await self._turn(owner, loop.create_future())
        self._is_busy, self._last = True, owner
        future = self._pool.submit(work)
        future.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(self._next))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Wait for the work that runs; none is begun any more."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def _turn(self, owner: str, turn: asyncio.Future[None]) -> None:
        if sum(map(len, self._waiting.values())) >= self._max:
            self._make_room(owner)
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await asyncio.wait_for(asyncio.shield(turn), self._max_seconds)
        except BaseException as error:
            self._forget(owner, turn)
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._next()  # it has got its turn, which it does not use
            if isinstance(error, TimeoutError):
                raise refusal() from error
            raise

    def _next(self) -> None:
        """Give the turn to the caller who has waited longest for one, and is not the one who had it."""
        self._is_busy = False
        while self._waiting and not self._is_busy:
            owner = next((each for each in self._waiting if each != self._last), self._last)
            turns = self._waiting.pop(owner)
            turn = turns.popleft()
            if turns:
                self._waiting[owner] = turns
            if not turn.done():
                self._is_busy, self._last = True, owner
                turn.set_result(None)

    def _make_room(self, owner: str) -> None:
        """Refuse the last work of the caller with most of it; ApiError where that is `owner`, too."""
        greediest = max(self._waiting, key=lambda each: len(self._waiting[each]))
        if len(self._waiting[greediest]) <= len(self._waiting.get(owner, ())) + 1:
            raise refusal()
        last = self._waiting[greediest][-1]
        self._forget(greediest, last)
        last.set_exception(refusal())

    def _forget(self, owner: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(owner)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[owner]


def refusal() -> ApiError:
    """The error where others' files come first."""
    return ApiError(429, "Other files are being read or cloned. Try again later.", retry_after=5)
