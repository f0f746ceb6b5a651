"""Words and their times: captioned speech in Kokoro-FastAPI's shape, and events that name words."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_server import speech
from fastapi.testclient import TestClient
from numpy.typing import NDArray

from marstts.audio import read
from marstts.server.app import create_app
from marstts.server.settings import ServeSettings
from marstts.synthesis.loading import load
from marstts.synthesis.synthesizer import Synthesizer

URL = "/dev/captioned_speech"
TEXT = "Tea costs $5 here. We stay."
WORDS = ["Tea", "costs", "$5", "here.", "We", "stay."]


@pytest.fixture(scope="module")
def mini() -> Synthesizer:
    return load("mini")


@pytest.fixture
def speaker(mini: Synthesizer, tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(create_app(mini, ServeSettings(capacity=2, voices_folder=tmp_path / "voices"))) as client:
        yield client


def words_in_order(timestamps: list[dict[str, Any]], seconds: float) -> list[str]:
    """The words; fails unless their times are in order and within the file."""
    times = [time for word in timestamps for time in (word["start_time"], word["end_time"])]
    assert times == sorted(times) and times[0] >= 0.0 and times[-1] <= seconds + 0.001
    assert all(set(word) == {"word", "start_time", "end_time"} for word in timestamps)
    return [word["word"] for word in timestamps]


@pytest.mark.slow
def test_a_whole_file_comes_with_its_words(speaker: TestClient, mini: Synthesizer):
    response = speaker.post(URL, json=speech(TEXT, response_format="wav", stream=False)).json()
    assert response["audio_format"] == "audio/wav"
    decoded = read(base64.b64decode(response["audio"]))
    expected = mini.speak(TEXT, "ada")
    assert decoded.seconds == pytest.approx(expected.seconds, abs=0.01)
    assert words_in_order(response["timestamps"], decoded.seconds) == [word.written for word in expected.words] == WORDS
    assert [word["start_time"] for word in response["timestamps"]] == [word.start for word in expected.words]


def samples_of(pcm: bytes) -> NDArray[np.int32]:
    return np.frombuffer(pcm, "<i2").astype(np.int32)


@pytest.mark.slow
def test_lines_hold_the_file_and_its_words(speaker: TestClient):
    response = speaker.post(URL, json=speech(TEXT, response_format="pcm"))
    assert response.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in io.StringIO(response.text)]
    audio = b"".join(base64.b64decode(line["audio"]) for line in lines)
    whole = speaker.post("/v1/audio/speech", json=speech(TEXT, response_format="pcm")).content
    # the size of chunks follows the speed of the machine, and where chunks meet, samples are rounded otherwise
    np.testing.assert_allclose(samples_of(audio), samples_of(whole), atol=1)
    assert words_in_order([word for line in lines for word in line["timestamps"]], len(audio) / 48_000) == WORDS
    assert sum(bool(line["timestamps"]) for line in lines) > 1, "words come as they are spoken"


@pytest.mark.slow
def test_another_speed_moves_the_words(speaker: TestClient):
    fields = speech(TEXT, response_format="wav", stream=False)
    usual, fast = (speaker.post(URL, json={**fields, "speed": speed}).json()["timestamps"] for speed in (1.0, 2.0))
    assert fast[-1]["end_time"] == pytest.approx(usual[-1]["end_time"] / 2, abs=0.002)


def test_events_name_words_where_they_are_asked_to(speaker: TestClient):
    fields = speech("Tea costs $5.", response_format="pcm", stream_format="sse", sentences=True, words=True)
    text = speaker.post("/v1/audio/speech", json=fields).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert [word["word"] for event in events for word in event.get("words", [])] == ["Tea", "costs", "$5."]
    spoken = [word["spoken"] for event in events for word in event.get("words", [])]
    [sentence] = [event["sentence"] for event in events if "sentence" in event]
    assert all(word in sentence for word in spoken) and "dollars" in " ".join(spoken)


@pytest.mark.parametrize("stream", [True, False])
def test_a_model_without_word_times_says_so(client: TestClient, stream):
    response = client.post(URL, json=speech(stream=stream))
    assert response.status_code == 400 and "word" in response.json()["error"]["message"]
    assert client.post(URL, json=speech(stream=stream, return_timestamps=False)).status_code == 200
