"""A connection that reads nothing of what is sent is closed in time; uvicorn waits for it for ever.

Upstream: `base.TimedProtocol` and `timed_session.TimedSession`.  Downstream: the transport.
"""

from __future__ import annotations

import asyncio
from asyncio import Handle, Transport


class UnreadTimer(asyncio.Protocol):
    """Mixed into a protocol: closes a connection that reads nothing of what is sent for `silent_seconds`."""

    silent_seconds: float
    transport: Transport
    loop: asyncio.AbstractEventLoop
    _write_timer: Handle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._time_write()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_write_timer()
        super().connection_lost(exc)

    def _time_write(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self.silent_seconds, self._abort_unless_read, unread)

    def _abort_unless_read(self, unread: int) -> None:
        if self.transport.get_write_buffer_size() < unread:
            self._time_write()
        else:
            self.transport.abort()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
