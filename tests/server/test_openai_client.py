"""OpenAI's own Python client against the server: formats, streams, events, errors, retries, voices."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from api_server import TEXT, LiveServer, live_server

from marstts.audio import Waveform, encode
from marstts.server.settings import ServeSettings
from scripted import good, scripted_synthesizer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def openai() -> ModuleType:
    """The client's package, which takes a second to import: processes that run none of these tests are spared it."""
    return pytest.importorskip("openai", reason="OpenAI's client is not installed")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    settings = ServeSettings(api_keys=("secret",), voices_folder=tmp_path / "voices")
    with live_server(scripted_synthesizer(good), settings) as server:
        yield server


@pytest.fixture
def api(openai: ModuleType, server: LiveServer):
    with openai.OpenAI(api_key="secret", base_url=f"{server.address}/v1", max_retries=1) as client:
        yield client


def pcm_of(server: LiveServer) -> bytes:
    return b"".join(chunk.pcm() for chunk in server.service.synthesizer.stream(TEXT, "ada"))


@pytest.mark.parametrize("name", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
def test_every_format_comes_whole_and_in_pieces(api, server: LiveServer, name):
    fields = {"model": "tts-1", "voice": "alloy", "input": TEXT, "response_format": name}
    whole = api.audio.speech.create(**fields).read()
    with api.audio.speech.with_streaming_response.create(**fields) as response:
        pieces = list(response.iter_bytes())
    assert b"".join(pieces)[-500:-50] == whole[-500:-50] or name == "opus"  # Ogg has random serial numbers
    assert len(b"".join(pieces)) == len(whole) > 1000
    if name == "pcm":
        assert whole == pcm_of(server)


def test_events_hold_the_speech(api, server: LiveServer):
    with api.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="alloy", input=TEXT, response_format="pcm", stream_format="sse"
    ) as response:
        lines = [line for line in response.iter_lines() if line.startswith("data: ")]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == pcm_of(server)


def test_errors_are_the_clients_exceptions(openai: ModuleType, api, server: LiveServer):
    fields = {"model": "tts-1", "voice": "alloy", "input": TEXT}
    with pytest.raises(openai.BadRequestError) as caught:
        api.audio.speech.create(**fields | {"voice": "nobody"})
    assert caught.value.code == "voice_not_found" and caught.value.param == "voice"
    with pytest.raises(openai.NotFoundError):
        api.audio.speech.create(**fields | {"model": "gpt-5"})
    with pytest.raises(openai.AuthenticationError):
        api.with_options(api_key="wrong").audio.speech.create(**fields)


def test_a_busy_server_is_asked_again_after_the_time_it_names(openai: ModuleType, api, server: LiveServer):
    admission = server.service.admission
    places, queue = admission.places, admission.queue
    admission.places = admission.queue = 0
    with pytest.raises(openai.RateLimitError):
        api.with_options(max_retries=0).audio.speech.create(model="tts-1", voice="alloy", input=TEXT)

    refusals = []
    original = admission.retry_after

    def reopen() -> float:
        refusals.append(1)
        admission.places, admission.queue = places, queue
        return original()

    admission.retry_after = reopen
    assert len(api.audio.speech.create(model="tts-1", voice="alloy", input=TEXT).read()) > 1000
    assert refusals == [1]


def test_models_are_listed(api):
    assert [model.id for model in api.models.list()][:2] == ["scripted", "tts-1"]
    assert api.models.retrieve("tts-1").owned_by == "marstts"


def test_a_voice_is_created_used_and_deleted(api, reference: Waveform):
    if not hasattr(api.audio, "voices"):
        pytest.skip("this version of the client has no voices")
    voice = api.audio.voices.create(
        name="Anna",
        audio_sample=("anna.wav", io.BytesIO(encode(reference, ".wav")), "audio/wav"),
        consent="Anna agreed.",
        extra_body={"transcript": "he might even have been made amiable himself"},
    )
    speech = api.audio.speech.create(model="tts-1", voice={"id": voice.id}, input=TEXT)
    assert len(speech.read()) > 1000
    assert api.audio.voices.delete(voice.id).deleted
