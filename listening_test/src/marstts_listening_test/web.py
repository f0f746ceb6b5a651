"""The page of a listening test over HTTP: a few addresses; no file is read by a name that came from outside.

Upstream: `marstts-listening-test serve` and `ab`.  Downstream: `service`; `pages`, which bounds messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from marstts.http.server import SENTENCES, Server
from marstts_listening_test import pages
from marstts_listening_test.pages import (
    HTTPError,
    PageLimits,
    bytes_response,
    json_endpoint,
    json_response,
    static_file,
)
from marstts_listening_test.service import SessionService
from marstts_listening_test.stimuli import Role

PAGE, SCRIPT, STYLE = "page.html", "page.js", "page.css"
TYPES = {PAGE: "text/html", SCRIPT: "text/javascript", STYLE: "text/css"}
WAV = "audio/wav"


def make_app(service: SessionService, limits: PageLimits | None = None) -> Starlette:
    """All addresses of a test."""
    link = "/api/l/{link}"
    page = static(PAGE)
    return pages.make_app(
        [
            Route("/", page),
            Route("/l/{link}", page),
            Route(f"/{SCRIPT}", static(SCRIPT)),
            Route(f"/{STYLE}", static(STYLE)),
            Route("/api/test", lambda request: json_response(service.describe())),
            Route("/api/volume.wav", lambda request: bytes_response(service.volume(), WAV)),
            post("/api/listeners", lambda request, message: service.start(), 201),
            Route(link, lambda request: json_response(service.state(link_of(request)))),
            Route(link + "/tones/{index}.wav", lambda request: tones(service, request)),
            Route(link + "/{position}/{role}.wav", lambda request: sound(service, request)),
            post(link + "/headphones", lambda request, message: service.check_headphones(link_of(request), message)),
            post(link + "/answers", lambda request, message: service.answer(link_of(request), message)),
        ],
        limits,
    )


def open_server(service: SessionService, address: str, port: int, limits: PageLimits | None = None) -> Server:
    """A server of one test at a port; ConfigError where the port cannot be taken."""
    return Server(make_app(service, limits), address, port)


def static(name: str) -> Callable[[Request], Response]:
    """A file of the page."""
    return static_file(__package__, name, TYPES[name])


def post(path: str, act: Callable[[Request, Any], Any], status: int = 200) -> Route:
    """A route for a JSON message."""
    return Route(path, json_endpoint(act, status), methods=["POST"])


def link_of(request: Request) -> str:
    """The personal link in an address."""
    return str(request.path_params["link"])


def tones(service: SessionService, request: Request) -> Response:
    """One trial of the headphone check."""
    return bytes_response(service.tones(link_of(request), read_index(request.path_params["index"])), WAV)


def sound(service: SessionService, request: Request) -> Response:
    """One recording of a session."""
    position, role = read_index(request.path_params["position"]), request.path_params["role"]
    if role not in {one.value for one in Role}:
        raise HTTPError(404, "There is no such recording in this session.")
    return bytes_response(service.sound(link_of(request), position, Role(role)), WAV)


def read_index(text: str) -> int:
    """A number in an address: a few ASCII digits."""
    if not re.fullmatch(r"\d{1,4}", text, flags=re.ASCII):
        raise HTTPError(404, SENTENCES[404])
    return int(text)
