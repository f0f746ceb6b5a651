"""The page's files, and the requests that only the page makes: readings, parts of a file, a check of a transcript."""

from __future__ import annotations

import errno
import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from marstts.audio import read
from marstts.server import schemas
from marstts.server.app import create_app
from marstts.server.encoders import API_RATE
from marstts.server.page import TYPES, page_files
from marstts.server.settings import ServeSettings
from marstts.synthesis.clone.voice_folder import NAME_CHARACTERS

pytestmark = pytest.mark.slow

LIMIT = ServeSettings().limits.input_characters
CONTAINER = '<container><rootfiles><rootfile full-path="book.opf"/></rootfiles></container>'
PACKAGE = """<package><metadata><title>A Small Book</title></metadata><manifest>
<item id="a" href="a.xhtml"/><item id="b" href="b.xhtml"/></manifest>
<spine><itemref idref="a"/><itemref idref="b"/></spine></package>"""


def epub() -> bytes:
    """A book of two chapters."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("META-INF/container.xml", CONTAINER)
        archive.writestr("book.opf", PACKAGE)
        archive.writestr("a.xhtml", "<html><body><h1>Morning</h1><p>The clocks were striking.</p></body></html>")
        archive.writestr("b.xhtml", "<html><body><h1>Evening</h1><p>Nobody answered.</p></body></html>")
    return content.getvalue()


def test_the_page_and_its_files_need_no_key_and_name_no_other_site(synthesizer):
    with TestClient(create_app(synthesizer, ServeSettings(api_keys=("secret",)))) as client:
        page = client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        assert "unsafe" not in page.headers["content-security-policy"]
        assert not re.search(r"<style|<script(?![^>]*src=)|\s(on\w+|style)=", page.text)
        for name in page_files():
            response = client.get(f"/page/{name}")
            assert response.status_code == 200 and response.headers["content-type"].startswith(TYPES[Path(name).suffix])
            assert not re.search(r"(https?:)?//(?!www\.w3\.org/2000/svg)[a-z0-9-]+\.[a-z]", response.text)
            assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", response.text)
        imported = re.findall(
            r'from "\./([\w.-]+)"', "".join(client.get(f"/page/{name}").text for name in page_files())
        )
        assert set(imported) <= set(page_files())
        assert client.get("/page/nothing.js").status_code == 404


def test_the_fields_of_the_page_take_as_much_as_the_server_does(client):
    found = dict(re.findall(r'id="(\w+)"[^>]* (?:maxlength|data-limit)="(\d+)"', client.get("/").text))
    limits = ServeSettings().limits
    assert {name: int(length) for name, length in found.items()} == {
        "text": limits.input_characters,
        "transcript": limits.transcript_characters,
        "consent": limits.consent_characters,
        "name": NAME_CHARACTERS,
        "dialogue": schemas.NAME_CHARACTERS,
    }


@pytest.mark.parametrize("path", ["/v1/text/readings", "/v1/text/parts", "/v1/audio/mp3", "/v1/audio/transcript_check"])
def test_the_requests_of_the_page_need_a_key(synthesizer, path):
    with TestClient(create_app(synthesizer, ServeSettings(api_keys=("secret",)))) as client:
        assert client.post(path, json={"input": "Hello."}).status_code == 401


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Dr. Smith paid $5.", [("Dr.", "Doctor"), ("$5", "five dollars")]),
        ("It was 2 kg, at 7:30!", [("2 kg", "two kilograms"), ("7:30", "seven thirty")]),
        ("Nobody answered.", []),
        ("“Don't,” she said (twice).", []),
    ],
)
def test_readings_are_the_words_that_are_read_otherwise(client, text, found):
    readings = client.post("/v1/text/readings", json={"input": text}).json()["readings"]
    assert [(each["written"], each["read"]) for each in readings] == found


def test_readings_name_what_is_left_out_and_refuse_long_texts(client):
    assert "☃" in client.post("/v1/text/readings", json={"input": "A ☃ stood there."}).json()["warnings"][0]
    assert client.post("/v1/text/readings", json={"input": "a " * LIMIT}).status_code == 400


@pytest.mark.parametrize(
    ("content", "titles"),
    [
        (b"The clocks were striking.", ["notes.txt"]),
        (b"Chapter 1\n\nOne day.\n\nChapter 2\n\nThe next day.\n", ["Chapter 1", "Chapter 2"]),
        (b"# Chapter 1\n\nOne day.\n", ["Chapter 1"]),
        (b"It began.\n\nChapter 1\n\nOne day.\n", ["notes.txt", "Chapter 1"]),
        (epub(), ["Morning", "Evening"]),
        (b"The clocks were striking. " * 200, ["notes.txt (1 of 2)", "notes.txt (2 of 2)"]),
        (b"A paragraph of some length.\n\n" * 300, ["notes.txt (1 of 3)", "notes.txt (2 of 3)", "notes.txt (3 of 3)"]),
    ],
)
def test_a_book_is_divided_into_parts_that_one_request_can_speak(client, content, titles):
    book = client.post("/v1/text/parts", files={"file": content}, data={"name": "notes.txt"}).json()
    assert [part["title"] for part in book["parts"]] == titles
    assert all(1 <= len(part["text"]) <= LIMIT for part in book["parts"])


@pytest.mark.parametrize(
    "text",
    [
        "The clocks struck.",
        "Chapter 1\n\nOne day.",
        "It began.\n\nChapter 1\n\nOne day.",
        "Chapter 1\n\nOne day.\n\nChapter 2\n\nTwo.",
    ],
)
def test_parts_have_the_words_of_a_text_and_no_others(client, text):
    parts = client.post("/v1/text/parts", files={"file": text.encode()}, data={"name": "Your text"}).json()["parts"]
    assert "\n\n".join(part["text"] for part in parts) == text


def test_no_word_is_lost_where_a_chapter_is_cut(client):
    words = [f"word{number}" for number in range(1500)]
    text = "\n\n".join(" ".join(words[first : first + 500]) + "." for first in range(0, 1500, 500))
    parts = client.post("/v1/text/parts", files={"file": text.encode()}, data={"name": "a.txt"}).json()["parts"]
    assert re.findall(r"word\d+", " ".join(part["text"] for part in parts)) == words


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0\0\0\0", b"PK\x03\x04 not a zip file", b"  \n"])
def test_a_file_that_is_no_book_is_refused_with_its_name(client, content):
    response = client.post("/v1/text/parts", files={"file": content}, data={"name": "notes.txt"})
    message = response.json()["error"]["message"]
    assert response.status_code == 400 and message.startswith("notes.txt: ") and "/" not in message


@pytest.mark.parametrize("where", ["tempfile.mkdtemp", "pathlib.Path.write_bytes"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_full_temporary_folder_is_no_error_of_the_client(client, monkeypatch, where, number):
    def fail(*arguments, **options):
        raise OSError(number, "the disk", "/tmp/secret")

    monkeypatch.setattr(where, fail)
    response = client.post("/v1/text/parts", files={"file": b"Some words."}, data={"name": "notes.txt"})
    assert response.status_code == 507 and "secret" not in response.text
    assert response.json()["error"]["code"] == "insufficient_storage"


def test_samples_are_encoded_in_pieces_that_can_be_joined(client):
    seconds = np.arange(2 * API_RATE) / API_RATE
    pcm = (8000 * np.sin(2 * np.pi * 300 * seconds)).astype("<i2").tobytes()
    pieces = []
    for piece in (pcm[: len(pcm) // 4], pcm[len(pcm) // 4 :]):
        response = client.post("/v1/audio/mp3", files={"samples": piece})
        assert response.status_code == 200 and response.headers["content-type"] == "audio/mpeg"
        pieces.append(response.content)
    whole = read(io.BytesIO(b"".join(pieces)))
    assert 2.0 <= whole.seconds < 2.3
    assert np.sqrt(np.mean(whole.samples**2)) == pytest.approx(8000 / 32768 / np.sqrt(2), rel=0.1)


@pytest.mark.parametrize("content", [b"", b"odd"])
def test_what_is_no_samples_is_refused(client, content):
    response = client.post("/v1/audio/mp3", files={"samples": content})
    assert response.status_code == 400 and "samples" in response.json()["error"]["message"]
