"""Work on uploaded files, in turns between callers; of each caller one at a time.

Upstream: `service`.  Downstream: threads. A caller who sends many files waits for them; another one waits for at most
the one that is at work, or its step, and not for that where there are several threads.
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
    """Runs the work of callers on a few threads, each caller's next work in turn. Used from one event loop.

    In a full queue, the caller with the most waiting work gives up its last one for a caller that has fewer.
    """

    def __init__(self, max_waiting: int, max_seconds: float, thread_name: str, *, at_once: int = 1) -> None:
        """`max_waiting`: work that waits, of all callers; `max_seconds`: the longest wait; `at_once`: callers whose
        work runs at the same time."""
        self._max, self._max_seconds, self._at_once = max_waiting, max_seconds, at_once
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix=thread_name)
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._working: set[str] = set()
        self._last = ""

    async def run(self, owner: str, work: Callable[[], T]) -> T:
        """Run work in its turn -> its result; ApiError 429 where too much waits, or for too long."""
        return await self._run(owner, work, has_begun=False)

    async def run_steps(self, owner: str, step: Callable[[], tuple[T] | None]) -> T:
        """Run `step`, each time in a turn of its own, until it returns a result; errors as of `run`."""
        ended = await self._run(owner, step, has_begun=False)
        while ended is None:
            ended = await self._run(owner, step, has_begun=True)
        return ended[0]

    async def _run(self, owner: str, work: Callable[[], T], *, has_begun: bool) -> T:
        loop = asyncio.get_running_loop()
        if len(self._working) < self._at_once and owner not in self._working:
            self._begin(owner)
        else:
            await self._turn(owner, loop.create_future(), has_begun=has_begun)
        future = self._pool.submit(work)
        future.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(self._end, owner))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Wait for the work that runs; none is begun any more."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def _turn(self, owner: str, turn: asyncio.Future[None], *, has_begun: bool) -> None:
        """Wait for a turn; work that has begun is the caller's next, and is not refused for want of room."""
        if not has_begun and sum(map(len, self._waiting.values())) >= self._max:
            self._make_room(owner)
        turns = self._waiting.setdefault(owner, deque())
        turns.insert(0 if has_begun else len(turns), turn)
        try:
            await asyncio.wait_for(asyncio.shield(turn), self._max_seconds)
        except BaseException as error:
            self._forget(owner, turn)
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._end(owner)  # it has got its turn, which it does not use
            if isinstance(error, TimeoutError):
                raise refusal() from error
            raise

    def _begin(self, owner: str) -> None:
        self._working.add(owner)
        self._last = owner

    def _end(self, owner: str) -> None:
        """Give the turn to the caller who has waited longest for one, and is not the one who had it."""
        self._working.discard(owner)
        while len(self._working) < self._at_once:
            idle = [each for each in self._waiting if each not in self._working]
            if not idle:
                return
            following = next((each for each in idle if each != self._last), idle[0])
            turns = self._waiting.pop(following)
            turn = turns.popleft()
            if turns:
                self._waiting[following] = turns
            if not turn.done():
                self._begin(following)
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
