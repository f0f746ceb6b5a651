"""Voices over the API: listed, uploaded, spoken with, renamed, deleted; kept as files."""

from __future__ import annotations

import errno
import io
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import soundfile
from api_server import TEXT, speech
from starlette.testclient import TestClient

from marstts.audio import Waveform, encode
from marstts.io import files
from marstts.server.api_errors import ApiError
from marstts.server.app import create_app
from marstts.server.callers import ADMINISTRATOR
from marstts.server.settings import ServeLimits, ServeSettings
from marstts.server.voice_store import VoiceStore, next_step
from marstts.synthesis.clone.packaged import OPENAI_VOICES, packaged_names
from marstts.synthesis.clone.voice_folder import VoiceFolder
from marstts.voice import Voice, average_voice

pytestmark = pytest.mark.slow

URL = "/v1/audio/voices"
CONSENT = "Anna agreed by e-mail on 2026-11-22."
TRANSCRIPT = "he might even have been made amiable himself"


def upload(client: TestClient, recording: bytes, **fields: Any):
    """Upload a recording; fields that are None are left out."""
    data = {"name": "Anna", "consent": CONSENT} | fields
    data = {name: value for name, value in data.items() if value is not None}
    return client.post(URL, data=data, files={"audio_sample": ("../../etc/anna.wav", recording, "audio/wav")})


@pytest.fixture
def recording(reference: Waveform) -> bytes:
    return encode(reference, ".wav")


def test_packaged_voices_and_openais_names_are_listed_as_clients_read_them(client: TestClient):
    listed = client.get(URL).json()
    assert listed["object"] == "list" and listed["voices"] == listed["data"]
    names = [voice["id"] for voice in listed["voices"]]
    assert names == [*packaged_names(), *OPENAI_VOICES] and len(OPENAI_VOICES) == 13
    assert set(OPENAI_VOICES.values()) <= set(packaged_names())
    assert all(voice["name"] for voice in listed["voices"])


@pytest.mark.parametrize("voice", ["alloy", {"id": "alloy"}, "ada", "Alloy", "ADA"])
def test_openais_names_are_packaged_voices(client: TestClient, voice):
    pcm = [
        client.post("/v1/audio/speech", json=speech(voice=name, response_format="pcm")).content
        for name in (voice, OPENAI_VOICES["alloy"])
    ]
    assert pcm[0] == pcm[1] and len(pcm[0]) > 1000


def test_models_and_formats_may_be_named_in_any_case(client: TestClient):
    for fields in ({"response_format": "PCM"}, {"response_format": "pcm", "model": "TTS-1", "stream_format": "Audio"}):
        response = client.post("/v1/audio/speech", json=speech(**fields))
        assert response.status_code == 200 and response.headers["content-type"] == "audio/pcm"
    assert client.get("/v1/models/Scripted").status_code == 200


def test_an_uploaded_voice_in_its_own_case_comes_before_others(
    client: TestClient, settings: ServeSettings, recording: bytes
):
    made = {name: upload(client, recording, name=name).json()["id"] for name in ("Anna", "Berta")}
    path = settings.voices_folder / f"{made['Anna']}.voice"
    replace(Voice.load(path), name="Ada").save(path)  # earlier versions gave voices such names
    made["Ada"] = made.pop("Anna")
    voices = client.app.state.service.voices  # type: ignore[attr-defined]
    found = {name: voices.resolve(name, ADMINISTRATOR) for name in ("Ada", "ada", "ADA", "BERTA", "Berta", "ALLOY")}
    uploaded = {"Ada": made["Ada"], "BERTA": made["Berta"], "Berta": made["Berta"]}
    assert found == {"ada": "ada", "ADA": "ada", "ALLOY": OPENAI_VOICES["alloy"]} | uploaded
    assert client.post("/v1/audio/speech", json=speech(voice="BERTA")).status_code == 200


