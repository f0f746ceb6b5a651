"""Messages to the page's server: JSON of bounded size and time, and refusals in sentences."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.routing import Route

from marstts.http.server import Server
from marstts_listening_test.pages import HTTPError, PageLimits, json_endpoint, json_response, make_app


@contextmanager
def served(limits: PageLimits) -> Iterator[Server]:
    """A server of four routes, in a thread."""

    def fail(request: object) -> None:
        raise RuntimeError("secret insides")

    def refuse(request: object, message: object) -> None:
        raise HTTPError(409, f"No: {message}.")

    routes = [
        Route("/", lambda request: json_response("here")),
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


def post(path: bytes, body: bytes, kind: bytes = b"application/json") -> bytes:
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
    return head % (path, kind, len(body)) + body


@pytest.mark.slow
def test_messages_are_json_and_bounded_in_size_and_time():
    with served(PageLimits(max_body_bytes=100, body_seconds=0.2)) as server:
        assert reply(server, post(b"/echo", b'{"a": [1]}')) == (201, b'{"a": [1]}')
        assert reply(server, post(b"/echo", b"{}", b"text/plain"))[0] == 415
        assert reply(server, post(b"/echo", b" " * 101))[0] == 413
        assert reply(server, post(b"/echo", b"{"))[0] == reply(server, post(b"/echo", b"[" * 99))[0] == 400
        assert reply(server, post(b"/echo", b"{}").replace(b"Length: 2", b"Length: 9"))[0] == 408
        assert reply(server, get(b"/echo"))[0] == 405


def test_refusals_are_sentences_and_unexpected_errors_show_nothing_of_themselves():
    with served(PageLimits()) as server:
        status, body = reply(server, post(b"/refuse", b"7"))
        assert (status, json.loads(body)) == (409, {"error": "No: 7."})
        status, body = reply(server, get(b"/fail"))
        assert status == 500 and b"secret" not in body and set(json.loads(body)) == {"error"}


@pytest.mark.parametrize("length", [b"Content-Length: 2", b"content-length: 30", b"Content-Length: 0"])
def test_a_request_with_two_lengths_is_refused_and_the_rest_is_no_request(length: bytes):
    smuggled = b"2\r\n{}\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    kind = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\n%s%s\r\n\r\n" % (kind, length)
    with served(PageLimits()) as server:
        status, body = reply(server, head + smuggled)
        assert status == 400 and b"has both" in body and b"here" not in body
