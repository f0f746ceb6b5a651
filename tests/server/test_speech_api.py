"""`POST /v1/audio/speech` and the lists of models: formats, streams, events, and errors in OpenAI's shape."""

from __future__ import annotations

import base64
import io
import json
import time
from typing import Any
from urllib.parse import unquote

import av
import numpy as np
import pytest
import soundfile
from api_server import TEXT, speech
from starlette.testclient import TestClient

from marstts.server.app import create_app
from marstts.server.settings import ServeLimits, ServeSettings
from marstts.synthesis.synthesizer import Synthesizer
from scripted import LOUD, SILENT, ScriptedPrompt, ScriptedTake, scripted_synthesizer

pytestmark = pytest.mark.slow

URL = "/v1/audio/speech"


def expected_pcm(synthesizer: Synthesizer, text: str = TEXT, voice: str = "ada", seed: int = 0) -> bytes:
    """Audio for a single caller of the synthesizer."""
    return b"".join(chunk.pcm() for chunk in synthesizer.stream(text, voice, seed=seed))


def count_samples(content: bytes) -> float:
    """Seconds of audio in a file, decoded by FFmpeg."""
    with av.open(io.BytesIO(content)) as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


def events_of(text: str) -> list[dict[str, Any]]:
    """The data of all server-sent events."""
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def test_pcm_is_what_the_synthesizer_streams(client: TestClient, synthesizer: Synthesizer):
    response = client.post(URL, json=speech(response_format="pcm"))
    assert response.status_code == 200
    assert response.headers["content-type"] == "audio/pcm"
    assert response.content == expected_pcm(synthesizer)


def test_a_wav_stream_is_a_header_of_unknown_length_and_pcm(client: TestClient, synthesizer: Synthesizer):
    content = client.post(URL, json=speech(response_format="wav")).content
    assert content[:4] == b"RIFF" and content[4:8] == content[40:44] == b"\xff" * 4
    assert content[44:] == expected_pcm(synthesizer)


