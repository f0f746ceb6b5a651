"""Silent connections to the WebSocket and to Wyoming: closed in time, and the oldest gives way to a new one."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from api_server import TEXT, LiveServer, free_port, live_server, wait_until

from marstts.server.settings import ServeLimits, ServeSettings
from scripted import good, scripted_synthesizer

websockets = pytest.importorskip("websockets.sync.client", reason="websockets is not installed")
client_module = pytest.importorskip("wyoming.client", reason="wyoming is not installed")
wyoming_server = pytest.importorskip("marstts.server.wyoming_server")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    port = free_port()
    settings = ServeSettings(voices_folder=tmp_path, wyoming_port=port, limits=ServeLimits(connections=24))
    with live_server(scripted_synthesizer(good), settings) as server:
        yield server


def open_wyoming(server: LiveServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.service.settings.wyoming_port or 0), timeout=10)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def audio_bytes(server: LiveServer, text: str = TEXT) -> int:
    """Bytes of audio that a new client of Wyoming gets."""
    from wyoming.audio import AudioChunk
    from wyoming.tts import Synthesize

    async def run() -> int:
        total = 0
        async with client_module.AsyncTcpClient("127.0.0.1", server.service.settings.wyoming_port) as client:
            await client.write_event(Synthesize(text=text).event())
            while (event := await asyncio.wait_for(client.read_event(), 20)) is not None:
                if AudioChunk.is_type(event.type):
                    total += len(AudioChunk.from_event(event).audio)
                elif event.type == "audio-stop":
                    break
        return total

    return asyncio.run(run())


@pytest.mark.slow
def test_520_silent_connections_do_not_shut_wyoming(server: LiveServer):
    with ExitStack() as stack:
        silent = [stack.enter_context(open_wyoming(server)) for _ in range(520)]
        assert audio_bytes(server) > 1000
        assert is_closed(silent[0])
        silent[-1].sendall(b'{"type": "describe"}\n')
        assert b"info" in silent[-1].recv(100), "the newest stays"


@pytest.mark.slow
def test_a_silent_wyoming_connection_is_closed_in_time(server: LiveServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wyoming_server, "SILENT_SECONDS", 0.2)
    with open_wyoming(server) as silent, open_wyoming(server) as halfway:
        halfway.sendall(b'{"type": "synthesize", "data_length": 9}\n{"te')
        assert is_closed(silent) and is_closed(halfway)


@pytest.mark.slow
def test_a_wyoming_client_may_be_silent_while_it_is_sent_speech(server: LiveServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wyoming_server, "SILENT_SECONDS", 0.3)
    assert audio_bytes(server, "The cat sat on the mat. " * 24) > 100_000


@pytest.mark.slow
def test_a_wyoming_client_that_reads_nothing_is_closed_and_frees_its_place(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(wyoming_server, "UNREAD_SECONDS", 0.3)
    with open_wyoming(server) as connection:
        for _ in range(60):
            data = json.dumps({"text": "The cat sat on the mat. " * 100})
            connection.sendall(json.dumps({"type": "synthesize", "data": json.loads(data)}).encode() + b"\n")
        wait_until(lambda: server.service.admission.num_active == 1)
        wait_until(lambda: server.service.admission.num_active == 0)


def test_texts_that_wait_are_limited(server: LiveServer):
    with open_wyoming(server) as connection:
        connection.sendall(b'{"type": "synthesize", "data": {"text": "The cat sat on the mat."}}\n' * 200)
        received = b""
        while block := connection.recv(2**16):
            received += block
    assert b"Too many texts" in received and received.count(b"audio-start") <= wyoming_server.MAX_TEXTS + 1


def frame(message: bytes) -> bytes:
    """A masked frame of a client, with a mask of zeros."""
    size = bytes([0x80 | len(message)]) if len(message) < 126 else b"\xfe" + len(message).to_bytes(2, "big")
    return b"\x81" + size + bytes(4) + message


def open_websocket(server: LiveServer):
    return websockets.connect(server.address.replace("http", "ws") + "/v1/audio/speech/stream")


def test_silent_websockets_give_way(server: LiveServer):
    with ExitStack() as stack:
        sessions = [stack.enter_context(open_websocket(server)) for _ in range(10)]
        refusal = json.loads(sessions[0].recv(timeout=10))
        assert refusal["error"]["message"] == "The session sent nothing for too long."
        sessions[-1].send(json.dumps({"type": "input.text", "text": TEXT}))
        sessions[-1].send(json.dumps({"type": "input.done"}))
        assert json.loads(sessions[-1].recv(timeout=10))["type"] == "audio.start"


@pytest.mark.slow
def test_a_websocket_that_reads_nothing_is_closed_and_frees_its_place(tmp_path: Path):
    settings = ServeSettings(voices_folder=tmp_path)
    with live_server(scripted_synthesizer(good), settings, silent_seconds=0.5) as server:
        host, port = server.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(
                b"GET /v1/audio/speech/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )
            assert connection.recv(4096).startswith(b"HTTP/1.1 101")
            text = json.dumps({"type": "input.text", "text": "The cat sat on the mat. " * 160}).encode()
            for message in (text, b'{"type": "input.done"}'):
                connection.sendall(frame(message))
            wait_until(lambda: server.service.admission.num_active == 1)
            wait_until(lambda: server.service.admission.num_active == 0)
