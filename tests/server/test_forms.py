"""Forms: UTF-8 alone, bounded fields, and a temporary folder that is full."""

from __future__ import annotations

import errno
import time

import pytest
from starlette.testclient import TestClient

from marstts.audio import Waveform, encode

pytestmark = pytest.mark.slow

VOICES = "/v1/audio/voices"


def form(recording: bytes, **fields: bytes) -> bytes:
    head = b'--X\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n'
    parts = [head % (name.encode(), b"") + value + b"\r\n" for name, value in fields.items()]
    return b"".join([*parts, head % (b"audio_sample", b'; filename="a.wav"') + recording, b"\r\n--X--\r\n"])


def post(client: TestClient, content: bytes, charset: str = ""):
    kind = f"multipart/form-data; boundary=X{charset}"
    return client.post(VOICES, content=content, headers={"Content-Type": kind})


@pytest.mark.parametrize(
    "charset",
    ["; charset=punycode", "; charset=idna", ';charset="utf-7"', "; charset=undefined", "; Charset=unicode_escape",
     "; charset=utf-8; charset=punycode", "; charset=latin-1", "; charset=no-such-charset", "; charset="],
)  # fmt: skip
def test_a_form_in_another_charset_is_refused_before_it_is_read(client: TestClient, charset: str):
    started = time.monotonic()
    response = post(client, form(b"", name=b"Anna", transcript=b"a" * 400_000 + b"-"), charset)
    assert response.status_code == 400 and "UTF-8" in response.json()["error"]["message"]
    assert time.monotonic() < started + 5


@pytest.mark.parametrize("charset", ["", "; charset=utf-8", '; charset="UTF-8"'])
def test_a_form_in_utf_8_is_read(client: TestClient, reference: Waveform, charset: str):
    fields = {"name": "Zoë".encode(), "consent": b"She agreed."}
    response = post(client, form(encode(reference, ".wav"), **fields), charset)
    assert response.status_code == 200 and response.json()["name"] == "Zoë"


@pytest.mark.parametrize("field", ["name", "transcript", "consent", "other"])
def test_fields_are_bounded(client: TestClient, reference: Waveform, field: str):
    fields = {"name": b"Anna", "consent": b"She agreed."} | {field: b"a" * 20_000}
    assert post(client, form(encode(reference, ".wav"), **fields)).status_code == 400


@pytest.mark.parametrize(
    "fault", [OSError(errno.ENOSPC, "No space"), FileNotFoundError("no temporary folder"), OSError()]
)
def test_a_full_temporary_folder_is_no_error_of_the_client(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, fault: OSError
):
    def fail(*arguments: object, **options: object) -> None:
        raise fault

    monkeypatch.setattr("tempfile.TemporaryFile", fail)
    response = post(client, form(bytes(2 * 2**20), name=b"Anna"))
    assert response.status_code == 507 and response.json()["error"]["code"] == "insufficient_storage"
