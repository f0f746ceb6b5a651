"""Words and their times: events that name words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from api_server import speech
from fastapi.testclient import TestClient

from marstts.server.app import create_app
from marstts.server.settings import ServeSettings
from marstts.synthesis.synthesizer import Synthesizer

pytestmark = pytest.mark.slow


def test_events_name_words_where_they_are_asked_to(mini: Synthesizer, tmp_path: Path):
    fields = speech("Tea costs $5.", response_format="pcm", stream_format="sse", sentences=True, words=True)
    with TestClient(create_app(mini, ServeSettings(capacity=2, voices_folder=tmp_path))) as client:
        text = client.post("/v1/audio/speech", json=fields).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    written = [word["word"] for event in events for word in event.get("words", [])]
    assert written and written == ["Tea", "costs", "$5."][: len(written)]  # a take may end too early
    spoken = [word["spoken"] for event in events for word in event.get("words", [])]
    [sentence] = [event["sentence"] for event in events if "sentence" in event]
    assert all(word in sentence for word in spoken) and "dollars" in sentence
