"""A speech server around a scripted model, in a thread, for tests that need real connections."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from marstts.http.server import Server
from marstts.server.app import create_app
from marstts.server.idle_model import OpenModel
from marstts.server.service import SpeechService
from marstts.server.settings import ServeSettings
from marstts.synthesis.synthesizer import Synthesizer

TEXT = "the cat sat on the mat"


def speech(text: str = TEXT, **fields: Any) -> dict[str, Any]:
    """The body of a request for speech."""
    return {"model": "tts-1", "input": text, "voice": "alloy", **fields}


def free_port() -> int:
    """A port that no other test is about to take: not one that the system gives to those who ask for any."""
    for attempt in range(1000):
        port = 20_000 + (os.getpid() * 101 + attempt * 7) % 10_000
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
    raise OSError("no port is free")


@dataclass(frozen=True)
class LiveServer:
    """A server that runs."""

    address: str
    service: SpeechService


@contextmanager
def live_server(
    synthesizer: Synthesizer,
    settings: ServeSettings,
    *,
    silent_seconds: float = 20.0,
    reopen: OpenModel | None = None,
) -> Iterator[LiveServer]:
    """Serve on a free port of loopback."""
    app = create_app(synthesizer, settings, reopen)
    app.state.limits = replace(app.state.limits, silent_seconds=silent_seconds)
    with Server(app, "127.0.0.1", 0, has_sessions=True) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        wait_until(lambda: server.server.started or not thread.is_alive())
        try:
            yield LiveServer(server.address.rstrip("/"), app.state.service)
        finally:
            server.stop()
            thread.join(timeout=20)
            app.state.service.close()


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> float:
    """Wait until a condition holds -> seconds that took; fails after `seconds`."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() < started + seconds, "waited in vain"
        time.sleep(0.002)
    return time.monotonic() - started