@pytest.mark.parametrize(
    ("name", "media_type", "padding"),
    [
        ("mp3", "audio/mpeg", 0.1),
        ("opus", "audio/ogg", 0.03),
        ("aac", "audio/aac", 0.1),
        ("flac", "audio/flac", 0.0),
        ("wav", "audio/wav", 0.0),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_every_format_decodes_to_all_of_the_speech(client: TestClient, synthesizer, name, media_type, padding, stream):
    response = client.post(URL, json=speech(response_format=name, stream=stream))
    assert response.headers["content-type"] == media_type
    assert ("content-length" in response.headers) is not stream
    seconds = len(expected_pcm(synthesizer)) / 48_000
    assert seconds - 0.001 <= count_samples(response.content) <= seconds + padding + 0.001


def test_events_name_each_sentence_once_where_they_are_asked_to(client: TestClient, synthesizer: Synthesizer):
    text = "The cat sat on the mat. She sells sea shells."
    body = speech(text, response_format="pcm", stream_format="sse", sentences=True)
    events = events_of(client.post(URL, json=body).text)
    assert [event["sentence"] for event in events if "sentence" in event] == [
        "The cat sat on the mat.", "She sells sea shells.",
    ]  # fmt: skip
    assert b"".join(base64.b64decode(event.get("audio", "")) for event in events) == expected_pcm(synthesizer, text)


def test_a_sentence_of_many_chunks_is_named_with_its_first_audio(client: TestClient, synthesizer: Synthesizer):
    text = "The cat sat on the mat and looked at the sea, where the ships came home. She sells sea shells."
    chunks = list(synthesizer.stream(text, "ada"))
    first = b"".join(chunk.pcm() for chunk in chunks if chunk.sentence == 1)
    assert sum(chunk.sentence == 1 for chunk in chunks) >= 3
    body = speech(text, response_format="pcm", stream_format="sse", sentences=True)
    events = events_of(client.post(URL, json=body).text)
    named = [index for index, event in enumerate(events) if "sentence" in event]
    assert [events[index]["sentence"] for index in named] == text.replace(". ", ".|").split("|")
    before = b"".join(base64.b64decode(event.get("audio", "")) for event in events[: named[1]])
    assert before == first


def test_mp3_is_the_default(client: TestClient):
    assert client.post(URL, json=speech()).headers["content-type"] == "audio/mpeg"


def test_a_whole_wav_file_holds_its_length_and_the_speech(client: TestClient, synthesizer: Synthesizer):
    content = client.post(URL, json=speech(response_format="wav", stream=False)).content
    samples, rate = soundfile.read(io.BytesIO(content), dtype="float32")
    expected = synthesizer.speak(TEXT, "ada").samples
    assert rate == 24_000 and len(samples) == len(expected)
    np.testing.assert_allclose(samples, expected, atol=1e-4)


@pytest.mark.parametrize("speed", [0.25, 0.5, 2.0, 4.0])
def test_speed_changes_the_length(client: TestClient, synthesizer: Synthesizer, speed):
    content = client.post(URL, json=speech(response_format="pcm", speed=speed)).content
    assert len(content) / len(expected_pcm(synthesizer)) == pytest.approx(1 / speed, rel=0.05)


def test_events_carry_the_bytes_of_the_file_and_its_tokens(client: TestClient, synthesizer: Synthesizer):
    response = client.post(URL, json=speech(response_format="pcm", stream_format="sse"))
    assert response.headers["content-type"].startswith("text/event-stream")
    events = events_of(response.text)
    assert {event["type"] for event in events[:-1]} == {"speech.audio.delta"}
    assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == expected_pcm(synthesizer)
    tokens = sum(len(codes) for take in synthesizer.speak(TEXT, "ada").takes for codes in take.codes)
    usage = {"input_tokens": len(TEXT), "output_tokens": tokens, "total_tokens": len(TEXT) + tokens}
    assert events[-1] == {"type": "speech.audio.done", "usage": usage}


def test_another_seed_reaches_the_sampler(mini: Synthesizer, settings: ServeSettings):
    seeds = (0, 3, 5, 0)
    with TestClient(create_app(mini, settings)) as client:
        contents = [client.post(URL, json=speech(response_format="pcm", seed=seed)).content for seed in seeds]
    assert is_same_audio(contents[0], contents[3])
    assert not all(is_same_audio(contents[0], content) for content in contents[1:3])  # two seeds may give one take
    whole = speech(response_format="pcm", seed=3, stream=False)
    with TestClient(create_app(mini, settings)) as client:
        samples = mini.speak(TEXT, "ada", seed=3).samples  # of a flawed take, a stream may differ: some of it was sent
        assert is_same_audio(client.post(URL, json=whole).content, (samples * 32767).astype("<i2").tobytes())


def is_same_audio(ours: bytes, theirs: bytes) -> bool:
    """Compare 16-bit samples; those of a stream are rounded differently where its chunks begin."""
    if len(ours) != len(theirs):
        return False
    difference = np.frombuffer(ours, "<i2").astype(int) - np.frombuffer(theirs, "<i2")
    return bool(np.abs(difference).max() <= 3)


def test_unknown_fields_and_nulls_are_ignored(client: TestClient, synthesizer: Synthesizer):
    body = speech(response_format="pcm", speed=None, stream_format=None, volume_multiplier=2, normalization_options={})
    assert client.post(URL, json=body).content == expected_pcm(synthesizer)


def test_instructions_are_ignored_aloud(client: TestClient):
    response = client.post(URL, json=speech(instructions="Whisper."))
    assert response.status_code == 200 and response.headers["x-marstts-ignored"] == "instructions"
    assert "x-marstts-ignored" not in client.post(URL, json=speech()).headers


def test_what_cannot_be_spoken_is_named(client: TestClient):
    response = client.post(URL, json=speech(f"{TEXT} ☃ 鈴"))
    assert "left out" in unquote(response.headers["x-marstts-warning"])
    events = events_of(client.post(URL, json=speech(f"{TEXT} ☃ 鈴", stream_format="sse")).text)
    assert "left out" in events[0]["warning"]


@pytest.mark.parametrize("model", ["tts-1", "tts-1-hd", "gpt-4o-mini-tts", "scripted"])
def test_the_model_has_its_name_and_those_of_openai(client: TestClient, model):
    assert client.post(URL, json=speech(model=model)).status_code == 200
    assert client.get(f"/v1/models/{model}").json()["id"] == model


def test_models_are_listed_in_the_shapes_that_clients_read(client: TestClient):
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list" and listed["data"][0]["id"] == "scripted"
    assert set(listed["data"][0]) == {"id", "object", "created", "owned_by", "root"}
    assert [model["id"] for model in client.get("/v1/audio/models").json()["models"]][:2] == ["scripted", "tts-1"]


@pytest.mark.parametrize(
    ("fields", "status", "param", "code"),
    [
        ({"model": "whisper-1"}, 404, "model", "model_not_found"),
        ({"voice": "nobody"}, 400, "voice", "voice_not_found"),
        ({"voice": "../ada"}, 400, "voice", "voice_not_found"),
        ({"voice": {"id": "voice_" + "a" * 26}}, 400, "voice", "voice_not_found"),
        ({"voice": 3}, 400, "voice", None),
        ({"input": ""}, 400, "input", None),
        ({"input": "a" * 4097}, 400, "input", None),
        ({"input": "☃"}, 400, None, None),
        ({"response_format": "ogg"}, 400, "response_format", None),
        ({"speed": 0.2}, 400, "speed", None),
        ({"speed": 4.5}, 400, "speed", None),
        ({"speed": "NaN"}, 400, "speed", None),
        ({"stream_format": "text"}, 400, "stream_format", None),
        ({"seed": -1}, 400, "seed", None),
        ({"instructions": "x" * 4097}, 400, "instructions", None),
    ],
)
def test_errors_name_the_field(client: TestClient, fields, status, param, code):
    response = client.post(URL, json=speech(**fields))
    error = response.json()["error"]
    assert response.status_code == status
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)


def test_missing_fields_are_named(client: TestClient):
    for field in ("input", "voice"):
        body = {name: value for name, value in speech().items() if name != field}
        assert client.post(URL, json=body).json()["error"]["param"] == field


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'"x"', b'{"input": "\\ud800"}', b"\xff", b"[" * 5000, b'{"seed": ' + b"9" * 5000],
)
def test_what_is_no_object_gets_400(client: TestClient, content):
    response = client.post(URL, content=content, headers={"content-type": "application/json"})
    assert response.status_code == 400 and response.json()["error"]["type"] == "invalid_request_error"


