"""Pages of a few routes: JSON messages of bounded size and time, and errors in sentences.

Upstream: `web`.  Downstream: Starlette; `marstts.http.server`, which bounds connections.

A message must be JSON by its content type, which browsers let no page of another site send. Errors are JSON,
`{"error": sentence}`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, cast

import anyio
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from marstts.errors import MarsError
from marstts.http.server import HEADERS, INTERNAL_ERROR, SENTENCES, TWO_LENGTHS, ServerLimits, has_two_lengths

Get = Callable[[Request], Response]
Post = Callable[[Request], Awaitable[Response]]


class HTTPError(MarsError):
    """A request that cannot be served; `status` is HTTP's number for the reason."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class PageLimits(ServerLimits):
    """Limits on the messages and connections of clients."""

    max_body_bytes: int = 4096
    """A longer message is refused."""

    body_seconds: float = 20.0
    """A message that takes longer to arrive is refused."""


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
    limits = cast(PageLimits, request.app.state.limits)
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
    except ClientDisconnect as error:
        raise HTTPError(400, "The connection was closed before the whole message had come.") from error
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


def make_app(routes: Sequence[Route], limits: PageLimits | None = None) -> Starlette:
    """An application of these routes; its limits lie at `app.state.limits`."""
    handlers = {HTTPError: error_response, HTTPException: error_response, Exception: error_response}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.add_middleware(ClearLength)
    app.state.limits = limits or PageLimits()
    return app


class ClearLength:
    """An application that refuses requests with two lengths."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and has_two_lengths(scope):
            response = json_response({"error": TWO_LENGTHS}, 400)
            response.headers["Connection"] = "close"
            await response(scope, receive, send)
        else:
            await self.app(scope, receive, send)
