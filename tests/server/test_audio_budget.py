"""The audio of a request is bounded in seconds, pauses and speed included, for every way to ask for speech."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from api_server import free_port, live_server, speech
from starlette.testclient import TestClient

from marstts.server.api_errors import ApiError
from marstts.server.app import create_app
from marstts.server.callers import ADMINISTRATOR
from marstts.server.schemas import SpeechBody
from marstts.server.service import SpeechService
from marstts.server.settings import ServeLimits, ServeSettings
from marstts.server.speech_request import SpeechRequest
from marstts.synthesis.synthesizer import Synthesizer
from scripted import good, scripted_synthesizer

pytestmark = pytest.mark.slow

URL = "/v1/audio/speech"
PAUSES = [
    "Hello there [pause:60s] " * 40,
    "Hello. [pause: 60000ms] " * 40 + "Hello there.",
    "<speak>Hello there." + '<break time="60s"/>There.' * 40 + "</speak>",
    "<speak>" + '<s>Hello.</s><break time="59000ms"/>' * 40 + "</speak>",
]
DIGITS = "1234567 " * 500


def refusal(response: Any) -> str:
    """The message of a refusal for too much audio."""
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"]) == ("input", "audio_too_long")
    return error["message"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("text", [*PAUSES, DIGITS])
def test_too_much_audio_is_refused_with_the_seconds_allowed(client: TestClient, app, text: str, stream: bool):
    message = refusal(client.post(URL, json=speech(text, stream=stream)))
    assert "at most 900 s" in message and "pauses and speed included" in message
    assert not app.state.service.synthesizer.session.engine.prompts or app.state.service.admission.num_active == 0


@pytest.mark.parametrize(("speed", "status"), [(1.0, 200), (0.25, 400)])
def test_the_speed_counts(synthesizer: Synthesizer, tmp_path: Path, speed: float, status: int):
    settings = ServeSettings(voices_folder=tmp_path, limits=ServeLimits(audio_seconds=20.0))
    body = speech("She sells sea shells by the sea. " * 4, speed=speed, response_format="pcm")
    with TestClient(create_app(synthesizer, settings)) as client:
        assert client.post(URL, json=body).status_code == status


@pytest.mark.parametrize("text", [*PAUSES[:2], DIGITS])
def test_a_session_is_bounded(synthesizer: Synthesizer, tmp_path: Path, text: str):
    settings = ServeSettings(voices_folder=tmp_path, limits=ServeLimits(audio_seconds=70.0))
    with (
        TestClient(create_app(synthesizer, settings)) as client,
        client.websocket_connect(f"{URL}/stream") as socket,
    ):
        for start in range(0, len(text), 600):
            socket.send_json({"type": "input.text", "text": text[start : start + 600]})
        socket.send_json({"type": "input.done"})
        while "text" not in (message := socket.receive()) or json.loads(message["text"])["type"] != "error":
            assert message["type"] != "websocket.close"
    assert json.loads(message["text"])["error"]["code"] == "audio_too_long"


def test_wyoming_is_bounded(tmp_path: Path):
    client_module = pytest.importorskip("wyoming.client", reason="wyoming is not installed")
    from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop

    streamed = [SynthesizeStart().event(), SynthesizeChunk(text=PAUSES[0]).event(), SynthesizeStop().event()]

    async def error_of(events: list[Any], port: int) -> str:
        async with client_module.AsyncTcpClient("127.0.0.1", port) as client:
            for event in events:
                await client.write_event(event)
            while (event := await asyncio.wait_for(client.read_event(), 20)) is not None:
                if event.type == "error":
                    return event.data["code"]
        return "closed"

    settings = ServeSettings(voices_folder=tmp_path, wyoming_port=free_port())
    with live_server(scripted_synthesizer(good), settings):
        for events in ([Synthesize(text=PAUSES[0]).event()], [Synthesize(text=DIGITS).event()], streamed):
            assert asyncio.run(error_of(events, settings.wyoming_port or 0)) == "audio_too_long"


def test_the_bound_is_a_setting(synthesizer: Synthesizer, tmp_path: Path):
    settings = ServeSettings(voices_folder=tmp_path, limits=ServeLimits(audio_seconds=20.0))
    with TestClient(create_app(synthesizer, settings)) as client:
        assert "at most 20 s" in refusal(client.post(URL, json=speech("Hello there. [pause:30s]")))
        assert client.post(URL, json=speech("Hello there. [pause:10s]")).status_code == 200


@pytest.mark.parametrize("speed", [1.0, 0.8, 2.0])
def test_whole_files_at_work_are_bounded_together_and_streams_are_not(
    synthesizer: Synthesizer, tmp_path: Path, speed: float
):
    limits = ServeLimits(whole_audio_seconds=40.0)  # pauses are as long at any speed
    settings = ServeSettings(voices_folder=tmp_path, limits=limits)

    async def run(service: SpeechService) -> None:
        body = SpeechBody.model_validate(speech("Hello there. [pause:25s] Good bye.", speed=speed, stream=False))
        async with SpeechRequest(service, body, ADMINISTRATOR) as first:
            await anext(first.pieces())
            with pytest.raises(ApiError) as refused:
                await anext(SpeechRequest(service, body, ADMINISTRATOR).pieces())
            assert refused.value.status == 429
            async with SpeechRequest(service, body.model_copy(update={"stream": True}), ADMINISTRATOR) as stream:
                await anext(stream.pieces())
        async with SpeechRequest(service, body, ADMINISTRATOR) as again:
            await anext(again.pieces())

    with closing(SpeechService(synthesizer, settings)) as service:
        asyncio.run(run(service))
        assert service.whole_seconds == pytest.approx(0.0)


@pytest.mark.parametrize(("speed", "stream"), [(4.0, False), (4.0, True), (1.0, False)])
def test_pauses_count_as_long_at_any_speed(synthesizer: Synthesizer, tmp_path: Path, speed: float, stream: bool):
    settings = ServeSettings(voices_folder=tmp_path, limits=ServeLimits(audio_seconds=20.0))
    body = speech("Hello there. [pause:30s] Good bye.", speed=speed, stream=stream, response_format="pcm")
    with TestClient(create_app(synthesizer, settings)) as client:
        assert client.post(URL, json=body).status_code == 400


def test_a_long_pause_comes_in_pieces(synthesizer: Synthesizer, tmp_path: Path):
    async def run(service: SpeechService) -> list[int]:
        body = SpeechBody.model_validate(speech("Hello. [pause:60s] Good bye.", response_format="pcm"))
        async with SpeechRequest(service, body, ADMINISTRATOR) as request:
            return [len(piece.content) async for piece in request.pieces()]

    with closing(SpeechService(synthesizer, ServeSettings(voices_folder=tmp_path))) as service:
        sizes = asyncio.run(run(service))
    assert sum(sizes) > 60 * 48_000 and max(sizes) <= 5 * 48_000
