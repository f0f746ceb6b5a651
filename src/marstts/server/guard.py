"""Checks of every request before its endpoint: host, key, origin, and bounds on the body; and headers of responses.

Upstream: any ASGI server.  Downstream: the application. A plain ASGI wrapper, so that streams pass untouched.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from dataclasses import replace

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marstts.http.server import HEADERS, TWO_LENGTHS, has_two_lengths
from marstts.server.api_errors import ApiError, error_response
from marstts.server.callers import ADMINISTRATOR, Caller, KeyRing
from marstts.server.settings import ServeLimits, ServeSettings

OPEN_PATHS = frozenset({"/", "/health", "/metrics"})
"""Paths that need no key; so do the files of the page, which hold no data."""

PAGE_PREFIX = "/page/"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
FORM_BYTES = 65_536
"""Bytes that a form may have in addition to its recording."""

HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::(?P<port>[0-9]{1,5}))?")
"""A name or an address, and a port."""

PRIVATE_SUFFIXES = (".local", ".localhost", ".lan", ".internal", ".home.arpa")
"""Ends of names that no public name server can give an address."""

FOREIGN_PAGE = "A page of another site cannot use this server; its operator can admit one by --cors-origin."


class Guard:
    """An application that refuses requests before any endpoint reads them."""

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self.app, self.settings, self.limits = app, settings, settings.limits
        self.keys = KeyRing(settings.api_keys, settings.admin_key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        is_session = scope["type"] == "websocket"
        headers = Headers(scope=scope)
        try:
            if has_two_lengths(scope):
                raise ApiError(400, TWO_LENGTHS, closes=True)
            self._check_host(headers)
            if is_session or scope["method"] not in SAFE_METHODS:
                self._check_origin(scope, headers)
            caller = self._find_caller(scope, headers)
            limit = 0 if is_session else body_limit(headers, self.limits)
        except ApiError as error:
            if is_session:
                await send({"type": "websocket.close", "code": 1008})
            else:
                await error_response(error)(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        if not is_session:
            receive, send = bounded(receive, limit, self.limits.body_seconds), with_headers(send)
        await self.app(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        host, allowed = host_name(headers.get("host", "")), self.settings.allowed_hosts
        if not (allowed or self.settings.private_hosts_only):
            return
        if host not in allowed and not (self.settings.private_hosts_only and is_private(host)):
            raise ApiError(
                400,
                "This host is not served here; use the address that the server printed, or name it by --allowed-host.",
            )

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        """Refuse what a page of another site sends; programs send no origin.

        Behind a proxy with TLS that does not tell, the page's scheme is another one; its browser says that it is ours.
        """
        origin = headers.get("origin")
        if origin is None or origin in self.settings.cors_origins:
            return
        scheme, _, host = origin.lower().partition("://")
        own = scope.get("scheme", "http").replace("ws", "http")
        is_own_page = scheme == "https" and headers.get("sec-fetch-site") == "same-origin"
        if host != headers.get("host", "").lower() or not (scheme == own or is_own_page):
            raise ApiError(403, FOREIGN_PAGE)

    def _find_caller(self, scope: Scope, headers: Headers) -> Caller:
        address = str(scope["client"][0]) if scope.get("client") else ""
        if self.keys.is_empty or is_open(scope["path"]):
            caller = replace(ADMINISTRATOR if self.keys.is_empty else Caller(), address=address)
        else:
            found = self.keys.find(headers.get("authorization", ""))
            if found is None:
                raise ApiError(401, "Expected an API key of this server: the header `Authorization: Bearer KEY`.")
            caller = found
        is_foreign = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if is_foreign and not is_open(scope["path"]) and headers.get("origin") not in self.settings.cors_origins:
            raise ApiError(403, FOREIGN_PAGE)
        return caller


class HeadRequests:
    """An application that answers HEAD as GET, without the body, as checks of health expect."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        if scope["type"] == "http" and scope["method"] == "HEAD":
            await self.app({**scope, "method": "GET"}, receive, send_without_body)
        else:
            await self.app(scope, receive, send)


def is_open(path: str) -> bool:
    """Whether a path needs no key."""
    return path in OPEN_PATHS or path.startswith(PAGE_PREFIX)


def host_name(host: str) -> str:
    """The header `Host` without its port; empty where it is no host and port."""
    match = HOST.fullmatch(host)
    is_whole = match is not None and int(match["port"] or 0) < 2**16
    return match["name"].lower() if match is not None and is_whole else ""


def is_private(host: str) -> bool:
    """Whether a host is an address, or a name that no page of another site can have by a name server of its own."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return bool(host) and ("." not in host or host.endswith(PRIVATE_SUFFIXES))
    return True


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
