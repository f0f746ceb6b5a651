"""A small HTTP server that is safe by default: bounded messages, connections closed in time, one set of headers.

Upstream: `cli.serve` with `marstts.server`, `marstts_listening_test.web`.  Downstream: Starlette and uvicorn.

Messages are bounded in size and time, connections in number and in the time for which they may stay silent. Responses
let a browser load nothing from other sites. A message must be JSON by its content type, which browsers let no page of
another site send. Errors are JSON, `{"error": sentence}`. For the open internet put a proxy with TLS before it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import uvicorn
from starlette.applications import Starlette
from starlette.types import Scope

from marstts.errors import ConfigError
from marstts.http.certificate import Certificate
from marstts.http.connections import SilentConnections, TimedProtocol, timed_session

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; media-src 'self' blob:; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # a personal link is a secret
    "Cache-Control": "no-store",
}
SENTENCES = {404: "There is nothing at this address.", 405: "That cannot be done here."}
INTERNAL_ERROR = "Something went wrong on the server. Please try again."


@dataclass(frozen=True)
class ServerLimits:
    """Limits on the connections of clients."""

    silent_seconds: float = 20.0
    """A connection is closed if for so long it sends no whole request, or reads nothing of a response."""

    idle_seconds: int = 5
    """A connection that asks for nothing more is closed after this time."""

    max_connections: int = 512
    """Further connections get status 503; a browser opens up to six. Where half of these have sent no whole request,
    the oldest of them is closed for each new one, so that they do not keep others out."""

    max_message_bytes: int = 64 * 1024
    """A larger message of a WebSocket closes its connection."""

    drain_seconds: int = 2
    """Time that responses have to end once the server stops."""


TWO_LENGTHS = "Expected Content-Length or Transfer-Encoding, but the request has both."


def has_two_lengths(scope: Scope) -> bool:
    """Whether a request states the length of its body in two ways: a proxy before it may believe the other."""
    return {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}


class LoudServer(uvicorn.Server):
    """uvicorn's server, which tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.on_start: Callable[[], object] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_start()


UNFINISHED = "ASGI callable returned without completing response."


def is_no_cancellation(record: logging.LogRecord) -> bool:
    """Whether a record of the log is anything but a response that was cut off: the application has logged why."""
    return record.msg != UNFINISHED and not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def listen(address: str, port: int, option: str = "--port") -> socket.socket:
    """A socket that takes a port (0: any free one); ConfigError, which names the option, where it cannot be taken."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family)
    except (OSError, OverflowError, UnicodeError) as error:
        # Python adds the address to the system's sentence, and the library of names has numbers of its own
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, socket.gaierror):
            why = os.strerror(error.errno).lower()
        else:
            why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot listen at {address}, port {port}: {why}; name another {option}") from error


class Server:
    """Serves one application at one port; a context manager that frees the port."""

    def __init__(
        self,
        app: Starlette,
        address: str,
        port: int,
        *,
        has_sessions: bool = False,
        certificate: Certificate | None = None,
    ) -> None:
        """Take the port (0: any free one); ConfigError where it cannot be taken.

        `has_sessions`: run the application's lifespan, and serve its WebSockets. `certificate`: serve https.
        """
        if certificate is not None:
            certificate.check()
        self._scheme = "http" if certificate is None else "https"
        self.socket = listen(address, port)
        self.app, limits = app, cast(ServerLimits, app.state.limits)
        silent = SilentConnections(max(1, limits.max_connections // 2))
        values = {"silent_seconds": limits.silent_seconds}
        protocol = type("Protocol", (TimedProtocol,), values | {"silent": silent})
        config = uvicorn.Config(
            app,
            http=protocol,
            ws=type("Session", (timed_session(),), values) if has_sessions else "none",
            ws_max_size=limits.max_message_bytes,
            ws_per_message_deflate=False,  # a frame would be unpacked before its size is checked
            access_log=False,  # addresses hold personal links
            log_level="warning",
            server_header=False,
            lifespan="on" if has_sessions else "off",
            limit_concurrency=limits.max_connections,
            timeout_keep_alive=limits.idle_seconds,
            timeout_graceful_shutdown=limits.drain_seconds,
            ssl_certfile=None if certificate is None else str(certificate.path),
            ssl_keyfile=None if certificate is None else str(certificate.key_path),
        )
        self.server = LoudServer(config)
        logging.getLogger("uvicorn.error").addFilter(is_no_cancellation)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    @property
    def address(self) -> str:
        """URL of the first page."""
        host, port = self.socket.getsockname()[:2]
        return f"{self._scheme}://[{host}]:{port}/" if ":" in host else f"{self._scheme}://{host}:{port}/"

    def serve(self, on_start: Callable[[], object] = lambda: None) -> None:
        """Answer requests until `stop` is called, or until Ctrl-C (KeyboardInterrupt); call `on_start` at the start."""
        self.server.on_start = on_start
        self.server.run(sockets=[self.socket])

    def stop(self) -> None:
        """Make `serve` return once all responses are sent; may be called from any thread."""
        self.server.should_exit = True
