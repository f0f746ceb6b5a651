"""Connections that are closed in time: uvicorn waits for ever for a client that neither asks nor reads.

Upstream: `http.server`; `websocket` and `wyoming_server` for their own silent clients.  Downstream: uvicorn.
Silence has a time limit; the number of silent connections is limited besides, so that nobody is refused until then.
"""

from __future__ import annotations

import asyncio
import re
from asyncio import Handle, Transport
from collections.abc import Callable, Hashable

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CLOSE_SECONDS = 1.0
"""Time that a client has to answer the close of a WebSocket."""


class SilentConnections:
    """The silent connections of one server, in the order in which they fell silent. Used from its event loop alone."""

    def __init__(self, max_connections: int) -> None:
        self._max = max_connections
        self._closers: dict[Hashable, Callable[[], object]] = {}

    def add(self, connection: Hashable, close: Callable[[], object]) -> None:
        """Note that a connection is silent, which keeps the place of a noted one; close the oldest of too many."""
        self._closers.setdefault(connection, close)
        while len(self._closers) > self._max:
            self._closers.pop(next(iter(self._closers)))()

    def remove(self, connection: Hashable) -> None:
        """Note that a connection has sent its message, or is closed."""
        self._closers.pop(connection, None)


class UnreadTimer(asyncio.Protocol):
    """Mixed into a protocol: closes a connection that reads nothing of what is sent for `silent_seconds`."""

    silent_seconds: float
    transport: Transport
    loop: asyncio.AbstractEventLoop
    _write_timer: Handle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._time_write(None)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_write_timer()
        super().connection_lost(exc)

    def _time_write(self, unread: int | None) -> None:
        """Look again later; abort where no fewer bytes than `unread` wait, as many as the last time."""
        size = self.transport.get_write_buffer_size()
        if unread is not None and size >= unread:
            self.transport.abort()
        else:
            self._stop_write_timer()
            self._write_timer = self.loop.call_later(self.silent_seconds, self._time_write, size)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


class TimedProtocol(UnreadTimer, H11Protocol):
    """HTTP/1.1 that closes connections which neither ask, nor finish asking, nor read their response.

    Addresses that are not ASCII are percent-encoded.
    """

    silent: SilentConnections
    _request_timer: Handle | None = None
    _has_session = False
    """Whether the connection has become a WebSocket."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_request_timer()
        self.silent.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(escape_address(data) if self.conn.their_state is h11.IDLE else data)
        self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over to the protocol of sessions."""
        self._has_session = True
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch()  # closing waits for what the client has not read yet

    def _watch(self) -> None:
        """Count the connection as silent until its request is whole, and time it until the body begins."""
        is_asked = self.cycle is not None and not self.cycle.response_complete
        if self._has_session or (is_asked and not self.cycle.more_body):
            self._stop_request_timer()
            self.silent.remove(self)
            return
        if is_asked:
            self._stop_request_timer()  # the application limits the time of a body
        elif self._request_timer is None:
            self._request_timer = self.loop.call_later(self.silent_seconds, self.transport.abort)
        self.silent.add(self, self.transport.abort)

    def _stop_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None


def escape_address(data: bytes) -> bytes:
    """Percent-encode all bytes of the first line that are not ASCII: the line of a request that holds its address."""
    line, end, rest = data.partition(b"\n")
    return re.sub(rb"[\x80-\xff]", lambda found: b"%%%02X" % found[0][0], line) + end + rest


def timed_session() -> type[asyncio.Protocol]:
    """The protocol of WebSockets whose clients must read what they are sent; it needs wsproto."""
    from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

    class TimedSession(UnreadTimer, WSProtocol):
        """A WebSocket; sessions have their other limits in the application."""

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.close_timeout = CLOSE_SECONDS

    return TimedSession
