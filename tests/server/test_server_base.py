"""The HTTP server: silent and slow clients are closed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from marstts.errors import ConfigError
from marstts.http.connections import escape_address
from marstts.http.server import Server, ServerLimits

pytestmark = pytest.mark.slow

LARGE = bytes(8 * 2**20)
"""More than the system's buffers between two local sockets hold."""


@contextmanager
def served(limits: ServerLimits) -> Iterator[Server]:
    """A server of three routes, in a thread."""

    async def echo(request: Request) -> Response:
        return Response(await request.body())

    routes = [
        Route("/", lambda request: Response("here")),
        Route("/large", lambda request: Response(LARGE)),
        Route("/echo", echo, methods=["POST"]),
    ]
    with Server(app_of(routes, limits), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join(timeout=20)


def app_of(routes: list[Route], limits: ServerLimits) -> Starlette:
    app = Starlette(routes=routes)
    app.state.limits = limits
    return app


def connect(server: Server) -> socket.socket:
    return socket.create_connection(server.socket.getsockname()[:2], timeout=20)


def reply(server: Server, request: bytes) -> tuple[int, bytes]:
    """Status and body of the response to these bytes, on a separate connection."""
    with connect(server) as connection:
        connection.sendall(request)
        received = b""
        while block := connection.recv(2**16):
            received += block
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def get(address: bytes) -> bytes:
    return b"GET " + address + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_silent_connections_are_closed_in_time():
    with served(ServerLimits(silent_seconds=0.5)) as server, ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in range(6)]
        silent[0].sendall(b"GET / HTTP/1.1\r\nHost:")
        assert all(is_closed(connection) for connection in silent)


def test_520_silent_connections_keep_nobody_out():
    with served(ServerLimits()) as server, ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in range(520)]
        silent[-1].sendall(b"GET / HTTP/1.1\r\nHost:")
        for _ in range(3):
            assert reply(server, get(b"/"))[0] == 200
        assert is_closed(silent[0]), "the oldest gives way"
        silent[-1].sendall(b" x\r\n\r\n")
        assert silent[-1].recv(2**16).startswith(b"HTTP/1.1 200"), "the newest stays"


def test_a_request_sent_byte_by_byte_is_closed_in_time_on_a_new_and_on_a_used_connection():
    with served(ServerLimits(silent_seconds=0.6, idle_seconds=5)) as server:
        for before in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
            with connect(server) as connection:
                connection.sendall(before)
                if before:
                    assert connection.recv(2**16).startswith(b"HTTP/1.1 200")
                started = time.monotonic()
                with pytest.raises(OSError):
                    while time.monotonic() < started + 10:
                        connection.sendall(b"G")
                        time.sleep(0.1)
                assert time.monotonic() < started + 5


def test_a_client_that_reads_nothing_of_its_response_is_closed():
    with served(ServerLimits(silent_seconds=0.4)) as server, connect(server) as connection:
        connection.sendall(get(b"/large"))
        time.sleep(1.5)
        received = 0
        with pytest.raises(ConnectionResetError):
            while block := connection.recv(2**16):
                received += len(block)
            raise ConnectionResetError  # the end of the stream counts as well, if the response is not whole
        assert received < len(LARGE)


def test_a_slow_but_reading_client_gets_all_of_its_response():
    with served(ServerLimits(silent_seconds=1.5)) as server, connect(server) as connection:
        connection.sendall(get(b"/large"))
        received, started = 0, time.monotonic()
        while block := connection.recv(2**20):
            received += len(block)
            time.sleep(0.25)
        assert received > len(LARGE) and time.monotonic() > started + 1.5


@pytest.mark.parametrize("address", ["/ä".encode(), b"/\xff\xfe", "/鈴".encode(), b"/%ff", b"/%C3%A4", b"/nothing"])
def test_addresses_that_are_not_listed_get_404_whatever_their_bytes(address):
    with served(ServerLimits()) as server:
        assert reply(server, get(address)) == (404, b"Not Found")


def test_only_the_first_line_is_percent_encoded():
    assert escape_address("GET /ä HTTP/1.1\r\nX: ä".encode()) == b"GET /%C3%A4 HTTP/1.1\r\nX: \xc3\xa4"


def test_a_port_in_use_and_an_address_of_no_machine_are_refused():
    app = app_of([], ServerLimits())
    with Server(app, "127.0.0.1", 0) as server, pytest.raises(ConfigError, match="name another --port"):
        Server(app, *server.socket.getsockname()[:2])
    with pytest.raises(ConfigError, match="cannot listen at"):
        Server(app, "x" * 70, 0)


@pytest.mark.parametrize("sent", [b"", b"{", b'{"a": '])
def test_bodies_that_never_come_keep_nobody_out(sent: bytes):
    with served(ServerLimits(max_connections=40)) as server, ExitStack() as stack:
        head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
        waiting = [stack.enter_context(connect(server)) for _ in range(60)]
        for connection in waiting:
            with suppress(OSError):
                connection.sendall(head + sent)
        for _ in range(3):
            assert reply(server, get(b"/"))[0] == 200
        assert is_closed(waiting[0])
        rest = b'{"a": [1]}'[:9][len(sent) :]
        waiting[-1].sendall(rest)
        assert waiting[-1].recv(2**16).startswith(b"HTTP/1.1 200"), "the newest stays"


@pytest.mark.parametrize(
    "request_",
    [
        get(b"/large"),
        get(b"/large").replace(b"close", b"keep-alive") * 2,
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n",
    ],
)
def test_a_server_that_stops_with_clients_who_do_nothing_prints_no_traceback(request_: bytes, capfd):
    with served(ServerLimits(drain_seconds=1)) as server, connect(server) as connection:
        connection.sendall(request_)
        time.sleep(0.3)
        server.stop()
        time.sleep(2.0)
    assert "Traceback" not in capfd.readouterr().err
