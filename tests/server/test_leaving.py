"""Clients that leave while they wait in the queue: over HTTP, a WebSocket and Wyoming."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import LiveServer, free_port, live_server, speech, wait_until
from test_shared_batch import open_request, slow_synthesizer

from marstts.server.settings import ServeSettings

MAX_SECONDS = 0.5
"""Bound of this test on a busy machine; `tools/serve_bars.py` measures the time."""


TEXT = "The cat sat on the mat and slept all day long. The dog ran. "


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[LiveServer]:
    """A server whose only place is taken for long."""
    port = free_port()
    settings = ServeSettings(capacity=1, queue=4, max_wait_seconds=60, voices_folder=tmp_path, wyoming_port=port)
    with live_server(slow_synthesizer(0.05), settings) as server:
        with open_request(server, speech(response_format="pcm")):
            wait_until(lambda: server.service.admission.num_active == 1)
            yield server
        wait_until(lambda: server.service.admission.num_active == 0)


def assert_it_is_forgotten(server: LiveServer) -> None:
    """Fail unless the queue is empty soon, while the place is still taken."""
    assert wait_until(lambda: server.service.admission.num_waiting == 0) < MAX_SECONDS
    assert server.service.admission.num_active == 1


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{}, {"stream": False}, {"stream_format": "sse"}])
def test_over_http(busy: LiveServer, fields):
    with open_request(busy, speech(response_format="pcm", **fields)):
        wait_until(lambda: busy.service.admission.num_waiting == 1)
    assert_it_is_forgotten(busy)


@pytest.mark.slow
@pytest.mark.parametrize("is_done", [True, False])
def test_over_a_websocket(busy: LiveServer, is_done):
    connect = pytest.importorskip("websockets.sync.client").connect
    with connect(busy.address.replace("http", "ws") + "/v1/audio/speech/stream") as session:
        session.send(json.dumps({"type": "input.text", "text": TEXT}))
        if is_done:
            session.send(json.dumps({"type": "input.done"}))
        wait_until(lambda: busy.service.admission.num_waiting == 1)
    assert_it_is_forgotten(busy)


@pytest.mark.slow
def test_while_the_thread_of_a_session_is_not_scheduled(busy: LiveServer, monkeypatch: pytest.MonkeyPatch):
    connect = pytest.importorskip("websockets.sync.client").connect
    schedule = asyncio.run_coroutine_threadsafe

    def schedule_and_sleep(*args: Any) -> Any:
        found = schedule(*args)
        time.sleep(2 * MAX_SECONDS)
        return found

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", schedule_and_sleep)
    with connect(busy.address.replace("http", "ws") + "/v1/audio/speech/stream") as session:
        session.send(json.dumps({"type": "input.text", "text": TEXT}))
        wait_until(lambda: busy.service.admission.num_waiting == 1)
    assert_it_is_forgotten(busy)


def test_over_wyoming(busy: LiveServer):
    client_module = pytest.importorskip("wyoming.client")
    from wyoming.tts import Synthesize

    async def ask_and_leave() -> None:
        async with client_module.AsyncTcpClient("127.0.0.1", busy.service.settings.wyoming_port) as client:
            await client.write_event(Synthesize("The cat sat.").event())
            while busy.service.admission.num_waiting == 0:
                await asyncio.sleep(0.005)

    asyncio.run(ask_and_leave())
    assert_it_is_forgotten(busy)
