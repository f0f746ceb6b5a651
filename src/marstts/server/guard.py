"""Checks of every request before its endpoint: host, key, and bounds on the body; and headers on every response.

Upstream: any ASGI server.  Downstream: the application. A plain ASGI wrapper, so that streams pass untouched.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marstts.server.api_errors import ApiError, error_response
from marstts.server.base import HEADERS
from marstts.server.settings import ServeLimits, ServeSettings

OPEN_PATHS = frozenset({"/", "/health", "/metrics"})
"""Paths that need no key; so do the files of the page, which hold no data."""

PAGE_PREFIX = "/page/"
FORM_BYTES = 65_536
"""Bytes that a form may have in addition to its recording."""


class KeyRing:
    """API keys, kept as SHA-256 digests and compared in constant time."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [digest(key) for key in keys]

    def admits(self, authorization: str) -> bool:
        """Whether the header `Authorization` holds one of the keys; True where there are none."""
        scheme, _, key = authorization.partition(" ")
        found = digest(key.strip()) if scheme.lower() == "bearer" else b""
        matches = [hmac.compare_digest(found, known) for known in self._digests]  # all of them, for equal time
        return not self._digests or any(matches)


def digest(key: str) -> bytes:
    """SHA-256 of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class Guard:
    """An application that refuses requests before any endpoint reads them."""

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self.app, self.limits = app, settings.limits
        self.keys = KeyRing(settings.api_keys)
        self.hosts = frozenset(settings.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._guard_session(scope, receive, send)
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._check(scope["path"], headers)
            limit = body_limit(headers, self.limits)
        except ApiError as error:
            await error_response(error)(scope, receive, send)
            return
        await self.app(scope, bounded(receive, limit, self.limits.body_seconds), with_headers(send))

    async def _guard_session(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a WebSocket as a request would be; the origin shows pages of other sites, too."""
        headers = Headers(scope=scope)
        try:
            self._check(scope["path"], headers)
            origin = headers.get("origin")
            if origin is not None and origin.partition("://")[2] != headers.get("host"):
                raise ApiError(403, "A page of another site cannot use this server.")
        except ApiError:
            await send({"type": "websocket.close", "code": 1008})
            return
        await self.app(scope, receive, send)

    def _check(self, path: str, headers: Headers) -> None:
        if self.hosts and host_name(headers.get("host", "")) not in self.hosts:
            raise ApiError(400, "This host is not served here; use the address that the server printed.")
        if path in OPEN_PATHS or path.startswith(PAGE_PREFIX):
            return
        if not self.keys.admits(headers.get("authorization", "")):
            raise ApiError(401, "Expected an API key of this server: the header `Authorization: Bearer KEY`.")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise ApiError(403, "A page of another site cannot use this server.")


def host_name(host: str) -> str:
    """The header `Host` without its port."""
    return host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0].lower()


def body_limit(headers: Headers, limits: ServeLimits) -> int:
    """Bytes that the body may have; ApiError where the header states more."""
    is_form = headers.get("content-type", "").lower().startswith("multipart/form-data")
    limit = limits.upload_bytes + FORM_BYTES if is_form else limits.json_bytes
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()) or int(length[:20]) > limit:
        raise too_large(limit)
    return limit


def too_large(limit: int) -> ApiError:
    """The error for a body beyond the limit."""
    return ApiError(413, f"Expected a body of at most {limit} bytes.")


def bounded(receive: Receive, limit: int, seconds: float) -> Receive:
    """The same messages; ApiError where the body exceeds `limit` bytes or takes longer than `seconds` to arrive."""
    deadline = asyncio.get_running_loop().time() + seconds
    count, is_whole = 0, False

    async def receive_bounded() -> Message:
        nonlocal count, is_whole
        if is_whole:
            return await receive()
        try:
            remaining = deadline - asyncio.get_running_loop().time()
            message = await asyncio.wait_for(receive(), max(0.0, remaining))
        except TimeoutError as error:
            raise ApiError(408, "The body took too long to arrive.") from error
        count += len(message.get("body", b""))
        if count > limit:
            raise too_large(limit)
        is_whole = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    return receive_bounded


def with_headers(send: Send) -> Send:
    """The same responses, with the headers that every response has."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