@pytest.mark.parametrize(("transcript", "kind"), [(TRANSCRIPT, "deep"), (None, "shallow")])
def test_an_uploaded_recording_becomes_a_voice_file(
    client: TestClient, settings: ServeSettings, recording: bytes, transcript, kind
):
    response = upload(client, recording, transcript=transcript)
    voice = response.json()
    assert response.status_code == 200 and voice["object"] == "audio.voice"
    assert re.fullmatch(r"voice_[a-z0-9]{26}", voice["id"]) and voice["created_at"] > 1_700_000_000
    assert (voice["name"], voice["kind"], voice["consent"]) == ("Anna", kind, CONSENT)
    assert bool(voice["prefix"]) == (kind == "deep") and voice["prefix"] in TRANSCRIPT
    [file] = settings.voices_folder.iterdir()
    saved = Voice.load(file)
    assert file.name == f"{voice['id']}.voice"
    assert saved.consent == CONSENT and saved.reference and (saved.prefix is not None) == (kind == "deep")
    assert client.get(URL).json()["voices"][-1]["id"] == client.get(f"{URL}/{voice['id']}").json()["id"] == voice["id"]


def test_an_uploaded_voice_speaks_by_its_id_and_by_its_name(client: TestClient, app, recording: bytes):
    voice = upload(client, recording, ref_text=TRANSCRIPT).json()
    for name in (voice["id"], "Anna"):
        assert client.post("/v1/audio/speech", json=speech(voice=name)).status_code == 200
    engine = app.state.service.synthesizer.session.engine
    assert len(engine.prompts[-1].prefix_tokens) > 0, "a transcript makes the clone deep"


def test_voices_are_there_after_a_restart(synthesizer, settings: ServeSettings, recording: bytes):
    with TestClient(create_app(synthesizer, settings)) as client:
        voice = upload(client, recording).json()
        renamed = client.post(f"{URL}/{voice['id']}", json={"name": "Berta"}).json()
    corrupt = settings.voices_folder / f"voice_{'a' * 26}.voice"
    corrupt.write_bytes(b"corrupt")
    with TestClient(create_app(synthesizer, settings)) as client:
        assert client.get(URL).json()["voices"][-1] == renamed
        assert client.post("/v1/audio/speech", json=speech(voice="Berta")).status_code == 200
    assert corrupt.read_bytes() == b"corrupt"


def test_a_voice_can_be_renamed_and_deleted(client: TestClient, settings: ServeSettings, recording: bytes):
    voice = upload(client, recording).json()
    assert voice.pop("warnings") == []
    assert client.post(f"{URL}/{voice['id']}", json={"name": "Berta"}).json() == voice | {"name": "Berta"}
    assert client.post("/v1/audio/speech", json=speech(voice="Anna")).status_code == 400
    assert client.post("/v1/audio/speech", json=speech(voice="Berta")).status_code == 200
    deleted = client.delete(f"{URL}/{voice['id']}").json()
    assert deleted == {"id": voice["id"], "object": "audio.voice", "deleted": True}
    assert client.post("/v1/audio/speech", json=speech(voice="Berta")).status_code == 400
    assert client.delete(f"{URL}/{voice['id']}").status_code == 404
    assert list(settings.voices_folder.iterdir()) == []


@pytest.mark.parametrize("name", ["ada", "alloy", "Anna", "", " Anna", "a" * 65, "a\nb", "voice_" + "a" * 26])
def test_names_that_are_taken_or_unprintable_are_refused(client: TestClient, recording: bytes, name):
    voice = upload(client, recording).json()
    for response in (
        upload(client, recording, name=name),
        client.post(f"{URL}/{upload(client, recording, name='B').json()['id']}", json={"name": name}),
    ):
        assert response.status_code == 400 and response.json()["error"]["param"] == "name"
    assert client.get(f"{URL}/{voice['id']}").json()["name"] == "Anna"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"consent": None}, "consent"),
        ({"consent": "  "}, "consent"),
        ({"consent": "x" * 501}, "consent"),
        ({"name": None}, "name"),
        ({"transcript": "x" * 401}, "transcript"),
        ({"transcript": "..."}, None),
    ],
)
def test_an_upload_needs_name_and_consent_and_bounded_texts(
    client: TestClient, settings: ServeSettings, recording: bytes, fields, param
):
    response = upload(client, recording, **fields)
    assert response.status_code == 400 and response.json()["error"]["param"] == param
    assert not settings.voices_folder.exists()