def test_a_body_of_another_type_is_refused(client: TestClient):
    response = client.post(URL, content=json.dumps(speech()), headers={"content-type": "text/plain"})
    assert response.status_code == 415 and response.headers["x-should-retry"] == "false"


def test_unknown_addresses_and_methods_are_error_objects(client: TestClient):
    for response, status in ((client.get("/nothing"), 404), (client.get(URL), 405)):
        assert response.status_code == status and response.json()["error"]["type"] == "invalid_request_error"


def test_an_engine_that_fails_gives_500_and_the_next_request_is_served(settings: ServeSettings):
    failures = [RuntimeError("secret insides")] * 2  # a row that fails is tried once more, alone

    def fail_twice(attempt: int, prompt: object) -> ScriptedTake:
        if failures:
            raise failures.pop()
        return ScriptedTake(20)

    with TestClient(create_app(scripted_synthesizer(fail_twice), settings), raise_server_exceptions=False) as client:
        failed = client.post(URL, json=speech())
        assert failed.status_code == 500 and failed.json()["error"]["type"] == "server_error"
        assert "secret" not in failed.text
        assert client.post(URL, json=speech()).status_code == 200


def test_a_failure_after_the_first_bytes_is_an_event(settings: ServeSettings):
    def fail_later(attempt: int, prompt: object) -> ScriptedTake:
        if attempt == 1:
            raise RuntimeError("secret insides")
        return ScriptedTake(20)

    with TestClient(create_app(scripted_synthesizer(fail_later), settings)) as client:
        body = speech(f"{TEXT}. {TEXT}.", response_format="pcm", stream_format="sse")
        events = events_of(client.post(URL, json=body).text)
    assert events[0]["type"] == "speech.audio.delta"
    assert events[-1]["type"] == "speech.audio.error" and events[-1]["error"]["type"] == "server_error"


def test_a_closed_service_answers_503(client: TestClient, app):
    app.state.service.is_closing = True
    response = client.post(URL, json=speech())
    assert response.status_code == 503 and int(response.headers["retry-after"]) >= 1
    assert client.get("/health").status_code == 503


