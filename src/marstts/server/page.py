"""The page of the server: a few files, read once; they hold no data and need no key.

Upstream: `app`.  Downstream: browsers, which use the same API as other clients.
"""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI
from starlette.responses import Response

PAGE = "page.html"
TYPES = {
    PAGE: "text/html; charset=utf-8",
    "page.css": "text/css",
    **dict.fromkeys(
        ("page.js", "api.js", "player.js", "reading.js", "recorder.js", "recorder-worklet.js", "wav.js"),
        "text/javascript",
    ),
}


def add_page(app: FastAPI) -> None:
    """Add the page and its files."""
    add_file(app, "/", PAGE)
    for name in TYPES:
        add_file(app, f"/page/{name}", name)


def add_file(app: FastAPI, path: str, name: str) -> None:
    """Add one file."""
    content = (files("marstts.server") / "static" / name).read_bytes()

    @app.get(path, include_in_schema=False)
    async def send() -> Response:
        return Response(content, media_type=TYPES[name])