def long_recording() -> bytes:
    """A minute and a second of silence in a few kilobytes."""
    buffer = io.BytesIO()
    soundfile.write(buffer, [0.0] * (61 * 8000), 8000, format="FLAC")
    return buffer.getvalue()


@pytest.mark.parametrize("content", [b"", b"no recording", bytes(5000), b"RIFF", long_recording()])
def test_unusable_recordings_are_refused_in_a_sentence(client: TestClient, content):
    response = upload(client, content)
    assert response.status_code == 400
    assert "Traceback" not in response.text and "/tmp" not in response.text


def test_an_upload_without_a_file_is_refused(client: TestClient):
    for fields in ({"data": {"name": "Anna"}}, {"data": {"audio_sample": "text"}}, {"json": {"name": "Anna"}}):
        response = client.post(URL, **fields)
        assert response.status_code == 400 and response.json()["error"]["param"] == "audio_sample"


def test_a_broken_form_is_refused(client: TestClient):
    for content in (b"", b"--x", b"--x\r\nContent-Disposition: form-data; name=", bytes(100)):
        response = client.post(URL, content=content, headers={"content-type": "multipart/form-data; boundary=x"})
        assert response.status_code == 400 and response.json()["error"]["type"] == "invalid_request_error"


def test_uploads_are_bounded_in_bytes_and_number(synthesizer, recording: bytes, tmp_path: Path):
    limits = ServeLimits(upload_bytes=len(recording), voices=1)
    with TestClient(create_app(synthesizer, ServeSettings(voices_folder=tmp_path, limits=limits))) as client:
        assert upload(client, recording + b"x").status_code == 413
        assert upload(client, recording + bytes(200_000)).status_code == 413
        assert upload(client, recording).status_code == 200
        assert "at most 1 voices" in upload(client, recording, name="B").json()["error"]["message"]


def test_a_recording_of_several_megabytes_is_taken(client: TestClient, reference: Waveform):
    padded = encode(reference, ".wav") + bytes(5 * 2**20)
    response = upload(client, padded)
    assert response.status_code == 200, response.text


def test_warnings_about_the_recording_are_in_the_response(client: TestClient, reference: Waveform):
    clipped = Waveform((reference.samples * 40).clip(-1, 1), reference.sample_rate)
    assert "clipped" in upload(client, encode(clipped, ".wav")).json()["warnings"][0]


def test_a_voice_is_never_the_name_of_a_file(client: TestClient, reference_file: Path):
    for name in (str(reference_file), f"../{reference_file.name}", f"file://{reference_file}"):
        response = client.post("/v1/audio/speech", json=speech(TEXT, voice=name))
        assert response.json()["error"]["code"] == "voice_not_found"


def test_on_a_full_disk_an_upload_is_one_sentence_and_no_voice_is_listed(
    client: TestClient, recording: bytes, settings: ServeSettings, monkeypatch: pytest.MonkeyPatch
):
    kept = upload(client, recording, name="Kept").json()

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    before = {path.name: path.read_bytes() for path in settings.voices_folder.iterdir()}
    monkeypatch.setattr(files, "_sync", full)
    response = upload(client, recording)
    assert response.status_code == 507 and str(settings.voices_folder) not in response.text
    assert "cannot keep this" in response.json()["error"]["message"]
    assert client.post(f"{URL}/{kept['id']}", json={"name": "Other"}).status_code == 507
    assert {path.name: path.read_bytes() for path in settings.voices_folder.iterdir()} == before
    names = [voice["name"] for voice in client.get(URL).json()["voices"]]
    assert "Kept" in names and "Anna" not in names and "Other" not in names
    monkeypatch.undo()
    assert upload(client, recording).status_code == 200


