"""Consent recordings over the API: kept, listed, renamed, deleted, and named by the voices that are made with them."""

from __future__ import annotations

import hashlib
import io
import re
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import soundfile
from starlette.testclient import TestClient

from marstts.audio import Waveform, encode
from marstts.server.app import create_app
from marstts.server.callers import ADMINISTRATOR
from marstts.server.consents import ConsentStore
from marstts.server.settings import ServeLimits, ServeSettings
from marstts.voice import Voice

pytestmark = pytest.mark.slow

URL = "/v1/audio/voice_consents"


@pytest.fixture
def recording(reference: Waveform) -> bytes:
    return encode(reference, ".wav")


def upload(client: TestClient, recording: bytes, **fields: str):
    data = {"name": "Anna's consent", "language": "en-US"} | fields
    return client.post(URL, data=data, files={"recording": ("../../consent.wav", recording, "audio/wav")})


def test_a_consent_is_kept_as_files_and_read_after_a_restart(
    client: TestClient, synthesizer, settings: ServeSettings, recording: bytes
):
    made = upload(client, recording).json()
    assert re.fullmatch(r"cons_[a-z0-9]{26}", made["id"]) and made["created_at"] > 1_700_000_000
    assert (made["object"], made["name"], made["language"]) == ("audio.voice_consent", "Anna's consent", "en-US")
    folder = settings.voices_folder / "consents"
    assert sorted(path.name for path in folder.iterdir()) == [f"{made['id']}.flac", f"{made['id']}.json"]
    assert soundfile.info(folder / f"{made['id']}.flac").frames == soundfile.info(io.BytesIO(recording)).frames
    (folder / "cons_torn.json").write_text("{")
    (folder / f"cons_{'a' * 26}.json").write_text('{"id": "cons_')
    with TestClient(create_app(synthesizer, settings)) as again:
        assert again.get(f"{URL}/{made['id']}").json() == made
        listed = again.get(URL).json()
    ends = {"first_id": made["id"], "last_id": made["id"], "has_more": False}
    assert listed == {"object": "list", "data": [made], **ends}


def test_a_consent_can_be_renamed_and_deleted(client: TestClient, settings: ServeSettings, recording: bytes):
    assert client.get(URL).json() == {
        "object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False
    }  # fmt: skip
    id = upload(client, recording).json()["id"]
    assert client.post(f"{URL}/{id}", json={"name": "Her consent"}).json()["name"] == "Her consent"
    assert client.get(f"{URL}/{id}").json()["name"] == "Her consent"
    assert client.delete(f"{URL}/{id}").json() == {"id": id, "object": "audio.voice_consent", "deleted": True}
    assert client.get(f"{URL}/{id}").status_code == 404 and not list((settings.voices_folder / "consents").iterdir())


def test_a_voice_names_the_consent_recording_that_it_was_made_with(
    client: TestClient, settings: ServeSettings, recording: bytes
):
    id = upload(client, recording).json()["id"]
    files = {"audio_sample": ("anna.wav", recording, "audio/wav")}
    voice = client.post("/v1/audio/voices", data={"name": "Anna", "consent": id}, files=files).json()
    saved = Voice.load(settings.voices_folder / f"{voice['id']}.voice")
    assert id in saved.consent and hashlib.sha256(recording).hexdigest() in saved.consent
    unknown = client.post("/v1/audio/voices", data={"name": "Bob", "consent": f"cons_{'a' * 26}"}, files=files)
    assert unknown.status_code == 404 and unknown.json()["error"]["code"] == "consent_not_found"


@pytest.mark.parametrize(
    ("fields", "param"), [({"name": ""}, "name"), ({"name": "a\nb"}, "name"), ({"language": "English, US"}, "language")]
)
def test_consents_need_a_name_and_a_language(client: TestClient, recording: bytes, fields, param):
    response = upload(client, recording, **fields)
    assert response.status_code == 400 and response.json()["error"]["param"] == param
    assert client.post(URL, data={"name": "a"}).json()["error"]["param"] == "recording"
    assert upload(client, b"no audio").status_code == 400


def test_consents_are_bounded_in_number_and_bytes(synthesizer, recording: bytes, tmp_path: Path):
    limits = ServeLimits(voices=1, upload_bytes=len(recording))
    with TestClient(create_app(synthesizer, ServeSettings(voices_folder=tmp_path, limits=limits))) as client:
        assert upload(client, recording).status_code == 200
        assert "at most 1 consents" in upload(client, recording).json()["error"]["message"]
        assert upload(client, recording + b"\0").status_code == 413


@contextmanager
def full_disk() -> Iterator[None]:
    """Files of more than a kilobyte cannot be written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_answered_in_a_sentence_and_loses_nothing(
    client: TestClient, settings: ServeSettings, recording: bytes
):
    files = {"audio_sample": ("anna.wav", recording, "audio/wav")}
    first = client.post("/v1/audio/voices", data={"name": "Anna", "consent": "Anna agreed."}, files=files).json()
    kept = {path: path.read_bytes() for path in settings.voices_folder.rglob("*") if path.is_file()}
    with full_disk():
        responses = [
            client.post("/v1/audio/voices", data={"name": "Bob", "consent": "Bob agreed."}, files=files),
            client.post(f"/v1/audio/voices/{first['id']}", json={"name": "Anne"}),
            upload(client, recording),
        ]
    for response in responses:
        assert response.status_code == 507 and "disk is full" in response.json()["error"]["message"]
        assert str(settings.voices_folder) not in response.text
    assert {path: path.read_bytes() for path in settings.voices_folder.rglob("*") if path.is_file()} == kept
    assert client.get(f"/v1/audio/voices/{first['id']}").json()["name"] == "Anna"
    assert not client.get(URL).json()["data"] and upload(client, recording).status_code == 200


@pytest.mark.parametrize("first", ["rename", "delete"])
def test_a_consent_that_is_deleted_while_it_is_renamed_stays_deleted(tmp_path: Path, recording: bytes, first: str):
    store = ConsentStore(tmp_path, ServeLimits())
    for number in range(8):
        made = store.create("Anna", recording, "en", ADMINISTRATOR)
        calls = [partial(store.rename, made.id, "Berta", ADMINISTRATOR), partial(store.delete, made.id, ADMINISTRATOR)]
        with ThreadPoolExecutor(2) as pool:
            for call in calls if first == "rename" else reversed(calls):
                pool.submit(call)
        assert not store.all(ADMINISTRATOR) and not [path for path in tmp_path.rglob("*") if path.is_file()], number
        assert not ConsentStore(tmp_path, ServeLimits()).all(ADMINISTRATOR)


@pytest.mark.parametrize("seconds", [-1.0, -86_400.0, 0.0])
def test_a_clock_before_1970_is_no_error(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, recording: bytes, seconds
):
    monkeypatch.setattr("time.time", lambda: seconds)
    made = upload(client, recording).json()
    assert made["created_at"] == 0 and client.get(f"{URL}/{made['id']}").json() == made
