"""A model that leaves memory while nobody speaks."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from api_server import speech, wait_until
from starlette.testclient import TestClient

from marstts.errors import CheckpointError
from marstts.server.app import create_app
from marstts.server.settings import ServeSettings
from marstts.synthesis.synthesizer import Synthesizer
from scripted import good, scripted_synthesizer

IDLE_SECONDS = 0.3


@contextmanager
def idle_server(folder: Path, reopen: Callable[[], Synthesizer]) -> Iterator[tuple[TestClient, weakref.ref[Any]]]:
    """A client, and the engine that the server begins with."""
    first = scripted_synthesizer(good)
    settings = ServeSettings(capacity=3, voices_folder=folder, unload_after_seconds=IDLE_SECONDS)
    engine, app = weakref.ref(first.session.engine), create_app(first, settings, reopen)
    del first
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client, engine


def is_loaded(client: TestClient) -> bool:
    return client.get("/health").json()["loaded"]


def pcm(client: TestClient, voice: str = "ada") -> bytes:
    response = client.post("/v1/audio/speech", json=speech(voice=voice, response_format="pcm"))
    assert response.status_code == 200, response.text
    return response.content


def test_an_idle_model_leaves_memory_and_the_next_request_loads_it_again(tmp_path: Path, reference_file: Path) -> None:
    opened: list[bool] = []

    def reopen() -> Synthesizer:
        opened.append(True)
        return scripted_synthesizer(good)

    with idle_server(tmp_path, reopen) as (client, engine):
        fields = {"name": "Anna", "consent": "She agreed."}
        upload = client.post(
            "/v1/audio/voices", data=fields, files={"audio_sample": ("a.wav", reference_file.read_bytes())}
        )
        assert upload.status_code == 200
        before = pcm(client), pcm(client, "Anna")
        wait_until(lambda: not is_loaded(client))
        gc.collect()
        assert engine() is None
        loads = len(opened)  # 0, but where a request took longer than the model may be idle
        for path in ("/health", "/v1/models", "/v1/audio/voices", "/metrics", "/"):  # they need no model
            assert client.get(path).status_code == 200
        assert client.post("/v1/text/readings", json={"input": "5 km"}).status_code == 200
        assert not is_loaded(client) and len(opened) == loads
        assert (pcm(client), pcm(client, "Anna")) == before and len(opened) > loads
        wait_until(lambda: not is_loaded(client))
        loads = len(opened)
        assert pcm(client, "Anna") == before[1] and len(opened) == loads + 1


def test_a_model_that_cannot_be_loaded_again_is_no_error_of_the_client(tmp_path: Path) -> None:
    is_gone = True

    def reopen() -> Synthesizer:
        if is_gone:
            raise CheckpointError("/secret/folder: no such folder")
        return scripted_synthesizer(good)

    with idle_server(tmp_path, reopen) as (client, _):
        wait_until(lambda: not is_loaded(client))
        refused = client.post("/v1/audio/speech", json=speech())
        assert refused.status_code == 503 and "cannot be loaded" in refused.text and "secret" not in refused.text
        is_gone = False
        assert pcm(client)


def test_a_model_stays_while_a_request_is_spoken(tmp_path: Path) -> None:
    with idle_server(tmp_path, lambda: scripted_synthesizer(good)) as (client, _):
        model = client.app.state.service.model  # type: ignore[attr-defined]
        with model.used():
            time.sleep(3 * IDLE_SECONDS)
            assert model.is_loaded
        wait_until(lambda: not model.is_loaded)
