"""The page over HTTP: only listed addresses, nothing loaded from other sites, closed to other machines by default."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from importlib.resources import files

import pytest
from typer.testing import CliRunner

from marstts.http.server import Server
from marstts_listening_test import web
from marstts_listening_test.command import app
from marstts_listening_test.service import SessionService

pytestmark = pytest.mark.slow


@pytest.fixture
def server(service: SessionService) -> Iterator[Server]:
    with web.open_server(service, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        yield server
        server.stop()
        thread.join(timeout=20)


def request(server: Server, method: str, path: str, body=None):
    """Status, headers and body of a response; the path is sent as it is."""
    connection = HTTPConnection(*server.socket.getsockname()[:2], timeout=20)
    headers = {} if body is None else {"Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    reply = connection.getresponse()
    found = reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
    connection.close()
    return found


def test_a_session_runs_over_http(server, service):
    status, headers, body = request(server, "GET", "/")
    assert status == 200 and headers["content-type"].startswith("text/html") and b"<main" in body
    assert request(server, "GET", "/l/any-link")[2] == body
    assert json.loads(request(server, "GET", "/api/test")[2])["recordings"] == 43
    status, _, body = request(server, "POST", "/api/listeners", {})
    link = json.loads(body)["link"]
    assert status == 201 and json.loads(request(server, "GET", f"/api/l/{link}")[2])["stage"] == "headphones"
    answers = [tone.quiet for tone in service.plan_tones(service.find(link))]
    state = json.loads(request(server, "POST", f"/api/l/{link}/headphones", {"answers": answers})[2])
    assert state["stage"] == "trials"
    for address in ("/api/volume.wav", f"/api/l/{link}/0/stimulus.wav", f"/api/l/{link}/tones/5.wav"):
        status, headers, body = request(server, "GET", address)
        assert (status, headers["content-type"], body[:4]) == (200, "audio/wav", b"RIFF")
    message = {"position": 0, "choice": 5, "plays": 1}
    assert json.loads(request(server, "POST", f"/api/l/{link}/answers", message)[2])["position"] == 1
    refused = request(server, "POST", f"/api/l/{link}/answers", {**message, "position": 9})
    assert refused[0] == 409 and "Expected an answer to recording 1" in json.loads(refused[2])["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/static/page.html", "/web.py",
        "/page.html", "/answers.sqlite", "/l/../../page.py", "/api/l/LINK/0/..%2f..%2fstimulus.wav",
        "/api/l/LINK/0/reference.wav",
        "/api/l/LINK/0/takes.wav", "/api/l/LINK/0/stimulus.flac", "/api/l/LINK/43/stimulus.wav",
        "/api/l/LINK/-1/stimulus.wav", "/api/l/LINK/%D9%A3/stimulus.wav", f"/api/l/LINK/{'9' * 5000}/stimulus.wav",
        "/api/l/LINK/tones/6.wav", "/api/l/LINK/tones/x.wav", "/api/l/unknown", "/api/l/%00/0/stimulus.wav",
        "/api/l/'%20OR%201=1--", f"/api/l/{'x' * 9000}",
    ],
)  # fmt: skip
def test_only_listed_addresses_are_served(service, app_client, path):
    link = service.start()["link"]
    status, body = app_client(path.replace("LINK", link))
    assert status == 404 and set(json.loads(body)) == {"error"}


@pytest.fixture
def app_client(service):
    """GET requests to the application without a connection, the path exactly as a client could send it."""
    import asyncio
    from urllib.parse import unquote_to_bytes

    application = web.make_app(service)

    def get(path: str) -> tuple[int, bytes]:
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http", "method": "GET", "path": unquote_to_bytes(path).decode("utf-8"), "raw_path": path.encode(),
            "query_string": b"", "headers": [], "root_path": "", "scheme": "http", "server": ("x", 1),
            "client": ("y", 1), "http_version": "1.1", "asgi": {"version": "3.0"},
        }  # fmt: skip
        asyncio.run(application(scope, receive, send))
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])

    return get


def test_every_response_forbids_other_sites_and_referrers(server):
    for path in ("/", "/page.js", "/api/test", "/api/volume.wav", "/nothing"):
        headers = request(server, "GET", path)[1]
        assert headers["content-security-policy"].startswith("default-src 'self'; ")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store" and "server" not in headers and "set-cookie" not in headers


def test_the_page_names_no_other_site_and_runs_no_code_from_text():
    unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|eval\(|document\.write|\sstyle=|\son\w+="
    static = {file.name: file.read_text(encoding="utf-8") for file in (files(web.__package__) / "static").iterdir()}
    assert {"page.html", "page.js", "page.css"} <= set(static)
    for name, text in static.items():
        assert not re.search(r"https?:/*[\w.]+", text) and not re.search(unsafe, text), name


def test_other_machines_are_admitted_only_on_request(config_file, monkeypatch):
    served = []

    class StoppedServer(Server):
        def __init__(self, service, address, port) -> None:
            super().__init__(web.make_app(service), address, port)

        def serve(self) -> None:
            served.append(self.socket.getsockname()[0])
            raise KeyboardInterrupt

    monkeypatch.setattr("marstts_listening_test.web.open_server", StoppedServer)
    for extra in ([], ["--address", "0.0.0.0"]):
        result = CliRunner().invoke(app, ["serve", str(config_file), "--port", "0", *extra])
        assert result.exit_code == 0 and "http://" in result.stdout and "listeners so far: 0" in result.stderr
    assert served == ["127.0.0.1", "0.0.0.0"]
