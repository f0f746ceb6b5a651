"""The page of the server: a few files, read once, and three requests that only the page makes.

Upstream: `app`.  Downstream: browsers, which otherwise use the same API as other clients. The files hold no data and
need no key; the requests need one.
"""

from __future__ import annotations

import io
from importlib.resources import files
from importlib.util import find_spec
from pathlib import PurePath

import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from marstts import audio
from marstts.errors import DataError
from marstts.io.reading import printable_text
from marstts.server.api_errors import JSON, ApiError, storage_error
from marstts.server.book_parts import parts_in_process
from marstts.server.callers import caller_of
from marstts.server.encoders import API_RATE, AudioFormat, EncodedStream
from marstts.server.schemas import as_json, read_body
from marstts.server.service import SpeechService
from marstts.server.voices_api import read_upload
from marstts.synthesis.clone import first_seconds, prepare, read_transcript
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.transcript_check import transcript_fits
from marstts.synthesis.words.written_forms import with_forms
from marstts.text.lexicon import Lexicon
from marstts.text.phones import readable
from marstts.text.reading import read_text

PAGE = "page.html"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript"}
STATIC = files("marstts.server") / "static"

MAX_NAME_CHARACTERS = 80


class TextBody(BaseModel):
    """Body of `POST /v1/text/readings`."""

    input: str = Field(min_length=1)


def add_page(app: FastAPI, service: SpeechService) -> None:
    """Add the page, its files and its requests."""
    add_file(app, "/", PAGE)
    for name in page_files():
        add_file(app, f"/page/{name}", name)
    add_requests(app, service)


def page_files() -> list[str]:
    """Names of the page's files."""
    return [file.name for file in STATIC.iterdir() if PurePath(file.name).suffix in TYPES]


def add_file(app: FastAPI, path: str, name: str) -> None:
    """Add one file."""
    content, media_type = (STATIC / name).read_bytes(), TYPES[PurePath(name).suffix]

    @app.get(path, include_in_schema=False)
    async def send() -> Response:
        return Response(content, media_type=media_type)


def add_requests(app: FastAPI, service: SpeechService) -> None:
    """Add what the page asks: readings, the parts of a file, MP3 of samples, and whether a transcript fits."""
    limits = service.settings.limits

    @app.post("/v1/text/readings", include_in_schema=False)
    async def readings(request: Request) -> Response:
        """List the words of a text that are read otherwise than they are written."""
        text = (await read_body(request, TextBody)).input
        if len(text) > limits.input_characters:
            raise ApiError(400, f"input: expected at most {limits.input_characters} characters.", param="input")
        return as_json(await run_in_threadpool(readings_of, text, service.lexicon))

    @app.post("/v1/text/parts", include_in_schema=False)
    async def parts(request: Request) -> Response:
        """Divide a book or a text file into parts that one request can speak."""
        content, fields = await read_upload(request, "file", limits.upload_bytes)
        name = printable_text(fields.get("name", ""), MAX_NAME_CHARACTERS) or "the file"
        return await service.run_without_model(
            caller_of(request), lambda: parts_of(content, name, limits.input_characters)
        )

    @app.post("/v1/audio/mp3", include_in_schema=False)
    async def mp3(request: Request) -> Response:
        """Encode 24 kHz, 16-bit mono samples as MP3, so that what was heard is kept without being spoken again."""
        content, _ = await read_upload(request, "samples", limits.upload_bytes)
        return Response(
            await service.run_without_model(caller_of(request), lambda: mp3_of(content)),
            media_type=AudioFormat.MP3.media_type,
        )

    @app.post("/v1/audio/transcript_check", include_in_schema=False)
    async def transcript_check(request: Request) -> Response:
        """Check whether a recording has the words of a transcript."""
        recording, fields = await read_upload(request, "audio_sample", limits.upload_bytes)
        words = fields.get("transcript", "")
        if len(words) > limits.transcript_characters:
            sentence = f"transcript: expected at most {limits.transcript_characters} characters."
            raise ApiError(400, sentence, param="transcript")
        fits = await service.run_upload(
            caller_of(request),
            lambda: recording_has_words(service.synthesizer, recording, words, limits.upload_seconds),
        )
        return as_json({"fits": fits})


def readings_of(text: str, lexicon: Lexicon | None) -> dict[str, object]:
    """Words that are read otherwise than they are written, in the order of the text, and what is left out."""
    reading = read_text(text, lexicon)
    segments = [segment for passage in reading.passages for segment in with_forms(passage)]
    pairs = [
        (form.written, readable(segment.text[form.start : form.end])) for segment in segments for form in segment.forms
    ]
    found = [without_mark(*pair) for pair in pairs if letters(pair[0]) != letters(pair[1])]
    return {"readings": found, "warnings": list(reading.warnings)}


def without_mark(written: str, read: str) -> dict[str, str]:
    """A written form and its reading, without the punctuation that both end with."""
    while written[-1:] == read[-1:] and not read[-1:].isalnum() and len(read) > 1:
        written, read = written[:-1], read[:-1]
    return {"written": written, "read": read}


def letters(words: str) -> str:
    """The letters and digits of words, without case."""
    return "".join(character for character in words.casefold() if character.isalnum())


def parts_of(content: bytes, name: str, max_characters: int) -> Response:
    """Title and parts of an EPUB or text file, as `book_parts` divides it in a process of its own."""
    try:
        return Response(parts_in_process(content, name, max_characters), media_type=JSON)
    except DataError as error:
        raise ApiError(400, str(error)) from error
    except OSError as error:
        raise storage_error(error) from error


def mp3_of(pcm: bytes) -> bytes:
    """Samples (16 bit, little-endian, of `API_RATE`) as MP3 frames without a header: files that follow are appended."""
    if not pcm or len(pcm) % 2:
        raise ApiError(400, "samples: expected 16-bit samples, at least one.", param="samples")
    samples = np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32767.0)
    stream = EncodedStream(AudioFormat.MP3, API_RATE, whole=find_spec("av") is None)
    return stream.push(samples) + stream.finish()


def recording_has_words(synthesizer: Synthesizer, recording: bytes, transcript: str, max_seconds: float) -> bool:
    """Whether a recording has the words of a transcript; AudioError or TextError for what cannot be cloned."""
    source = "the recording"
    words = read_transcript(transcript, source)
    waveform = audio.read(io.BytesIO(recording), max_seconds=max_seconds)
    voice = synthesizer.clone(waveform, keep_reference=False)
    prepared = first_seconds(prepare(waveform, synthesizer.session.codec.spec.sample_rate, source))
    return transcript_fits(prepared, words, voice, synthesizer.session.model, synthesizer.session.codec)
