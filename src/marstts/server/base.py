"""A small HTTP server that is safe by default: bounded messages, connections closed in time, one set of headers.

Upstream: applications made of a few routes, such as `listening_test.web`.  Downstream: Starlette and uvicorn.

Messages are bounded in size and time, connections in number and in the time for which they may stay silent. Responses
let a browser load nothing from other sites. A message must be JSON by its content type, which browsers let no page of
another site send. Errors are JSON, `{"error": sentence}`. For the open internet put a proxy with TLS before it.
"""

from __future__ import annotations

import json
import re
import socket
from asyncio import Handle, Transport
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, cast

import anyio
import h11
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from marstts.errors import ConfigError
from marstts.server.certificate import Certificate
from marstts.server.http_error import HTTPError
from marstts.server.silent_connections import SilentConnections
from marstts.server.unread_timer import UnreadTimer

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; media-src 'self' blob:; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # a personal link is a secret
    "Cache-Control": "no-store",
}
SENTENCES = {404: "There is nothing at this address.", 405: "That cannot be done here."}
INTERNAL_ERROR = "Something went wrong on the server. Please try again."

Get = Callable[[Request], Response]
Post = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class ServerLimits:
    """Limits on the messages and connections of clients."""

    max_body_bytes: int = 4096
    """A longer message is refused."""

    body_seconds: float = 20.0
    """A message that takes longer to arrive is refused."""

    silent_seconds: float = 20.0
    """A connection is closed if for so long it sends no whole request, or reads nothing of a response."""

    idle_seconds: int = 5
    """A connection that asks for nothing more is closed after this time."""

    max_connections: int = 512
    """Further connections get status 503; a browser opens up to six. Where half of these are silent, the oldest of
    the silent ones is closed for each new one, so that they do not keep others out."""

    drain_seconds: int = 2
    """Time that responses have to end once the server stops."""


def json_response(value: Any, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(json.dumps(value), status, HEADERS, "application/json")


def bytes_response(content: bytes, media_type: str) -> Response:
    """A whole file."""
    return Response(content, 200, HEADERS, media_type)


def static_file(package: str, name: str, media_type: str) -> Get:
    """An endpoint for one file in the folder `static` of a package; the file is read once, now."""
    content = (files(package) / "static" / name).read_bytes()
    return lambda request: bytes_response(content, media_type)


def json_endpoint(act: Callable[[Request, Any], Any], status: int = 200) -> Post:
    """An endpoint that takes a JSON message; `act` runs on a worker thread and returns the value of the response."""

    async def endpoint(request: Request) -> Response:
        message = await read_message(request)
        return json_response(await run_in_threadpool(act, request, message), status)

    return endpoint


async def read_message(request: Request) -> Any:
    """The JSON value of a request's body; HTTPError where it is not JSON, too long or too slow."""
    limits = cast(ServerLimits, request.app.state.limits)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPError(415, "Expected a message of type application/json.")
    body = b""
    try:
        with anyio.fail_after(limits.body_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.max_body_bytes:
                    raise HTTPError(413, f"Expected a message of at most {limits.max_body_bytes} bytes.")
    except TimeoutError as error:
        raise HTTPError(408, "The message took too long to arrive.") from error
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPError(400, "Expected a message in JSON.") from error


def error_response(request: Request, error: Exception) -> Response:
    """`{"error": sentence}`; an unexpected exception shows nothing of itself."""
    if isinstance(error, HTTPError):
        return json_response({"error": str(error)}, error.status)
    status = error.status_code if isinstance(error, HTTPException) else 500
    return json_response({"error": SENTENCES.get(status, INTERNAL_ERROR)}, status)


def make_app(routes: Sequence[Route], limits: ServerLimits | None = None) -> Starlette:
    """An application of these routes; its limits lie at `app.state.limits`."""
    handlers = {HTTPError: error_response, HTTPException: error_response, Exception: error_response}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.state.limits = limits or ServerLimits()
    return app


class TimedProtocol(UnreadTimer, H11Protocol):
    """HTTP/1.1 that closes connections which neither ask, nor finish asking, nor read their response.

    uvicorn limits the time between two requests only. Addresses that are not ASCII are percent-encoded.
    """

    silent: SilentConnections
    _request_timer: Handle | None = None
    _has_session = False
    """Whether the connection has become a WebSocket."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._time_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_request_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.conn.their_state is h11.IDLE:
            data = escape_address(data)
        super().data_received(data)
        if self._is_answering() or self._has_session:
            self._stop_request_timer()
        else:
            self._time_request()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over to `TimedSession`."""
        self._has_session = True
        self._stop_request_timer()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_answering():
            self._time_request()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._time_request()  # closing waits for what the client has not read yet

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _time_request(self) -> None:
        self._request_timer = self._request_timer or self._abort_later()
        self.silent.add(self, self.transport.abort)

    def _stop_request_timer(self) -> None:
        self.silent.remove(self)
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _abort_later(self) -> Handle:
        return self.loop.call_later(self.silent_seconds, self.transport.abort)


def escape_address(data: bytes) -> bytes:
    """Percent-encode all bytes of the first line that are not ASCII: the line of a request that holds its address."""
    line, end, rest = data.partition(b"\n")
    return re.sub(rb"[\x80-\xff]", lambda found: b"%%%02X" % found[0][0], line) + end + rest


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
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self.socket = socket.create_server((address, port), family=family)
        except (OSError, OverflowError, UnicodeError) as error:
            raise ConfigError(f"cannot listen at {address}, port {port}: {error}; name another --port") from error
        self.app, limits = app, cast(ServerLimits, app.state.limits)
        silent = SilentConnections(max(1, limits.max_connections // 2))
        values: dict[str, Any] = {"silent_seconds": limits.silent_seconds}
        sessions: Any = "none"
        if has_sessions:
            from marstts.server.timed_session import TimedSession  # needs wsproto, which pages without sessions do not

            sessions = type("Session", (TimedSession,), values)
        protocol = type("Protocol", (TimedProtocol,), {**values, "silent": silent})
        config = uvicorn.Config(
            app,
            http=protocol,
            ws=sessions,
            ws_max_size=limits.max_body_bytes,
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
        self.server = uvicorn.Server(config)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    @property
    def address(self) -> str:
        """URL of the first page."""
        host, port = self.socket.getsockname()[:2]
        return f"{self._scheme}://[{host}]:{port}/" if ":" in host else f"{self._scheme}://{host}:{port}/"

    def serve(self) -> None:
        """Answer requests until `stop` is called, or until Ctrl-C (KeyboardInterrupt)."""
        self.server.run(sockets=[self.socket])

    def stop(self) -> None:
        """Make `serve` return once all responses are sent; may be called from any thread."""
        self.server.should_exit = True

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self.server.should_exit
