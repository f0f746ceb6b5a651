"""Mutated requests: never a 500, never a hang, and memory that does not grow.

300 by default; `MARSTTS_FUZZ=10000 pytest tests/server/test_mutated_requests.py` tries so many.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from api_server import TEXT
from starlette.testclient import TestClient

from marstts.audio import Waveform, encode
from marstts.server.app import create_app
from marstts.server.settings import ServeLimits, ServeSettings
from scripted import good, scripted_synthesizer

pytestmark = pytest.mark.slow

STRANGE: list[Any] = [
    None, True, 0, -1, 1e308, 2**70, "", " ", "\x00", "../../etc/passwd", "a" * 5000, "😀" * 50, "\ud800", [], {},
    [[]], {"id": "../x"}, {"id": {}}, "<speak>", "<speak><voice name='/etc/passwd'>a</voice></speak>", "9" * 400, "pcm",
    "sse",
]  # fmt: skip
FIELDS = (
    "model", "input", "voice", "response_format", "speed", "stream_format", "instructions", "stream", "seed", "items",
    "name", "unknown",
)  # fmt: skip
PATHS = (
    ("POST", "/v1/audio/speech"), ("POST", "/v1/audio/voices"),
    ("POST", "/v1/audio/voices/alloy"), ("GET", "/v1/audio/voices/../../etc/passwd"), ("GET", "/page/..%2f..%2fapp.py"),
    ("DELETE", "/v1/audio/voices/%00"),
    ("GET", "/v1/models/%2e%2e"), ("PUT", "/v1/audio/speech"),
)  # fmt: skip
TYPES = ("application/json", "application/json; charset=x", "text/plain", "multipart/form-data; boundary=x", "")


def mutated(rng: random.Random) -> tuple[str, str, bytes, str]:
    """Method, path, body and content type of one request."""
    method, path = rng.choice(PATHS[:1] * 4 + PATHS)
    body: dict[str, Any] = {"model": "tts-1", "voice": "alloy", "input": TEXT[:3], "response_format": "pcm"}
    for _ in range(rng.randint(0, 3)):
        body[rng.choice(FIELDS)] = rng.choice(STRANGE)
    content = json.dumps(body).encode()
    if rng.random() < 0.3:
        cut = rng.randrange(len(content))
        content = content[:cut] + rng.randbytes(rng.randint(0, 4)) + content[cut + rng.randint(0, 3) :]
    return method, path, content, rng.choice(TYPES[:1] * 6 + TYPES)


REQUESTS = int(os.environ.get("MARSTTS_FUZZ", "300"))


def test_mutated_requests_get_no_500_and_memory_stays_flat(client: TestClient):
    rng, peaks = random.Random(0), []
    for number in range(REQUESTS):
        method, path, content, kind = mutated(rng)
        response = client.request(method, path, content=content, headers={"Content-Type": kind} if kind else {})
        assert response.status_code < 500, (method, path, content, kind, response.text)
        if response.status_code >= 400 and response.status_code != 499:
            assert set(response.json()["error"]) == {"message", "type", "param", "code"}
        if number % 100 == 99:
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert not peaks or peaks[-1] - peaks[0] < 20_000, f"the peak of memory grew: {peaks} KiB"


def form(client: TestClient, recording: bytes, filename: str = "a.wav", **fields: str):
    files = {"audio_sample": (filename, recording)}
    return client.post("/v1/audio/voices", data={"name": "Anna", "consent": "Anna agreed.", **fields}, files=files)


def opus_of_silence(seconds: int) -> bytes:
    """A small file that unpacks to much more."""
    sink = io.BytesIO()
    with av.open(sink, "w", format="ogg") as container:
        stream = container.add_stream("libopus", rate=48_000, layout="mono")
        stream.bit_rate = 6000
        for start in range(0, seconds * 48_000, 48_000):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 48_000), np.float32), format="flt", layout="mono")
            frame.sample_rate, frame.pts = 48_000, start
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return sink.getvalue()


def test_a_recording_that_unpacks_to_too_much_is_refused(client: TestClient):
    bomb = opus_of_silence(100)
    assert len(bomb) < 120_000
    response = form(client, bomb, "bomb.opus")
    assert response.status_code == 400 and "longer than 60 s" in response.json()["error"]["message"]


def test_names_with_paths_write_nothing_outside_of_the_folder(tmp_path: Path, reference: Waveform):
    folder = tmp_path / "inside" / "voices"
    app = create_app(scripted_synthesizer(good), ServeSettings(voices_folder=folder))
    with TestClient(app) as client:
        for name in ("../evil", "/etc/passwd", "..\\evil", "voice_../../x"):
            response = form(client, encode(reference, ".wav"), "../../../evil.wav", name=name)
            assert response.status_code in (200, 400)
    written = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert all(path.parent == folder and path.name.startswith("voice_") for path in written)


def test_a_body_of_100_megabytes_is_refused_before_it_is_read(tmp_path: Path):
    settings = ServeSettings(voices_folder=tmp_path, limits=ServeLimits())
    sent = 0

    def endless():
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b"a" * 2**20

    with TestClient(create_app(scripted_synthesizer(good), settings)) as client:
        response = client.post(
            "/v1/audio/speech", content=b"", headers={"Content-Type": "application/json", "Content-Length": "104857600"}
        )
        assert response.status_code == 413 and response.json()["error"]["code"] == "too_large"
        response = client.post("/v1/audio/speech", content=endless(), headers={"Content-Type": "application/json"})
        assert response.status_code == 413
