"""Checks of every request: keys, hosts, pages of other sites, and bounds on bodies."""

from __future__ import annotations

import asyncio
import time

import pytest
from api_server import speech
from starlette.testclient import TestClient

from marstts.server.api_errors import ApiError
from marstts.server.app import create_app
from marstts.server.callers import KeyRing
from marstts.server.guard import bounded, host_name
from marstts.server.settings import ServeLimits, ServeSettings

URL = "/v1/audio/speech"


def client_with(synthesizer, **settings) -> TestClient:
    return TestClient(create_app(synthesizer, ServeSettings(**settings)))


def test_a_key_is_asked_for_everywhere_but_on_health_and_metrics(synthesizer):
    with client_with(synthesizer, api_keys=("secret-1", "secret-2")) as client:
        for path in ("/v1/models", "/v1/audio/voices", "/openapi.json", "/nothing"):
            response = client.get(path)
            assert response.status_code == 401 and response.json()["error"]["code"] == "invalid_api_key"
        assert client.post(URL, json=speech()).status_code == 401
        assert client.get("/health").status_code == client.get("/metrics").status_code == 200
        for key in ("secret-1", "secret-2"):
            assert client.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Bearer secret", "Basic secret-1", "secret-1", "Bearer é"])
def test_other_headers_hold_no_key(header):
    assert KeyRing(["secret-1"], "admin").find(header) is None
    assert KeyRing(["secret-1"]).find("bearer secret-1") == KeyRing(["other", "secret-1"]).find("Bearer  secret-1")


def test_head_is_answered_as_get_without_the_body(synthesizer):
    client = client_with(synthesizer, api_keys=("secret",))
    for path in ("/", "/health", "/metrics"):
        head, got = client.head(path), client.get(path)
        assert head.status_code == got.status_code == 200 and head.content == b"" != got.content
        assert head.headers["content-type"] == got.headers["content-type"]
    assert client.head("/v1/models").status_code == 401 and client.head("/v1/audio/speech").status_code in (401, 405)


def test_other_hosts_are_refused_where_hosts_are_named(synthesizer):
    with client_with(synthesizer, allowed_hosts=("127.0.0.1", "[::1]")) as client:
        for host, status in (("127.0.0.1:8000", 200), ("[::1]:8000", 200), ("evil.example", 400), ("", 400)):
            assert client.get("/health", headers={"host": host}).status_code == status
    assert host_name("LocalHost:8000") == "localhost"


@pytest.mark.parametrize(
    "host",
    ["[::1].evil.example", "[::1]evil", "[::1]:80:80", "[::1", "127.0.0.1:80:evil", "127.0.0.1:x", "a@localhost",
     "[[::1]]", "localhost/evil", "localhost evil", "[127.0.0.1].evil", "[evil]", "127.0.0.1:99999"],
)  # fmt: skip
def test_what_is_no_host_and_port_is_refused(synthesizer, host):
    for settings in ({"private_hosts_only": True}, {"allowed_hosts": ("127.0.0.1", "[::1]", "localhost")}):
        with client_with(synthesizer, **settings) as client:
            assert client.get("/health", headers={"host": host}).status_code == 400
            assert client.get("/health", headers={"host": "[::1]:8000"}).status_code == 200


@pytest.mark.parametrize(
    ("origin", "site", "status"),
    [("http://testserver", None, 200), ("evil://testserver", None, 403), ("https://testserver", None, 403),
     ("https://testserver", "same-origin", 200), ("evil://testserver", "same-origin", 403), ("null", None, 403),
     ("testserver", None, 403), ("http://testserver.evil", None, 403), ("HTTP://TestServer", None, 200)],
)  # fmt: skip
def test_a_page_is_of_this_site_where_scheme_and_host_are_equal(synthesizer, origin, site, status):
    headers = {"Origin": origin} | ({"Sec-Fetch-Site": site} if site else {})
    with client_with(synthesizer) as client:
        assert client.post(URL, json=speech(), headers=headers).status_code == status


def test_pages_of_other_sites_are_refused(synthesizer):
    with client_with(synthesizer) as client:
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            assert client.get("/v1/models", headers={"Sec-Fetch-Site": site}).status_code == status


def test_responses_forbid_browsers_to_load_from_elsewhere(synthesizer):
    with client_with(synthesizer, api_keys=("k",)) as client:
        for response in (client.get("/health"), client.get("/v1/models"), client.get("/nothing")):
            assert "default-src 'self'" in response.headers["content-security-policy"]
            assert response.headers["x-content-type-options"] == "nosniff"


def test_bodies_are_bounded_with_and_without_a_length(synthesizer):
    with client_with(synthesizer, limits=ServeLimits(json_bytes=200)) as client:
        large = b'{"input": "' + b"a" * 300 + b'"}'
        headers = {"content-type": "application/json"}
        for content in (large, iter([large[:150], large[150:]])):
            response = client.post(URL, content=content, headers=headers)
            assert response.status_code == 413
            assert response.json()["error"]["code"] == "too_large"
        assert client.post(URL, json=speech("a cat")).status_code == 200


@pytest.mark.parametrize("length", ["-1", "x", "9" * 30])
def test_impossible_lengths_are_refused(synthesizer, length):
    with client_with(synthesizer) as client:
        response = client.post(URL, content=b"{}", headers={"content-length": length})
        assert response.status_code == 413


def test_a_body_that_does_not_arrive_in_time_is_refused():
    async def never() -> dict[str, object]:
        await asyncio.sleep(60)
        return {}

    async def read() -> None:
        await bounded(never, 10, 0.05)()

    started = time.monotonic()
    with pytest.raises(ApiError) as caught:
        asyncio.run(read())
    assert caught.value.status == 408 and time.monotonic() < started + 5


def test_after_the_body_the_time_to_stay_is_not_bounded():
    messages = iter([{"type": "http.request", "body": b"{}"}, {"type": "http.disconnect"}])

    async def receive() -> dict[str, object]:
        await asyncio.sleep(0.05)
        return next(messages)

    async def read() -> str:
        bounded_receive = bounded(receive, 10, 0.08)
        await bounded_receive()
        await asyncio.sleep(0.1)
        return (await bounded_receive())["type"]

    assert asyncio.run(read()) == "http.disconnect"
