"""Clients that leave within a body, and events with values of wrong types: an answer, and no traceback in the log."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from api_server import LiveServer, free_port, live_server

from marstts.server.settings import ServeSettings
from scripted import good, scripted_synthesizer

pytest.importorskip("wyoming", reason="wyoming is not installed")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    port = free_port()
    with live_server(scripted_synthesizer(good), ServeSettings(voices_folder=tmp_path, wyoming_port=port)) as server:
        yield server


@pytest.mark.slow
def test_a_client_that_leaves_within_its_body_is_no_error_of_the_server(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    host = urlsplit(server.address).netloc
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    head += "Content-Length: 99\r\n\r\n{"
    name, _, port = host.partition(":")
    with caplog.at_level("DEBUG"), socket.create_connection((name, int(port)), timeout=10) as connection:
        connection.sendall(head.encode())
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(10)
        connection.recv(1000)
    with socket.create_connection((name, int(port)), timeout=10) as connection:
        connection.sendall(f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert b"200 OK" in connection.recv(1000)
    assert not [record for record in caplog.records if record.exc_info], caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "events",
    [
        [{"type": "synthesize", "data": {"text": 5}}],
        [{"type": "synthesize", "data": {"text": "Hi.", "voice": {"name": {"a": 1}}}}],
        [{"type": "synthesize", "data": {"text": ["Hi."]}}],
        [{"type": "synthesize-start", "data": {}}, {"type": "synthesize-chunk", "data": {"text": 5}}],
    ],
)
def test_values_of_wrong_types_are_refused_in_one_sentence(
    events: list[dict[str, Any]], server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    address = ("127.0.0.1", server.service.settings.wyoming_port or 0)
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(b"".join(json.dumps(event).encode() + b"\n" for event in events))
        received = b""
        while b"Input should be" not in received and b"Expected a text" not in received:
            piece = connection.recv(2**16)
            assert piece, received
            received += piece
    assert b'"error"' in received and b"wrong on the server" not in received
    assert not [record for record in caplog.records if record.exc_info], caplog.text
