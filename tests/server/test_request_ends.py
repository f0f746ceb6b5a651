"""The ends of a request: finished, left, late, failed or refused, through every door. Each gives all back, once."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from api_server import LiveServer, free_port, live_server, speech, wait_until
from test_shared_batch import open_request, slow_synthesizer

from marstts.server.settings import ServeLimits, ServeSettings
from marstts.synthesis.synthesizer import Synthesizer
from scripted import ScriptedTake, good, scripted_synthesizer

connect = pytest.importorskip("websockets.sync.client", reason="websockets is not installed").connect
client_module = pytest.importorskip("wyoming.client", reason="wyoming is not installed")

pytestmark = pytest.mark.slow

IDLE_SECONDS = 0.05
WORDLESS = "..."


@contextmanager
def served(synthesizer: Synthesizer, folder: Path, **fields: object) -> Iterator[LiveServer]:
    """A server whose model leaves memory as soon as no request uses it."""
    settings = ServeSettings(
        capacity=1, voices_folder=folder, wyoming_port=free_port(), unload_after_seconds=IDLE_SECONDS, **fields
    )
    with live_server(synthesizer, settings, reopen=lambda: synthesizer) as server:
        yield server


def over_http(server: LiveServer, text: str, until: Callable[[], bool] | None = None, **fields: object) -> None:
    """Ask, and read to the end of the response; or leave once `until` holds."""
    with open_request(server, speech(text, response_format="pcm", **fields)) as connection:
        if until is not None:
            wait_until(until)
            return
        connection.settimeout(20)
        received = b""
        while not received.endswith(b"0\r\n\r\n") and (more := connection.recv(65536)):
            received += more
            head, _, content = received.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            if length and len(content) >= int(length[1]):
                break


def events_over_http(server: LiveServer, text: str, until: Callable[[], bool] | None = None) -> None:
    over_http(server, text, until, stream_format="sse")


def file_over_http(server: LiveServer, text: str, until: Callable[[], bool] | None = None) -> None:
    over_http(server, text, until, stream=False)


def over_a_websocket(server: LiveServer, text: str, until: Callable[[], bool] | None = None) -> None:
    with connect(server.address.replace("http", "ws") + "/v1/audio/speech/stream") as session:
        session.send(json.dumps({"type": "input.text", "text": text}))
        session.send(json.dumps({"type": "input.done"}))
        if until is not None:
            wait_until(until)
            return
        with suppress(Exception):  # closed by the server
            while True:
                session.recv(timeout=20)


def over_wyoming(server: LiveServer, text: str, until: Callable[[], bool] | None = None) -> None:
    from wyoming.tts import Synthesize

    async def ask() -> None:
        async with client_module.AsyncTcpClient("127.0.0.1", server.service.settings.wyoming_port) as client:
            await client.write_event(Synthesize(text).event())
            if until is not None:
                while not until():
                    await asyncio.sleep(0.005)
                return
            while (event := await asyncio.wait_for(client.read_event(), 20)) is not None and event.type != "audio-stop":
                pass

    asyncio.run(ask())


def over_mcp(server: LiveServer, text: str, until: Callable[[], bool] | None = None) -> None:
    mcp = pytest.importorskip("mcp", reason="mcp is not installed")
    from marstts.server.mcp_tools import mcp_server

    num_others = server.service.admission.num_active

    async def ask() -> None:
        async with mcp.Client(mcp_server(server.service)) as client:
            answer = asyncio.ensure_future(client.call_tool("speak", {"text": text}))
            if until is None:
                await asyncio.wait_for(answer, 20)
            else:
                while not until():
                    await asyncio.sleep(0.005)
                answer.cancel()
        async with asyncio.timeout(20):
            while server.service.admission.num_active > num_others:  # its thread gives the place back in this loop
                await asyncio.sleep(0.005)

    asyncio.run(ask())


DOORS = {
    "HTTP": over_http,
    "HTTP, events": events_over_http,
    "HTTP, whole file": file_over_http,
    "WebSocket": over_a_websocket,
    "Wyoming": over_wyoming,
    "MCP": over_mcp,
}
doors = pytest.mark.parametrize("ask", DOORS.values(), ids=DOORS)

OF_THE_COMMAND_LINE = {"file", "batch", "stream", "streamed lines", "book"}
"""Doors of `marstts speak`, which like Python makes no request of a server: nothing has to be given back."""


def test_no_door_of_the_server_is_forgotten():
    from test_settings_by_door import DOORS as DOORS_WITH_SETTINGS

    assert {name.partition(",")[0] for name in DOORS} == DOORS_WITH_SETTINGS.keys() - OF_THE_COMMAND_LINE


def outcomes(server: LiveServer) -> dict[str, float]:
    """The numbers of requests by outcome, of all formats."""
    found: dict[str, float] = {}
    for outcome, number in re.findall(
        r'marstts_requests_total{.*outcome="(\w+)"} ([\d.]+)', server.service.metrics.text().decode()
    ):
        found[outcome] = found.get(outcome, 0.0) + float(number)
    return found


def assert_all_is_given_back(server: LiveServer, outcome: str, caplog: pytest.LogCaptureFixture) -> None:
    """Fail unless one request was counted, nothing of it is left, and no traceback is in the log."""
    wait_until(lambda: outcomes(server) == {outcome: 1.0}, 5.0)
    wait_until(lambda: server.service.admission.num_active == 0)
    wait_until(lambda: not server.service.model.is_loaded)  # nobody uses it
    assert server.service.whole_seconds == 0.0 and server.service.admission.num_waiting == 0
    assert outcomes(server) == {outcome: 1.0}
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


@doors
def test_a_request_that_is_finished(ask, tmp_path: Path, caplog):
    with served(scripted_synthesizer(good), tmp_path) as server:
        ask(server, "The cat sat on the mat. The dog ran.")
        assert_all_is_given_back(server, "ok", caplog)


@doors
def test_a_request_whose_client_leaves(ask, tmp_path: Path, caplog):
    with served(slow_synthesizer(0.02), tmp_path) as server:
        ask(server, "The cat sat on the mat and slept.", lambda: server.service.admission.num_active == 1)
        assert_all_is_given_back(server, "left", caplog)


@doors
def test_a_request_that_is_late(ask, tmp_path: Path, caplog, monkeypatch):
    monkeypatch.setattr("marstts.server.speech_request.EXTRA_SECONDS", 0.2)
    limits = ServeLimits(first_audio_seconds=0.2, seconds_per_audio_second=0.01)
    with served(slow_synthesizer(0.1), tmp_path, limits=limits) as server:
        ask(server, "The cat sat on the mat and slept.")
        assert_all_is_given_back(server, "deadline", caplog)


@doors
def test_a_request_that_cannot_be_spoken(ask, tmp_path: Path, caplog):
    with served(scripted_synthesizer(good), tmp_path) as server:
        ask(server, WORDLESS)
        assert_all_is_given_back(server, "error", caplog)


@doors
def test_a_request_that_finds_no_place(ask, tmp_path: Path, caplog):
    with served(slow_synthesizer(0.02), tmp_path, queue=0) as server:
        with open_request(server, speech(response_format="pcm")):
            wait_until(lambda: server.service.admission.num_active == 1)
            ask(server, "The cat sat on the mat and slept.")
            wait_until(lambda: outcomes(server) == {"refused": 1.0}, 5.0)
            assert server.service.admission.num_active == 1
        wait_until(lambda: outcomes(server) == {"refused": 1.0, "left": 1.0}, 5.0)
        wait_until(lambda: server.service.admission.num_active == 0 and not server.service.model.is_loaded)
        assert server.service.whole_seconds == 0.0 and not [record for record in caplog.records if record.exc_info]


@doors
def test_a_request_that_fails_is_logged_once(ask, tmp_path: Path, caplog):
    def broken(attempt: int, prompt: object) -> ScriptedTake:
        raise ValueError("a fault of the engine")

    with served(scripted_synthesizer(broken), tmp_path) as server:
        ask(server, "The cat sat on the mat and slept.")
        wait_until(lambda: outcomes(server) == {"error": 1.0}, 5.0)
        wait_until(lambda: server.service.admission.num_active == 0 and not server.service.model.is_loaded)
        assert server.service.whole_seconds == 0.0
    faults = [record for record in caplog.records if record.exc_info and record.name.startswith("marstts")]
    assert len(faults) == 1


@doors
def test_a_request_that_runs_when_the_server_stops(ask, tmp_path: Path, caplog):
    """It ends in one line, whatever it was at."""
    with served(slow_synthesizer(0.02), tmp_path) as server:
        ask(server, "The cat sat on the mat and slept.", lambda: stops(server))
        wait_until(lambda: sum(outcomes(server).values()) == 1.0, 5.0)
    assert not [record for record in caplog.records if record.exc_info]


def stops(server: LiveServer) -> bool:
    """Stop the service once a request is spoken."""
    if server.service.admission.num_active == 0:
        return False
    server.service.close()
    return True
