"""Endpoints for voices.

Upstream: clients.  Downstream: `service`, `voice_store`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI
from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from marstts.server.api_errors import ApiError, storage_error
from marstts.server.callers import caller_of
from marstts.server.guard import too_large
from marstts.server.schemas import MixBody, RenameBody, as_json, read_body
from marstts.server.service import SpeechService

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
        """Clone an uploaded recording, or several of one speaker."""
        limits = service.settings.limits
        recordings, fields = await read_uploads(request, "audio_sample", limits.upload_bytes, limits.recordings)
        voice, warnings = await service.upload(
            fields.get("name", ""),
            recordings,
            fields.get("transcript", "") or fields.get("ref_text", ""),
            fields.get("consent", ""),
            caller_of(request),
        )
        return as_json({**voice.as_object(), "warnings": warnings})

    @app.post("/v1/audio/voices/mix")
    async def mix(request: Request) -> Response:
        """Mix voices into a new one."""
        body = await read_body(request, MixBody)
        return as_json((await service.mix(body, caller_of(request))).as_object())

    @app.get("/v1/audio/voices/{voice_id}")
    def describe(voice_id: str, request: Request) -> Response:
        """Describe an uploaded voice."""
        return as_json(service.voices.find(voice_id, caller_of(request)).as_object())

    @app.post("/v1/audio/voices/{voice_id}")
    async def rename(voice_id: str, request: Request) -> Response:
        """Rename it."""
        body = await read_body(request, RenameBody)
        renamed = await run_in_threadpool(service.voices.rename, voice_id, body.name, caller_of(request))
        return as_json(renamed.as_object())

    @app.delete("/v1/audio/voices/{voice_id}")
    def delete(voice_id: str, request: Request) -> Response:
        """Delete it."""
        found = service.voices.delete(voice_id, caller_of(request))
        return as_json({"id": found.id, "object": found.as_object()["object"], "deleted": True})


async def read_upload(request: Request, field: str, max_bytes: int) -> tuple[bytes, dict[str, str]]:
    """The file of a form, and its other fields; ApiError where there is no such file, or too large a one."""
    [content], fields = await read_uploads(request, field, max_bytes, 1)
    return content, fields


async def read_uploads(
    request: Request, field: str, max_bytes: int, max_files: int
) -> tuple[Sequence[bytes], dict[str, str]]:
    """The files of a form that have one name, at least one and at most `max_files`, and its other fields.

    Raises ApiError where there is no such file, or more of them, or of their bytes, than there may be.
    """
    check_form(request, field)
    try:
        form = await request.form(max_files=max_files, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)
    except OSError as error:  # its file is larger than what is kept in memory, and the temporary folder is full
        raise storage_error(error) from error
    try:
        samples = form.getlist(field)
        files = [sample for sample in samples if isinstance(sample, UploadFile)]
        if not files or len(files) < len(samples):
            raise ApiError(400, f"{field}: expected a recording as a file.", param=field)
        if sum(file.size or 0 for file in files) > max_bytes:
            raise too_large(max_bytes)
        contents = [await file.read() for file in files]
        return contents, {key: value for key, value in form.items() if isinstance(value, str)}
    finally:
        await form.close()


def check_form(request: Request, field: str) -> None:
    """ApiError unless the body is a form in UTF-8: in others, decoding a field can take minutes."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if kind != b"multipart/form-data":
        raise ApiError(400, f"{field}: expected a recording as a file, in multipart/form-data.", param=field)
    if options.get(b"charset", b"utf-8").lower().replace(b"-", b"") != b"utf8":
        raise ApiError(400, "Expected a form in UTF-8; leave `charset` out of the content type.")
