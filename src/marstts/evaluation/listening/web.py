"""The page over HTTP: a few addresses, small messages, nothing read from disk by a name that came from outside.

Upstream: `marstts listen serve` and `ab`.  Downstream: `host`.

Starlette finds the way, uvicorn serves. Messages are bounded in size and time, connections in number; the page may load
nothing from elsewhere, and no other site can send a message in a listener's name: a message has to be JSON by its type,
which browsers let no foreign page send. For the open internet put a proxy with TLS before it.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from marstts.errors import ConfigError
from marstts.evaluation.listening.host import Host, Refusal
from marstts.evaluation.listening.stimuli import Role

MAX_BODY_BYTES = 4096
MAX_CONNECTIONS = 512
"""Beyond them the page is told to come back later; a browser opens up to six."""

MESSAGE_SECONDS = 20.0
"""A message that takes longer to arrive is refused."""

IDLE_SECONDS = 5
"""A connection that asks for nothing more is closed."""

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; media-src 'self' blob:; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # a personal link is a secret
    "Cache-Control": "no-store",
}
SENTENCES = {404: "There is nothing at this address.", 405: "That cannot be done here."}
PAGE, SCRIPT, STYLE = "page.html", "page.js", "page.css"
TYPES = {PAGE: "text/html", SCRIPT: "text/javascript", STYLE: "text/css"}

Get = Callable[[Request], Response]
Post = Callable[[Request], Awaitable[Response]]


def host_of(request: Request) -> Host:
    host = request.app.state.host
    assert isinstance(host, Host)
    return host


def link_of(request: Request) -> str:
    return str(request.path_params["link"])


def as_json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status, HEADERS, "application/json")


def as_sound(content: bytes) -> Response:
    return Response(content, 200, HEADERS, "audio/wav")


def static(name: str) -> Get:
    """A file of the page; all of them are read once."""
    body = (files(__package__) / "static" / name).read_bytes()
    return lambda request: Response(body, 200, HEADERS, TYPES[name])


def describe(request: Request) -> Response:
    return as_json(host_of(request).describe())


def state(request: Request) -> Response:
    return as_json(host_of(request).state(link_of(request)))


def volume(request: Request) -> Response:
    return as_sound(host_of(request).volume())


def tones(request: Request) -> Response:
    return as_sound(host_of(request).tones(link_of(request), read_place(request.path_params["index"])))


def sound(request: Request) -> Response:
    position, role = read_place(request.path_params["position"]), request.path_params["role"]
    if role not in {one.value for one in Role}:
        raise Refusal(404, "There is no such recording in this session.")
    return as_sound(host_of(request).sound(link_of(request), position, Role(role)))


def read_place(text: str) -> int:
    """A number in an address: a few digits, nothing else."""
    if not re.fullmatch(r"\d{1,4}", text, flags=re.ASCII):
        raise Refusal(404, SENTENCES[404])
    return int(text)


def post(act: Callable[[Request, Any], Any], status: int = 200) -> Post:
    """An address that takes a message; the database is waited for on a worker thread."""

    async def endpoint(request: Request) -> Response:
        message = await read_message(request)
        return as_json(await run_in_threadpool(act, request, message), status)

    return endpoint


async def read_message(request: Request) -> Any:
    """The JSON of a POST. Its type is asked for, so that no other site's form can send one."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "Expected a message of type application/json.")
    body = b""
    try:
        with anyio.fail_after(MESSAGE_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise Refusal(413, f"Expected a message of at most {MAX_BODY_BYTES} bytes.")
    except TimeoutError as error:
        raise Refusal(408, "The message took too long to arrive.") from error
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "Expected a message in JSON.") from error


def refuse(request: Request, error: Exception) -> Response:
    """What cannot be had, as `{"error": sentence}`."""
    if isinstance(error, Refusal):
        return as_json({"error": str(error)}, error.status)
    status = error.status_code if isinstance(error, HTTPException) else 500
    return as_json({"error": SENTENCES.get(status, "Something went wrong on the server. Please try again.")}, status)


def make_app(host: Host) -> Starlette:
    """All addresses of a test."""
    link = "/api/l/{link}"
    app = Starlette(
        routes=[
            Route("/", static(PAGE)),
            Route("/l/{link}", static(PAGE)),
            Route(f"/{SCRIPT}", static(SCRIPT)),
            Route(f"/{STYLE}", static(STYLE)),
            Route("/api/test", describe),
            Route("/api/volume.wav", volume),
            Route("/api/listeners", post(lambda request, message: host.begin(), 201), methods=["POST"]),
            Route(link, state),
            Route(link + "/tones/{index}.wav", tones),
            Route(link + "/{position}/{role}.wav", sound),
            Route(
                link + "/headphones",
                post(lambda request, message: host.check(link_of(request), message)),
                methods=["POST"],
            ),
            Route(
                link + "/answers",
                post(lambda request, message: host.answer(link_of(request), message)),
                methods=["POST"],
            ),
        ],
        exception_handlers={Refusal: refuse, HTTPException: refuse, Exception: refuse},
    )
    app.state.host = host
    return app


class PageServer:
    """Serves one host, at most MAX_CONNECTIONS connections at a time. To be used in a `with` statement."""

    def __init__(self, host: Host, address: str, port: int) -> None:
        """Take the port (0: any free one); ConfigError where that cannot be had."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self.socket = socket.create_server((address, port), family=family)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"cannot listen at {address}, port {port}: {error}; name another --port") from error
        config = uvicorn.Config(
            make_app(host),
            access_log=False,  # addresses hold personal links
            log_level="warning",
            server_header=False,
            lifespan="off",
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=2,
        )
        self.server = uvicorn.Server(config)

    def __enter__(self) -> PageServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    @property
    def address(self) -> str:
        """Where the page is."""
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    def serve(self) -> None:
        """Answer until `stop` is called or the person at the terminal interrupts (KeyboardInterrupt)."""
        self.server.run(sockets=[self.socket])

    def stop(self) -> None:
        """Let `serve` return once all replies are sent. From any thread."""
        self.server.should_exit = True
