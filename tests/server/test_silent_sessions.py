"""Silent connections to Wyoming: closed in time, and the oldest gives way to a new one."""

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
    monkeypatch.setattr(wyoming_server, "SILENT_SECONDS", 0.01)
    assert audio_bytes(server, "The cat sat on the mat. " * 8) > 100_000


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
