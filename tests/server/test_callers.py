"""Each key has its own voices; the administrator's key has all; keys, hosts and origins are checked."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from api_server import speech
from starlette.testclient import TestClient

from marstts.audio import Waveform, encode
from marstts.server.app import create_app
from marstts.server.settings import ServeSettings
from marstts.synthesis.clone.voice_folder import VoiceFolder
from scripted import good, scripted_synthesizer

pytestmark = pytest.mark.slow

VOICES, SPEECH = "/v1/audio/voices", "/v1/audio/speech"
ALPHA, BETA, ADMIN = ({"Authorization": f"Bearer {key}"} for key in ("alpha", "beta", "admin"))


@pytest.fixture
def recording(reference: Waveform) -> bytes:
    return encode(reference, ".wav")


@contextmanager
def served(folder: Path, **settings) -> Iterator[TestClient]:
    app = create_app(scripted_synthesizer(good), ServeSettings(voices_folder=folder, **settings))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[TestClient]:
    with served(tmp_path / "voices", api_keys=("alpha", "beta"), admin_key="admin") as client:
        yield client


def upload(client: TestClient, recording: bytes, headers: dict[str, str], **more):
    data = {"name": "Anna", "consent": "Anna agreed."} | more
    return client.post(VOICES, data=data, files={"audio_sample": ("a.wav", recording, "audio/wav")}, headers=headers)


def ids(client: TestClient, headers: dict[str, str]) -> set[str]:
    listed = client.get(VOICES, headers=headers).json()["data"]
    return {entry["id"] for entry in listed if entry["created_at"] > 0}


def test_a_key_sees_and_changes_only_what_it_has_made(keyed: TestClient, recording: bytes):
    own, foreign, shared = (upload(keyed, recording, headers).json()["id"] for headers in (ALPHA, BETA, ADMIN))
    assert ids(keyed, ALPHA) == {own} and ids(keyed, BETA) == {foreign}
    assert ids(keyed, ADMIN) == {own, foreign, shared}
    for other in (foreign, shared):
        path = f"{VOICES}/{other}"
        assert keyed.get(path, headers=ALPHA).status_code == 404
        assert keyed.post(path, json={"name": "B"}, headers=ALPHA).status_code == 404
        assert keyed.delete(path, headers=ALPHA).status_code == 404
    assert keyed.post(f"{VOICES}/{foreign}", json={"name": "Renamed"}, headers=ADMIN).json()["name"] == "Renamed"
    assert keyed.get(f"{VOICES}/{foreign}", headers=BETA).json()["name"] == "Renamed"
    assert keyed.delete(f"{VOICES}/{own}", headers=ADMIN).status_code == 200 and not ids(keyed, ALPHA)


def test_a_key_speaks_with_its_own_voice_of_a_name_and_with_no_other(keyed: TestClient, recording: bytes):
    transcript = "he might even have been made amiable himself"
    own = upload(keyed, recording, ALPHA, transcript=transcript).json()["id"]
    assert keyed.post(SPEECH, json=speech(voice="Anna"), headers=BETA).json()["error"]["code"] == "voice_not_found"
    assert keyed.post(SPEECH, json=speech(voice=own), headers=BETA).json()["error"]["code"] == "voice_not_found"
    upload(keyed, recording, BETA)
    prompts = keyed.app.state.service.synthesizer.session.engine.prompts  # type: ignore[attr-defined]
    for headers, is_deep in ((ALPHA, True), (BETA, False)):
        assert keyed.post(SPEECH, json=speech(voice="Anna"), headers=headers).status_code == 200
        assert bool(len(prompts[-1].prefix_tokens)) == is_deep
    for voice in ("ada", "alloy"):
        assert keyed.post(SPEECH, json=speech(voice=voice), headers=ALPHA).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("[voice:Anna] Hello there.", {}),
        ("Good day. [voice:Anna] Hello there.", {}),
        ('<speak>Good day. <voice name="Anna">Hello there.</voice></speak>', {}),
        ('Good day. "Hello there."', {"dialogue": "Anna"}),
    ],
)
def test_a_text_names_voices_of_its_caller_and_no_others(
    keyed: TestClient, recording: bytes, text: str, more: dict[str, str], stream: bool
):
    upload(keyed, recording, ALPHA, transcript="he might even have been made amiable himself")
    upload(keyed, recording, BETA, name="Berta")
    body = speech(text, stream=stream, **more)
    assert keyed.post(SPEECH, json=body, headers=ALPHA).status_code == 200
    prompts = keyed.app.state.service.synthesizer.session.engine.prompts  # type: ignore[attr-defined]
    assert len(prompts[-1].prefix_tokens) > 0, "a transcript makes the clone deep"
    refused = keyed.post(SPEECH, json=body, headers=BETA)
    assert refused.status_code == 400 and "Anna" in refused.json()["error"]["message"]


def test_voices_are_kept_by_key_over_a_restart_and_earlier_ones_are_the_administrators(
    tmp_path: Path, recording: bytes
):
    with served(tmp_path) as client:
        earlier = upload(client, recording, {}).json()["id"]
    for _ in range(2):
        with served(tmp_path, api_keys=("alpha", "beta"), admin_key="admin") as client:
            own = ids(client, ALPHA) or {upload(client, recording, ALPHA).json()["id"]}
            assert not ids(client, BETA) and ids(client, ADMIN) == own | {earlier}
    with served(tmp_path) as client:
        assert ids(client, {}) == own | {earlier}, "without keys, everything is everybody's"


@pytest.mark.parametrize("headers", [{}, ALPHA, ADMIN])
def test_files_of_people_are_for_the_servers_user_alone(tmp_path: Path, recording: bytes, headers):
    keys = {"api_keys": ("alpha",), "admin_key": "admin"} if headers else {}
    with served(tmp_path / "voices", **keys) as client:
        voice = upload(client, recording, headers).json()["id"]
        client.post(f"{VOICES}/{voice}", json={"name": "Berta"}, headers=headers)
    paths = [tmp_path / "voices", *(tmp_path / "voices").rglob("*")]
    assert sum(path.is_file() for path in paths) == 1
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_files_that_everybody_could_read_are_closed_at_the_start(tmp_path: Path, recording: bytes):
    with served(tmp_path) as client:
        upload(client, recording, {})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    for path in files:
        path.chmod(0o644)
    with served(tmp_path):
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600} and len(files) == 1


@pytest.mark.parametrize("key", ["", " ", "correct horse", "schlüssel", "tab\tkey", "line\n"])
def test_keys_that_no_header_can_hold_are_refused_at_the_start(key: str):
    for fields in ({"api_keys": (key,)}, {"api_keys": ("good", key)}, {"admin_key": key}):
        with pytest.raises(ValueError, match="an API key"):
            ServeSettings(**fields)


@pytest.mark.parametrize(
    ("origin", "headers"),
    [
        ("http://evil.example", {}),
        ("null", {"Sec-Fetch-Site": "same-origin"}),
        ("https://testserver.evil.example", ALPHA),
        ("http://testserver:81", {}),
    ],
)
def test_pages_of_other_sites_change_nothing(tmp_path: Path, recording: bytes, origin: str, headers):
    with served(tmp_path, api_keys=("alpha",) if headers is ALPHA else ()) as client:
        voice = upload(client, recording, headers).json()["id"]
        foreign = {**headers, "Origin": origin}
        for response in (
            upload(client, recording, foreign, name="B"),
            client.post(SPEECH, json=speech(), headers=foreign),
            client.post(f"{VOICES}/{voice}", json={"name": "C"}, headers=foreign),
            client.delete(f"{VOICES}/{voice}", headers=foreign),
        ):
            assert response.status_code == 403
        assert upload(client, recording, {**headers, "Origin": "http://testserver"}, name="D").status_code == 200


def test_pages_of_named_origins_may_use_the_server(tmp_path: Path):
    origin = "https://example.org"
    with served(tmp_path, api_keys=("alpha",), cors_origins=(origin,)) as client:
        asked = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "Authorization",
        }
        assert client.options(SPEECH, headers=asked).headers["access-control-allow-origin"] == origin
        for site in ({}, {"Sec-Fetch-Site": "cross-site"}):
            response = client.post(SPEECH, json=speech(), headers={"Origin": origin, **ALPHA, **site})
            assert response.status_code == 200 and response.headers["access-control-allow-origin"] == origin
        assert client.post(SPEECH, json=speech(), headers={"Origin": origin}).status_code == 401
        refused = client.post(SPEECH, json=speech(), headers={"Origin": "https://evil.example", **ALPHA})
        assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers
    with served(tmp_path) as client:
        assert "access-control-allow-origin" not in client.get("/v1/models", headers={"Origin": origin}).headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("192.168.1.5:8000", 200),
        ("[fe80::1]:8000", 200),
        ("marstts:8000", 200),
        ("studio.local", 200),
        ("speech.example.org", 200),
        ("evil.example", 400),
        ("192.168.1.5.evil.example:8000", 400),
        ("local", 200),
        ("evil-local.example", 400),
        ("", 400),
    ],
)
def test_without_keys_a_network_serves_no_names_of_strangers(tmp_path: Path, host: str, status: int):
    with served(tmp_path, private_hosts_only=True, allowed_hosts=("speech.example.org",)) as client:
        assert client.get("/v1/models", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    "headers", [{"Authorization": scheme + "alpha"} for scheme in ("Bearer ", "bearer ", "Bearer  ")]
)
def test_a_caller_is_known_by_its_key_however_it_is_written(keyed: TestClient, recording: bytes, headers):
    upload(keyed, recording, ALPHA)
    assert ids(keyed, headers) == ids(keyed, ALPHA) != set()
    guard_keys = keyed.app.state.service.settings.api_keys  # type: ignore[attr-defined]
    from marstts.server.callers import KeyRing

    ring = KeyRing(guard_keys)
    assert ring.find(headers["Authorization"]) == ring.find("Bearer alpha") != ring.find("Bearer beta")


def test_the_users_own_voices_are_the_administrators_and_no_keys(recording: bytes, reference: Waveform):
    own = VoiceFolder()
    own.add(scripted_synthesizer(good).clone(reference, name="me"))
    with served(own.folder, api_keys=("alpha",), admin_key="admin") as client:
        for body in (speech(voice="me"), speech("[voice:me] a cat"), speech('"A cat," he said.', dialogue="me")):
            assert client.post(SPEECH, json=body, headers=ALPHA).status_code == 400
            assert client.post(SPEECH, json=body, headers=ADMIN).status_code == 200
        assert not ids(client, ALPHA) and len(ids(client, ADMIN)) == 1
        assert upload(client, recording, ALPHA, name="me").status_code == 200
        assert client.post(SPEECH, json=speech(voice="me"), headers=ALPHA).status_code == 200
    assert len(own) == 1, "what a key makes is none of the user's own voices"
