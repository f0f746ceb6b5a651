"""Requests as three clients send them, and what each needs of the answers."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from api_server import TEXT
from starlette.testclient import TestClient

pytestmark = pytest.mark.slow

URL = "/v1/audio/speech"


def post(client: TestClient, body: dict[str, Any], **headers: str):
    return client.post(URL, content=json.dumps(body), headers={"Content-Type": "application/json", **headers})


def is_mp3(content: bytes) -> bool:
    return content[:1] == b"\xff" and content[1] & 0xE0 == 0xE0


def test_open_webui_gets_mp3_voices_and_models(client: TestClient):
    headers = {"Authorization": "Bearer none", "X-OpenWebUI-User-Name": "Anna", "X-OpenWebUI-User-Id": "1"}
    response = post(client, {"input": TEXT, "voice": "alloy", "model": "tts-1"}, **headers)
    assert response.status_code == 200 and is_mp3(response.content)
    voices = client.get("/v1/audio/voices", headers=headers).json()["voices"]
    assert {"ada", "alloy"} <= {voice["id"] for voice in voices} and all(voice["name"] for voice in voices)
    assert "tts-1" in {model["id"] for model in client.get("/v1/audio/models").json()["models"]}


def test_sillytavern_gets_mp3_for_its_defaults(client: TestClient):
    body = {"model": "tts-1", "input": TEXT, "voice": "nova", "response_format": "mp3", "speed": 1}
    response = post(client, body, Authorization="Bearer ")
    assert response.status_code == 200 and is_mp3(response.content)


@pytest.mark.parametrize("model", ["tts-1", "gpt-4o-mini-tts"])
def test_livekit_reads_bytes_or_events_by_the_content_type(client: TestClient, model: str):
    body = {"input": TEXT, "model": model, "voice": "ash", "response_format": "mp3", "speed": 1.0}
    if model == "gpt-4o-mini-tts":
        body["stream_format"] = "sse"
    response = post(client, body, Accept="application/octet-stream")
    if model == "tts-1":
        assert response.headers["content-type"] == "audio/mpeg" and is_mp3(response.content)
        return
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line[len("data: ") :] for line in response.text.splitlines() if line.startswith("data: ")]
    audio = b"".join(base64.b64decode(json.loads(line).get("audio", "")) for line in lines)
    assert is_mp3(audio) and json.loads(lines[-1])["type"] == "speech.audio.done"
    assert client.get("/").status_code == 200, "LiveKit warms up its connection so"


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [({"voice": "nobody"}, 400, "voice"), ({"model": "gpt-5"}, 404, "model"), ({"speed": 5}, 400, "speed")],
)
def test_errors_have_all_four_fields(client: TestClient, fields: dict[str, Any], status: int, param: str):
    response = post(client, {"model": "tts-1", "voice": "alloy", "input": TEXT, **fields})
    assert response.status_code == status
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["param"] == param
