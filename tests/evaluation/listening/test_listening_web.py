"""The page over HTTP: only listed addresses, small messages, nothing loaded from elsewhere, at home by default."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from importlib.resources import files

import pytest
from typer.testing import CliRunner

from marstts.cli import listen
from marstts.cli.main import app
from marstts.errors import ConfigError
from marstts.evaluation.listening import web
from marstts.evaluation.listening.host import Host
from marstts.evaluation.listening.web import MAX_BODY_BYTES, PageServer


@pytest.fixture
def server(host: Host) -> Iterator[PageServer]:
    with PageServer(host, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        yield server
        server.stop()
        thread.join(timeout=20)


def ask(server: PageServer, method: str, path: str, body=None, kind="application/json"):
    """Status, headers and body; the path goes out as it is."""
    connection = HTTPConnection(*server.socket.getsockname()[:2], timeout=20)
    content = json.dumps(body) if isinstance(body, dict) else body
    connection.request(method, path, content, {"Content-Type": kind} if content is not None else {})
    reply = connection.getresponse()
    found = reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
    connection.close()
    return found


def test_the_page_asks_and_answers(server, host):
    status, headers, body = ask(server, "GET", "/")
    assert status == 200 and headers["content-type"].startswith("text/html") and b"<main" in body
    assert ask(server, "GET", "/l/any-link")[2] == body
    assert json.loads(ask(server, "GET", "/api/test")[2])["recordings"] == 43
    status, _, body = ask(server, "POST", "/api/listeners", {})
    link = json.loads(body)["link"]
    assert status == 201 and json.loads(ask(server, "GET", f"/api/l/{link}")[2])["stage"] == "headphones"
    answers = [tone.quiet for tone in host.plan_tones(host.find(link))]
    state = json.loads(ask(server, "POST", f"/api/l/{link}/headphones", {"answers": answers})[2])
    assert state["stage"] == "trials"
    for address in ("/api/volume.wav", f"/api/l/{link}/0/stimulus.wav", f"/api/l/{link}/tones/5.wav"):
        status, headers, body = ask(server, "GET", address)
        assert (status, headers["content-type"], body[:4]) == (200, "audio/wav", b"RIFF")
    message = {"position": 0, "choice": 5, "plays": 1}
    assert json.loads(ask(server, "POST", f"/api/l/{link}/answers", message)[2])["position"] == 1
    refused = ask(server, "POST", f"/api/l/{link}/answers", {**message, "position": 9})
    assert refused[0] == 409 and "Expected an answer to recording 1" in json.loads(refused[2])["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/static/page.html", "/web.py",
        "/page.html", "/answers.sqlite", "/l/../../page.py", "/api/l/LINK/0/..%2f..%2fstimulus.wav",
        "/api/l/LINK/0/reference.wav",
        "/api/l/LINK/0/takes.wav", "/api/l/LINK/0/stimulus.flac", "/api/l/LINK/43/stimulus.wav",
        "/api/l/LINK/-1/stimulus.wav", "/api/l/LINK/%D9%A3/stimulus.wav", f"/api/l/LINK/{'9' * 5000}/stimulus.wav",
        "/api/l/LINK/tones/6.wav", "/api/l/LINK/tones/x.wav", "/api/l/nobody", "/api/l/%00/0/stimulus.wav",
        "/api/l/'%20OR%201=1--", f"/api/l/{'x' * 9000}",
    ],
)  # fmt: skip
def test_nothing_but_the_listed_addresses_can_be_had(host, app_client, path):
    link = host.begin()["link"]
    status, body = app_client(path.replace("LINK", link))
    assert status == 404 and set(json.loads(body)) == {"error"}


@pytest.fixture
def app_client(host):
    """GETs straight into the application: no connection, and the path exactly as a client could send it."""
    import asyncio
    from urllib.parse import unquote_to_bytes

    application = web.make_app(host)

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


def test_messages_are_bounded_and_of_their_type(server):
    def status(body, **ways):
        return ask(server, "POST", "/api/listeners", body, **ways)[0]

    assert status(b"{}") == 201
    assert status(b" " * (MAX_BODY_BYTES + 1)) == 413
    chunks = (b" " * 1000 for _ in range(6))
    assert status(chunks) == 413  # sent in chunks, without a length
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert status(b"{}", kind=kind) == 415
    assert status(b"{") == status(b"[" * 4000) == status(b"\xff") == 400
    assert ask(server, "GET", "/api/listeners")[0] == ask(server, "DELETE", "/")[0] == 405


def test_a_message_that_never_comes_is_refused(server, monkeypatch):
    monkeypatch.setattr(web, "MESSAGE_SECONDS", 0.05)
    with socket.create_connection(server.socket.getsockname()[:2], timeout=20) as connection:
        connection.sendall(
            b"POST /api/listeners HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_every_reply_forbids_loading_from_elsewhere_and_telling_links_to_others(server):
    for path in ("/", "/page.js", "/api/test", "/api/volume.wav", "/nothing"):
        headers = ask(server, "GET", path)[1]
        assert headers["content-security-policy"].startswith("default-src 'self'; ")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store" and "server" not in headers and "set-cookie" not in headers


def test_the_page_names_no_other_place_and_runs_no_code_from_words():
    unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|eval\(|document\.write|\sstyle=|\son\w+="
    static = {file.name: file.read_text(encoding="utf-8") for file in (files(web.__package__) / "static").iterdir()}
    assert {"page.html", "page.js", "page.css", "turk.html"} <= set(static)
    for name, text in static.items():
        elsewhere = set(re.findall(r"https?:/*[\w.]+", text))
        assert elsewhere == ({"https://www.mturk.com"} if name == "turk.html" else set())
        assert not re.search(unsafe, text)


def test_a_fault_of_ours_is_told_without_its_insides(host, monkeypatch, server):
    def broken():
        raise RuntimeError("secret insides")

    monkeypatch.setattr(host, "describe", broken)
    status, _, body = ask(server, "GET", "/api/test")
    assert status == 500 and json.loads(body) == {"error": "Something went wrong on the server. Please try again."}


def test_a_port_that_is_taken_is_told(server, host):
    with pytest.raises(ConfigError, match="name another --port"):
        PageServer(host, *server.socket.getsockname()[:2])


def test_other_machines_are_let_in_only_when_asked(config_file, monkeypatch):
    served = []

    class Stopped(PageServer):
        def serve(self) -> None:
            served.append(self.socket.getsockname()[0])
            raise KeyboardInterrupt

    monkeypatch.setattr(listen, "PageServer", Stopped)
    for extra in ([], ["--address", "0.0.0.0"]):
        result = CliRunner().invoke(app, ["listen", "serve", str(config_file), "--port", "0", *extra])
        assert result.exit_code == 0 and "http://" in result.stdout and "listeners so far: 0" in result.stderr
    assert served == ["127.0.0.1", "0.0.0.0"]
