"""Endpoints for voices and for consent recordings.

Upstream: clients.  Downstream: `service`, `voice_store` and `consents`.
"""

from __future__ import annotations

from fastapi import FastAPI
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from marstts.server.api_errors import ApiError, storage_error
from marstts.server.callers import caller_of
from marstts.server.consents import ConsentStore
from marstts.server.guard import too_large
from marstts.server.schemas import RenameBody, as_json, read_body
from marstts.server.service import SpeechService
from marstts.server.voice_store import VoiceStore

MAX_FIELDS = 8
MAX_FIELD_BYTES = 8192
"""Bytes of a field that is not the recording: the longest transcript has a quarter of them, or fewer."""


def add_voices(app: FastAPI, service: SpeechService) -> None:
    """Add the endpoints for voices."""

    @app.get("/v1/audio/voices")
    def voices(request: Request) -> Response:
        """List all voices."""
        found = service.voices.objects(caller_of(request))
        return as_json({"object": "list", "data": found, "voices": found})

    @app.post("/v1/audio/voices", response_class=Response)
    async def create(request: Request) -> Response:
        """Clone an uploaded recording."""
        recording, fields = await read_upload(request, "audio_sample", service.settings.limits.upload_bytes)
        voice, warnings = await service.upload(
            fields.get("name", ""),
            recording,
            fields.get("transcript", "") or fields.get("ref_text", ""),
            fields.get("consent", ""),
            caller_of(request),
        )
        return as_json({**voice.as_object(), "warnings": warnings})

    add_items(app, "/v1/audio/voices/{item_id}", service.voices)


def add_consents(app: FastAPI, service: SpeechService) -> None:
    """Add the endpoints for consent recordings."""

    @app.get("/v1/audio/voice_consents")
    def consents(request: Request) -> Response:
        """List all consent recordings."""
        data = [consent.as_object() for consent in service.consents.all(caller_of(request))]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
        return as_json({"object": "list", "data": data, **ends, "has_more": False})

    @app.post("/v1/audio/voice_consents", response_class=Response)
    async def create(request: Request) -> Response:
        """Keep an uploaded consent recording."""
        recording, fields = await read_upload(request, "recording", service.settings.limits.upload_bytes)
        consent = await service.upload_consent(
            fields.get("name", ""), recording, fields.get("language", ""), caller_of(request)
        )
        return as_json(consent.as_object())

    add_items(app, "/v1/audio/voice_consents/{item_id}", service.consents)


def add_items(app: FastAPI, path: str, store: VoiceStore | ConsentStore) -> None:
    """Add the endpoints for one item of a store."""

    @app.get(path)
    def describe(item_id: str, request: Request) -> Response:
        """Describe what was uploaded under this id."""
        return as_json(store.find(item_id, caller_of(request)).as_object())

    @app.post(path)
    async def rename(item_id: str, request: Request) -> Response:
        """Rename it."""
        body = await read_body(request, RenameBody)
        return as_json(store.rename(item_id, body.name, caller_of(request)).as_object())

    @app.delete(path)
    def delete(item_id: str, request: Request) -> Response:
        """Delete it."""
        found = store.delete(item_id, caller_of(request))
        return as_json({"id": found.id, "object": found.as_object()["object"], "deleted": True})


async def read_upload(request: Request, field: str, max_bytes: int) -> tuple[bytes, dict[str, str]]:
    """The file of a form, and its other fields; ApiError where there is no such file, or too large a one."""
    check_form(request, field)
    try:
        form = await request.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)
    except OSError as error:  # its file is larger than what is kept in memory, and the temporary folder is full
        raise storage_error(error) from error
    try:
        sample = form.get(field)
        if not isinstance(sample, UploadFile):
            raise ApiError(400, f"{field}: expected a recording as a file.", param=field)
        if (sample.size or 0) > max_bytes:
            raise too_large(max_bytes)
        return await sample.read(), {key: value for key, value in form.items() if isinstance(value, str)}
    finally:
        await form.close()


def check_form(request: Request, field: str) -> None:
    """ApiError unless the body is a form in UTF-8: in others, decoding a field can take minutes."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if kind != b"multipart/form-data":
        raise ApiError(400, f"{field}: expected a recording as a file, in multipart/form-data.", param=field)
    if options.get(b"charset", b"utf-8").lower().replace(b"-", b"") != b"utf8":
        raise ApiError(400, "Expected a form in UTF-8; leave `charset` out of the content type.")
