"""The HTTP server that pages share: silent and slow clients are closed, and messages are bounded."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from starlette.routing import Route

from marstts.errors import ConfigError
from marstts.server.base import (
    Server,
    ServerLimits,
    bytes_response,
    json_endpoint,
    json_response,
    make_app,
)
from marstts.server.connections import escape_address
from marstts.server.http_error import HTTPError

LARGE = bytes(8 * 2**20)
"""More than the system's buffers between two local sockets hold."""


@contextmanager
def served(limits: ServerLimits) -> Iterator[Server]:
    """A server of four routes, in a thread."""

    def fail(request: object) -> None:
        raise RuntimeError("secret insides")

    def refuse(request: object, message: object) -> None:
        raise HTTPError(409, f"No: {message}.")

    routes = [
        Route("/", lambda request: json_response("here")),
        Route("/large", lambda request: bytes_response(LARGE, "audio/wav")),
        Route("/fail", fail),
        Route("/echo", json_endpoint(lambda request, message: message, 201), methods=["POST"]),
        Route("/refuse", json_endpoint(refuse), methods=["POST"]),
    ]
    with Server(make_app(routes, limits), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join(timeout=20)


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_slow_but_reading_client_gets_all_of_its_response():
    with served(ServerLimits(silent_seconds=1.5)) as server, connect(server) as connection:
        connection.sendall(get(b"/large"))
        received, started = 0, time.monotonic()
        while block := connection.recv(2**20):
            received += len(block)
            time.sleep(0.25)
        assert received > len(LARGE) and time.monotonic() > started + 1.5


@pytest.mark.slow
@pytest.mark.parametrize("address", ["/ä".encode(), b"/\xff\xfe", "/鈴".encode(), b"/%ff", b"/%C3%A4", b"/nothing"])
def test_addresses_that_are_not_listed_get_404_whatever_their_bytes(address):
    with served(ServerLimits()) as server:
        assert reply(server, get(address)) == (404, b'{"error": "There is nothing at this address."}')


def test_only_the_first_line_is_percent_encoded():
    assert escape_address("GET /ä HTTP/1.1\r\nX: ä".encode()) == b"GET /%C3%A4 HTTP/1.1\r\nX: \xc3\xa4"


def post(path: bytes, body: bytes, kind: bytes = b"application/json") -> bytes:
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
    return head % (path, kind, len(body)) + body


@pytest.mark.slow
def test_messages_are_json_and_bounded_in_size_and_time():
    with served(ServerLimits(max_body_bytes=100, body_seconds=0.2)) as server:
        assert reply(server, post(b"/echo", b'{"a": [1]}')) == (201, b'{"a": [1]}')
        assert reply(server, post(b"/echo", b"{}", b"text/plain"))[0] == 415
        assert reply(server, post(b"/echo", b" " * 101))[0] == 413
        assert reply(server, post(b"/echo", b"{"))[0] == reply(server, post(b"/echo", b"[" * 99))[0] == 400
        assert reply(server, post(b"/echo", b"{}").replace(b"Length: 2", b"Length: 9"))[0] == 408
        assert reply(server, get(b"/echo"))[0] == 405


def test_refusals_are_sentences_and_unexpected_errors_show_nothing_of_themselves():
    with served(ServerLimits()) as server:
        status, body = reply(server, post(b"/refuse", b"7"))
        assert (status, json.loads(body)) == (409, {"error": "No: 7."})
        status, body = reply(server, get(b"/fail"))
        assert status == 500 and b"secret" not in body and set(json.loads(body)) == {"error"}


def test_a_port_in_use_and_an_address_of_no_machine_are_refused():
    app = make_app([])
    with Server(app, "127.0.0.1", 0) as server, pytest.raises(ConfigError, match="name another --port"):
        Server(app, *server.socket.getsockname()[:2])
    with pytest.raises(ConfigError, match="cannot listen at"):
        Server(app, "x" * 70, 0)


@pytest.mark.parametrize("length", [b"Content-Length: 2", b"content-length: 30", b"Content-Length: 0"])
def test_a_request_with_two_lengths_is_refused_and_the_rest_is_no_request(length: bytes):
    smuggled = b"2\r\n{}\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    kind = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\n%s%s\r\n\r\n" % (kind, length)
    with served(ServerLimits()) as server:
        status, body = reply(server, head + smuggled)
        assert status == 400 and b"has both" in body and b"here" not in body


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
        assert waiting[-1].recv(2**16).startswith(b"HTTP/1.1 400"), "the newest stays"


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
