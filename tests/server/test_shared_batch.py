"""Many callers over real connections share one batch: same bytes, refusals, deadlines, and clients that leave."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from api_server import LiveServer, live_server, speech, wait_until

from marstts.server.settings import ServeLimits, ServeSettings
from marstts.synthesis.synthesizer import Synthesizer
from scripted import ScriptedTake, scripted_synthesizer, with_engine, with_parts

URL = "/v1/audio/speech"
TEXTS = ("Go outside. How are you today?", "Hello.", "One, two, three, four.")
"""Takes that end before anything of them is sent, and longer ones."""
MAX_ROUNDING = 3
"""Difference of 16-bit samples that were decoded in windows of different sizes."""

VOICES = ("alloy", "ross", "emma")


class SlowEngine:
    """The same engine, with a pause before every patch; counts patches."""

    def __init__(self, engine, seconds: float) -> None:
        self._engine, self._seconds = engine, seconds
        self.num_steps = 0

    def __getattr__(self, name: str):
        return getattr(self._engine, name)

    def append(self, state, patches):
        self.num_steps += 1
        time.sleep(self._seconds)
        return self._engine.append(state, patches)


def slow_synthesizer(seconds: float, patches: int = 400):
    """A model that speaks for long, and slowly."""
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(patches))
    slow = with_engine(tts, SlowEngine(tts.session.engine, seconds))
    return with_parts(slow, backoff=slow.session.backoff.model_copy(update={"min_chars_per_second": 0.1}))


def post(server: LiveServer, body: dict) -> httpx.Response:
    return httpx.post(server.address + URL, json=body, timeout=200)


def open_request(server: LiveServer, body: dict) -> socket.socket:
    """A connection on which a request was sent."""
    host, port = server.address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    content = json.dumps(body).encode()
    head = f"POST {URL} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    connection.sendall(head.encode() + content)
    return connection


def num_steps(server: LiveServer) -> int:
    """Patches that the engine has made."""
    return server.service.synthesizer.session.engine.num_steps


def assert_stops(server: LiveServer) -> None:
    """Fail unless the engine stops within 0.2 s, all places being free."""
    wait_until(lambda: server.service.admission.num_active == 0, seconds=2.0)
    time.sleep(0.2)
    made = num_steps(server)
    time.sleep(0.2)
    assert num_steps(server) == made


def statuses(server: LiveServer, bodies: Sequence[dict]) -> list[httpx.Response]:
    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(lambda body: post(server, body), bodies))


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
def test_speech_does_not_depend_on_the_other_callers(mini: Synthesizer, tmp_path: Path, stream):
    patient = ServeLimits(first_audio_seconds=200, seconds_per_audio_second=200)  # a loaded machine may be slow
    settings = ServeSettings(capacity=2, queue=20, max_wait_seconds=200, voices_folder=tmp_path, limits=patient)
    bodies = [  # two begin together, and two join when a row is free
        speech(text, voice=voice, seed=seed, response_format="pcm", stream=stream)
        for seed, (text, voice) in enumerate(zip((*TEXTS, TEXTS[0]), (*VOICES, VOICES[0]), strict=True))
    ]
    with live_server(mini, settings) as server:
        alone = [post(server, body).content for body in bodies]
        together = [response.content for response in statuses(server, bodies)]
    assert len(set(alone)) >= len(TEXTS) and min(map(len, alone)) > 1000
    if not stream:
        assert together == alone
    for one, other in zip(alone, together, strict=True):
        assert len(one) == len(other)
        difference = np.frombuffer(one, "<i2").astype(int) - np.frombuffer(other, "<i2")
        assert np.abs(difference).max() <= MAX_ROUNDING


@pytest.mark.slow
def test_first_bytes_come_before_the_speech_is_made(tmp_path: Path):
    with live_server(slow_synthesizer(0.01), ServeSettings(voices_folder=tmp_path)) as server:
        for name in ("pcm", "wav", "mp3", "opus", "aac", "flac"):
            with httpx.stream("POST", server.address + URL, json=speech(response_format=name), timeout=20) as response:
                assert response.status_code == 200, (name, response.read())
                pieces = response.iter_raw()  # dropping it would close the connection
                assert next(pieces)
                assert server.service.admission.num_active == 1
            wait_until(lambda: server.service.admission.num_active == 0)
        assert_stops(server)


@pytest.mark.slow
def test_a_client_who_leaves_while_listening_frees_row_and_place(tmp_path: Path):
    with live_server(slow_synthesizer(0.005), ServeSettings(voices_folder=tmp_path)) as server:
        connection = open_request(server, speech(response_format="pcm"))
        assert connection.recv(100)
        connection.close()
        assert_stops(server)
        wait_until(lambda: 'outcome="left"} 1.0' in httpx.get(server.address + "/metrics").text)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_who_leaves_before_the_first_byte_frees_row_and_place(tmp_path: Path, stream):
    with live_server(slow_synthesizer(0.05), ServeSettings(voices_folder=tmp_path)) as server:
        connection = open_request(server, speech(response_format="pcm", stream=stream))
        wait_until(lambda: num_steps(server) >= 1)
        connection.close()
        assert_stops(server)


def test_a_client_who_leaves_the_queue_is_forgotten_at_once(tmp_path: Path):
    settings = ServeSettings(capacity=1, queue=2, voices_folder=tmp_path)
    with live_server(slow_synthesizer(0.01), settings) as server:
        first = open_request(server, speech(response_format="pcm"))
        assert first.recv(100)
        waiting = open_request(server, speech(response_format="pcm"))
        wait_until(lambda: server.service.admission.num_waiting == 1)
        waiting.close()
        wait_until(lambda: server.service.admission.num_waiting == 0, seconds=2.0)
        assert server.service.admission.num_active == 1
        first.close()
        wait_until(lambda: server.service.admission.num_active == 0, seconds=2.0)


@pytest.mark.slow
def test_more_callers_than_places_and_queue_get_429_with_a_time(tmp_path: Path):
    settings = ServeSettings(capacity=2, queue=1, max_wait_seconds=60, voices_folder=tmp_path)
    with live_server(slow_synthesizer(0.01, patches=60), settings) as server:
        responses = statuses(server, [speech(response_format="pcm")] * 6)
        assert sorted(response.status_code for response in responses) == [200] * 3 + [429] * 3
        assert len({response.content for response in responses if response.status_code == 200}) == 1
        for response in responses:
            if response.status_code == 429:
                assert response.json()["error"]["type"] == "rate_limit_error"
                assert 1 <= int(response.headers["retry-after"]) <= 60
        assert 'outcome="refused"} 3.0' in httpx.get(server.address + "/metrics").text


@pytest.mark.slow
def test_a_request_without_audio_in_time_gets_503_and_its_row_leaves(tmp_path: Path):
    settings = ServeSettings(voices_folder=tmp_path, limits=ServeLimits(first_audio_seconds=0.2))
    with live_server(slow_synthesizer(0.3), settings) as server:
        response = post(server, speech(response_format="pcm"))
        assert response.status_code == 503 and response.json()["error"]["type"] == "server_error"
        assert_stops(server)
        assert 'outcome="deadline"} 1.0' in httpx.get(server.address + "/metrics").text


@pytest.mark.slow
@pytest.mark.parametrize("form", ["pcm", "sse"])
def test_a_stream_past_its_deadline_is_cut_with_one_line_in_the_log(tmp_path: Path, monkeypatch, caplog, form: str):
    monkeypatch.setattr("marstts.server.speech_request.EXTRA_SECONDS", 0.5)
    limits = ServeLimits(seconds_per_audio_second=0.01)
    body = speech(response_format="pcm", **({"stream_format": "sse"} if form == "sse" else {}))
    with live_server(slow_synthesizer(0.05), ServeSettings(voices_folder=tmp_path, limits=limits)) as server:
        received = b""
        with caplog.at_level("INFO"):
            with (
                contextlib.suppress(httpx.RemoteProtocolError),
                httpx.stream("POST", server.address + URL, json=body, timeout=60) as response,
            ):
                for piece in response.iter_bytes():
                    received += piece
                assert form == "sse", "a stream that is cut must not look whole"
            assert_stops(server)
        assert received and (form == "pcm" or b"took too long" in received)
        assert 'outcome="deadline"} 1.0' in httpx.get(server.address + "/metrics").text
    lines = [record for record in caplog.records if record.levelname in ("WARNING", "ERROR", "CRITICAL")]
    assert len(lines) == 1 and "longer than its time limit" in lines[0].getMessage() and not lines[0].exc_info


@pytest.mark.slow
def test_a_slow_reader_holds_no_more_than_a_few_pieces(tmp_path: Path):
    settings = ServeSettings(voices_folder=tmp_path)
    with live_server(slow_synthesizer(0.0, patches=20_000), settings) as server:
        before = {thread.name for thread in threading.enumerate()}
        connection = open_request(server, speech("the cat sat on the mat " * 20, response_format="pcm"))
        assert connection.recv(100)
        time.sleep(1.0)
        [line] = [
            line
            for line in httpx.get(server.address + "/metrics").text.splitlines()
            if line.startswith("marstts_audio_seconds_total")
        ]
        assert float(line.split()[1]) < 600, "audio was generated for a disconnected client"
        connection.close()
        wait_until(lambda: server.service.admission.num_active == 0)
        assert {thread.name for thread in threading.enumerate()} <= before | {"marstts-speech_0", "marstts-read_0"}