def test_a_voices_folder_that_cannot_be_made_is_no_error_of_the_client(synthesizer, recording: bytes, tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    settings = ServeSettings(voices_folder=tmp_path / "file" / "voices")
    with TestClient(create_app(synthesizer, settings)) as client:
        assert upload(client, recording).status_code == 507


def test_spellings_of_a_name_in_unicode_are_one_name(client: TestClient, recording: bytes):
    assert upload(client, recording, name="Zo\u00eb").status_code == 200
    assert "a voice of this name" in upload(client, recording, name="Zoe\u0308").json()["error"]["message"]
    response = client.post("/v1/audio/speech", json=speech(voice="Zoe\u0308", response_format="pcm"))
    assert response.status_code == 200


def test_of_uploads_at_the_same_time_one_gets_the_name_and_the_last_place(
    synthesizer, recording: bytes, tmp_path: Path
):
    limits = ServeLimits(voices=2)
    store = VoiceStore(synthesizer, tmp_path / "voices", limits)
    ready = threading.Barrier(4)

    def create(name: str) -> bool:
        ready.wait()
        try:
            store.create(name, [recording], "", CONSENT, ADMINISTRATOR)
        except ApiError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(create, ["Anna"] * 4)) == 1
        assert sum(pool.map(create, ["Ben", "Carla", "Dora", "Emil"])) == 1
    assert len(store) == 2 == len(list((tmp_path / "voices").iterdir()))


@pytest.mark.parametrize("target", ["elsewhere/anna.voice", "other.voice", "voices/anna-of-a-friend.voice"])
def test_renaming_a_link_leaves_what_it_points_to(synthesizer, recording: bytes, tmp_path: Path, target: str):
    folder = tmp_path / "voices"
    store = VoiceStore(synthesizer, folder, ServeLimits())
    voice, _warnings = store.create("Anna", [recording], "", CONSENT, ADMINISTRATOR)
    link, original = folder / f"{voice.id}.voice", tmp_path / target
    original.parent.mkdir(exist_ok=True)
    link.rename(original)
    link.symlink_to(original)
    before = original.read_bytes()
    assert store.rename(voice.id, "Berta", ADMINISTRATOR).name == Voice.load(link).name == "Berta"
    assert original.read_bytes() == before and not link.is_symlink()
    assert sorted(path for path in folder.rglob("*") if path != original) == [link]


def upload_several(client: TestClient, recordings: list[bytes], **fields: Any):
    files = [("audio_sample", (f"{number}.wav", content)) for number, content in enumerate(recordings)]
    return client.post(URL, data={"name": "Anna", "consent": CONSENT} | fields, files=files)


def test_a_voice_of_several_recordings_is_their_mean(
    client: TestClient, settings: ServeSettings, recording: bytes, amiable: Waveform
):
    other = encode(amiable, ".wav")
    voices = {}
    for name, recordings in (("One", [recording]), ("Other", [other]), ("Both", [recording, other])):
        response = upload_several(client, recordings, name=name, transcript=TRANSCRIPT if name == "Both" else "")
        assert response.status_code == 200, response.text
        voices[name] = Voice.load(settings.voices_folder / f"{response.json()['id']}.voice")
    expected = average_voice([voices["One"], voices["Other"]])
    for role, values in expected.embeddings.items():
        assert voices["Both"].embeddings[role] == pytest.approx(values, abs=1e-6)
        assert voices["Both"].embeddings[role] != pytest.approx(voices["One"].embeddings[role], abs=1e-6)
    assert voices["Both"].prefix is not None and voices["Both"].reference == voices["One"].reference
    assert client.post("/v1/audio/speech", json=speech(voice="Both")).status_code == 200


