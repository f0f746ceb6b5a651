"""The model of a server and its running batch, which leave memory while nobody speaks, and come back for the next.

Upstream: `service`, which states who uses the model.  Downstream: `synthesis.loading`, `speech_job.SharedBatch`.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from marstts.server.api_errors import ApiError
from marstts.server.speech_job import SharedBatch
from marstts.synthesis.synthesizer import Synthesizer

log = logging.getLogger(__name__)

OpenModel = Callable[[], Synthesizer]


class IdleModel:
    """A model that is loaded while it has users. Its methods may be called from any thread."""

    def __init__(
        self,
        synthesizer: Synthesizer,
        start_batch: Callable[[Synthesizer], SharedBatch],
        on_change: Callable[[Synthesizer | None], None],
        *,
        reopen: OpenModel | None = None,
        seconds: float | None = None,
    ) -> None:
        """After `seconds` without a user the model leaves memory; `reopen` loads it again. None: it stays.

        `on_change` is called with each model that was loaded, and with None when it has left.
        """
        self._start_batch, self._on_change, self._reopen = start_batch, on_change, reopen
        self._seconds = seconds if reopen is not None else None
        self._state, self._loading = threading.Lock(), threading.Lock()
        self._users = 0
        self._timer: threading.Timer | None = None
        self._batch: SharedBatch | None = start_batch(synthesizer)
        self._is_closed = False
        on_change(synthesizer)
        self._rest()

    @property
    def batch(self) -> SharedBatch:
        """The running batch; the caller is a user, or the model is never unloaded."""
        batch = self._batch
        assert batch is not None, "users enter before they speak"
        return batch

    @property
    def is_loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._batch is not None

    @property
    def counts(self) -> dict[str, int]:
        """Rows of the batch by what they do; none where the model is not loaded."""
        batch = self._batch
        return {"running": 0, "parked": 0, "waiting": 0} if batch is None else batch.scheduler.counts

    async def enter(self) -> None:
        """Become a user; the model is loaded where it is not. ApiError 503 where it cannot be loaded."""
        if self._enter_loaded():
            return
        entering = asyncio.get_running_loop().run_in_executor(None, self._enter)
        try:
            await asyncio.shield(entering)
        except asyncio.CancelledError:  # the caller has left, while the thread becomes a user
            entering.add_done_callback(lambda done: None if done.exception() else self.leave())
            raise

    @contextmanager
    def used(self) -> Iterator[None]:
        """Be a user for the body of a `with`, on a thread that may wait."""
        if not self._enter_loaded():
            self._enter()
        try:
            yield
        finally:
            self.leave()

    def leave(self) -> None:
        """Be a user no longer."""
        with self._state:
            self._users -= 1
            self._rest()

    def close(self) -> None:
        """Stop the batch for good; requests that still run fail."""
        with self._state:
            self._is_closed = True
            self._wake()
        if (batch := self._batch) is not None:
            batch.scheduler.close()

    def _enter_loaded(self) -> bool:
        with self._state:
            if self._batch is None:
                return False
            self._users += 1
            self._wake()
            return True

    def _enter(self) -> None:
        with self._loading:
            if self._enter_loaded():
                return
            assert self._reopen is not None
            try:
                synthesizer = self._reopen()
                batch = self._start_batch(synthesizer)
            except Exception as error:
                log.error(f"the model cannot be loaded again: {error}")
                raise ApiError(503, "The model cannot be loaded; see the log of the server.", retry_after=60) from error
            with self._state:
                if self._is_closed:
                    batch.scheduler.close()
                    raise ApiError(503, "The server is stopping.", retry_after=5)
                self._batch, self._users = batch, self._users + 1
                self._on_change(synthesizer)

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rest(self) -> None:
        """Begin to wait for the next user; called with the lock of the state, or before there are threads."""
        self._wake()
        if self._users == 0 and self._seconds is not None and self._batch is not None and not self._is_closed:
            self._timer = threading.Timer(self._seconds, self._unload)
            self._timer.daemon = True
            self._timer.start()

    def _unload(self) -> None:
        with self._state:
            if self._users or self._is_closed or self._batch is None or self._timer is not threading.current_thread():
                return
            batch, self._batch, self._timer = self._batch, None, None
            self._on_change(None)
        batch.scheduler.close()
        del batch
        release_memory()
        log.info("the model was idle and has left memory; the next request loads it again")


def release_memory() -> None:
    """Give memory that nobody holds back to the system, and that of a GPU."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):  # not in musl
            libc.malloc_trim(0)
