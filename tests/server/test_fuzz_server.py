"""Mutated uploads, WebSocket messages and Wyoming events: an answer in limited time, and a server that goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from api_server import TEXT, LiveServer, free_port, live_server
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from marstts.audio import Waveform, encode
from marstts.server.settings import ServeLimits, ServeSettings
from scripted import good, scripted_synthesizer
from test_fuzz_commands import mutated_json, time_limit
from test_fuzz_files import INPUTS, count_inputs, input_rng, mutated

pytest.importorskip("wyoming", reason="wyoming is not installed")

FEW = max(20, INPUTS // 5)
BOUNDARY = b"----x"


def part(name: str, content: bytes, more: bytes = b"") -> bytes:
    head = b'--%s\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n'
    return head % (BOUNDARY, name.encode(), more) + content + b"\r\n"


def upload_body(recording: bytes) -> bytes:
    fields = part("name", b"Anna") + part("consent", b"Anna agreed.") + part("transcript", b"he might")
    return fields + part("audio_sample", recording, b'; filename="a.wav"') + b"--%s--\r\n" % BOUNDARY


@pytest.mark.slow
def test_uploads(client: TestClient, reference: Waveform, settings: ServeSettings) -> None:
    seed = upload_body(encode(reference, ".wav"))
    wav = seed.index(b"RIFF")
    for number in range(FEW):
        rng = input_rng(f"upload {number}")
        head, tail = seed[: wav + 60], seed[wav + 60 :]
        body = mutated(head, rng) + tail if number % 3 else head + mutated(tail, rng)
        content_type = f"multipart/form-data; boundary={BOUNDARY.decode()}"
        if number % 5 == 4:
            content_type = mutated(content_type.encode(), rng).decode("latin-1").replace("\r", "").replace("\n", "")
        with time_limit(f"upload {number}"):
            response = client.post(
                "/v1/audio/voices", content=body, headers={"Content-Type": content_type.encode("latin-1")}
            )
        assert response.status_code < 500, f"upload {number}: {response.text}"
        if response.status_code >= 400:
            assert set(response.json()["error"]) == {"message", "type", "param", "code"}
        else:
            client.delete(f"/v1/audio/voices/{response.json()['id']}")
    assert not [path for path in settings.voices_folder.rglob("*") if path.suffix != ".voice"]
    count_inputs("uploads", FEW)


MESSAGES = [
    json.dumps({"type": "session.config", "voice": "alloy", "response_format": "pcm", "speed": 1.0}).encode(),
    json.dumps({"type": "input.text", "text": f"{TEXT}. {TEXT[:3]}"}).encode(),
    json.dumps({"type": "input.done"}).encode(),
    json.dumps({"type": "session.close"}).encode(),
]


def test_websocket_messages(client: TestClient) -> None:
    for number in range(FEW):
        rng = input_rng(f"websocket {number}")
        with (
            time_limit(f"websocket {number}"),
            client.websocket_connect("/v1/audio/speech/stream") as session,
            suppress(WebSocketDisconnect, RuntimeError),
        ):
            for seed in rng.choices(MESSAGES, k=rng.randint(1, 4)):
                message = mutated_json(seed, rng) if rng.random() < 0.6 else mutated(seed, rng)
                if rng.random() < 0.1:
                    session.send_bytes(message)
                else:
                    session.send_text(message.decode("utf-8", errors="replace"))
            session.send_text(MESSAGES[-1].decode())
            while True:
                received = session.receive()
                if received["type"] == "websocket.close":
                    break
                if "text" in received and "error" in (value := json.loads(received["text"])):
                    assert value["error"]["type"] != "server_error", f"websocket {number}: {value}"
    assert client.get("/health").status_code == 200
    count_inputs("WebSocket messages", FEW)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    port = free_port()
    settings = ServeSettings(voices_folder=tmp_path, wyoming_port=port, limits=ServeLimits(input_characters=400))
    with live_server(scripted_synthesizer(good), settings) as server:
        yield server


EVENTS = [
    b'{"type": "describe"}\n',
    b'{"type": "synthesize", "data": {"text": "a cat", "voice": {"name": "alloy"}}}\n',
    b'{"type": "synthesize", "data_length": 17}\n{"text": "a cat"}',
    b'{"type": "synthesize-start", "data": {"voice": {"name": "ada"}}}\n',
    b'{"type": "synthesize-chunk", "data": {"text": "a cat. a mat"}}\n',
    b'{"type": "synthesize-stop"}\n',
    b'{"type": "audio-chunk", "payload_length": 4, "data": {"rate": 16000, "width": 2, "channels": 1}}\nabcd',
]


@pytest.mark.slow
def test_wyoming_events(server: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    address = ("127.0.0.1", server.service.settings.wyoming_port or 0)
    for number in range(FEW):
        rng = input_rng(f"wyoming {number}")
        content = mutated(b"".join(rng.choices(EVENTS, k=rng.randint(1, 5))), rng)
        with time_limit(f"wyoming {number}"), socket.create_connection(address, timeout=20) as connection:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):
                while connection.recv(2**16):
                    pass
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(EVENTS[0])
        assert b"info" in connection.recv(100)
    assert not [record for record in caplog.records if record.exc_info], caplog.text
    count_inputs("Wyoming events", FEW)