def test_between_the_recordings_of_one_voice_another_one_is_cloned(
    synthesizer, reference: Waveform, recording: bytes, tmp_path: Path
):
    clipped = encode(Waveform((reference.samples * 40).clip(-1, 1), reference.sample_rate), ".wav")
    store = VoiceStore(synthesizer, tmp_path, ServeLimits())
    several = store.create_in_steps("Anna", [clipped, recording], "", CONSENT, ADMINISTRATOR)
    assert next_step(several) is None and len(store) == 0
    other, _warnings = store.create("Bert", [recording], "", CONSENT, ADMINISTRATOR)
    [(voice, warnings)] = next_step(several)
    assert (other.name, voice.name) == ("Bert", "Anna") and len(store) == 2
    assert any("clipped" in warning for warning in warnings)


def test_of_several_recordings_the_unusable_one_is_named(client: TestClient, recording: bytes, settings: ServeSettings):
    response = upload_several(client, [recording, b"no recording", recording])
    assert response.status_code == 400 and "recording 2: " in response.json()["error"]["message"]
    assert not settings.voices_folder.exists()


def test_recordings_of_an_upload_are_bounded_in_number_and_bytes(synthesizer, recording: bytes, tmp_path: Path):
    limits = ServeLimits(recordings=2, upload_bytes=2 * len(recording))
    with TestClient(create_app(synthesizer, ServeSettings(voices_folder=tmp_path, limits=limits))) as client:
        assert upload_several(client, [recording] * 3).status_code in (400, 413)
        assert upload_several(client, [b"x"] * 3).status_code == 400
        assert upload_several(client, [recording, recording + b"x"]).status_code == 413
        assert upload_several(client, [recording] * 2).status_code == 200


def test_recordings_of_an_upload_are_bounded_in_seconds(synthesizer, recording: bytes, tmp_path: Path):
    settings = ServeSettings(voices_folder=tmp_path, limits=ServeLimits(recordings_seconds=7.0))
    with TestClient(create_app(synthesizer, settings)) as client:  # each has 3 s
        refused = upload_several(client, [recording] * 3)
        assert refused.status_code == 400 and "recording 3: " in refused.json()["error"]["message"]
        assert upload_several(client, [recording] * 2).status_code == 200


def test_what_the_commands_make_is_served_at_once_and_what_is_uploaded_is_theirs(
    synthesizer, recording: bytes, reference: Waveform
):
    own = VoiceFolder()
    with TestClient(create_app(synthesizer, ServeSettings()), raise_server_exceptions=False) as client:
        own.add(synthesizer.clone(reference, name="me"))
        assert client.get(URL).json()["voices"][-1]["name"] == "me"
        assert client.post("/v1/audio/speech", json=speech(voice="me")).status_code == 200
        assert client.post("/v1/audio/speech", json=speech("[voice:me] a cat")).status_code == 200
        own.rename("me", "myself")
        assert client.post("/v1/audio/speech", json=speech(voice="me")).status_code == 400
        assert client.post("/v1/audio/speech", json=speech(voice="Myself")).status_code == 200
        uploaded = upload(client, recording).json()["id"]
        assert own.find("Anna").id == uploaded and synthesizer.open_voice("Anna").name == "Anna"
        own.delete("Anna")
        assert client.get(f"{URL}/{uploaded}").status_code == 404
        assert upload(client, recording, name="MYSELF").status_code == 200, "case makes another name, as before"
        assert upload(client, recording, name="myself").status_code == 400


@pytest.mark.parametrize("name", ["ADA", "Alloy", "default", "narrator"])
def test_names_with_a_meaning_of_their_own_are_refused(client: TestClient, recording: bytes, name: str):
    error = upload(client, recording, name=name).json()["error"]
    assert error["param"] == "name" and error["message"].startswith("name: ")