def test_the_limit_of_the_text_is_a_setting(synthesizer: Synthesizer):
    settings = ServeSettings(limits=ServeLimits(input_characters=5))
    with TestClient(create_app(synthesizer, settings)) as client:
        assert client.post(URL, json=speech("abcde")).status_code == 200
        assert "at most 5 characters, not 6" in client.post(URL, json=speech("abcdef")).json()["error"]["message"]


def test_health_and_metrics_count_requests(client: TestClient):
    client.post(URL, json=speech(response_format="pcm"))
    client.post(URL, json=speech(voice="nobody"))
    ends = time.monotonic() + 5
    while client.get("/health").json()["active"] and time.monotonic() < ends:
        time.sleep(0.01)  # a request is counted until its row is free, which is after its last byte
    state = {"status": "ok", "model": "scripted", "loaded": True, "active": 0, "waiting": 0}
    assert client.get("/health").json() == state
    text = client.get("/metrics").text
    assert 'marstts_requests_total{format="pcm",outcome="ok"} 1.0' in text
    assert "marstts_first_audio_seconds_count 1.0" in text
    [audio] = [line for line in text.splitlines() if line.startswith("marstts_audio_seconds_total")]
    assert float(audio.split()[1]) == pytest.approx(1.7, abs=0.1)
    assert "marstts_patches_total 20.0" in text and "marstts_retries_total 0.0" in text
    assert "marstts_underrun_seconds_total 0.0" in text


def test_takes_that_were_refused_are_counted(settings: ServeSettings):
    synthesizer = scripted_synthesizer(lambda number, prompt: ScriptedTake(20, LOUD if number % 2 else SILENT))
    with TestClient(create_app(synthesizer, settings)) as client:
        for stream in (True, False):
            assert client.post(URL, json=speech(response_format="pcm", stream=stream)).status_code == 200
        assert "marstts_retries_total 2.0" in client.get("/metrics").text


@pytest.mark.parametrize("text", [r"Hello \ud800 there.", r"\udfff", r"a \ud83d", r"\udc00\ud800"])
def test_half_a_character_is_refused_in_a_sentence(client: TestClient, text: str):
    content = b'{"model": "tts-1", "voice": "alloy", "input": "%s"}' % text.encode()
    response = client.post(URL, content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 400 and "surrogate" in response.json()["error"]["message"]


@pytest.mark.parametrize("fields", [{}, {"model": None}, {"model": "scripted"}])
def test_the_model_need_not_be_named(client: TestClient, synthesizer: Synthesizer, fields: dict[str, Any]):
    body = {"input": TEXT, "voice": "alloy", "response_format": "pcm", **fields}
    assert client.post(URL, json=body).content == expected_pcm(synthesizer)


SENTENCES = "the cat sat on the mat. the dog sat on the rug. the bird sat on the roof."


def test_events_name_the_sentence_that_is_flawed(settings: ServeSettings):
    def second_is_silent(attempt: int, prompt: ScriptedPrompt) -> ScriptedTake:
        return ScriptedTake(20, SILENT if "dog" in prompt.text else LOUD)

    fields = speech(SENTENCES, response_format="pcm", stream_format="sse", sentences=True)
    with TestClient(create_app(scripted_synthesizer(second_is_silent), settings)) as client:
        events = events_of(client.post(URL, json=fields).text)[:-1]
    assert [event["sentence_number"] for event in events if "sentence" in event] == [1, 2, 3]
    assert {event["sentence_number"] for event in events if event.get("flawed")} == {2}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_one_sentence_of_a_text_can_be_spoken_alone(client: TestClient, synthesizer: Synthesizer, number: int):
    fields = speech(SENTENCES, response_format="pcm", stream_format="sse", sentences=True, sentence=number)
    events = events_of(client.post(URL, json=fields).text)
    [event] = events[:-1]
    chunks = list(synthesizer.stream(SENTENCES, "ada", sentences=True))
    assert (event["sentence_number"], event["sentence"]) == (number, chunks[number - 1].text)
    assert base64.b64decode(event["audio"]) == chunks[number - 1].pcm()


def test_a_sentence_that_a_text_does_not_have_is_an_error(client: TestClient):
    response = client.post(URL, json=speech(SENTENCES, sentence=4))
    assert response.status_code == 400 and "no sentence 4" in response.json()["error"]["message"]
    assert client.post(URL, json=speech(SENTENCES, sentence=0)).status_code == 400
