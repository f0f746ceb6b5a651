"""Captioned speech, as Kokoro-FastAPI has it: audio with the times of its words.

Upstream: `app`.  Downstream: `service.SpeechRun`, whose pieces name words.

The response is a JSON object. Streamed it is one object a line: each holds the next bytes of the file, and the words
that were finished since the last line, in seconds from the beginning of the file.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from marstts.server.api_errors import JSON, ApiError, as_api_error
from marstts.server.encoders import AudioFormat
from marstts.server.metrics import Outcome
from marstts.server.schemas import SpeechBody, audio_json
from marstts.server.service import SpeechRun
from marstts.server.speech_job import JobEnded, Piece
from marstts.server.speech_response import CLIENT_LEFT, RunResponse, begin, response_headers, timestamp

LINES = "application/x-ndjson"


class CaptionedBody(SpeechBody):
    """Body of `POST /dev/captioned_speech`."""

    return_timestamps: bool = True
    """Whether words and their times are wanted; false needs no model that has them."""


async def captioned_response(request: Request, run: SpeechRun, body: CaptionedBody) -> Response:
    """Audio and words. Errors before the first bytes have a status; later ones are a separate line."""
    began = await begin(request, run)
    if began is None:
        return Response(status_code=CLIENT_LEFT)
    first, following = began
    headers = response_headers(first, body)
    if body.stream:
        return RunResponse(run, lines(run, first, following), headers, LINES)
    outcome = Outcome.ERROR
    try:
        pieces = [first, *[piece async for piece in following]]
        outcome = Outcome.OK
    finally:
        run.close(outcome)
    return StreamingResponse(parts_of(pieces, body.response_format), 200, headers, JSON)


async def lines(run: SpeechRun, first: Piece, following: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    """One JSON object a line for each piece."""
    audio_format = run.spec.audio_format
    try:
        for part in line(first, audio_format):
            yield part
        async for piece in following:
            if piece.content or piece.words:
                for part in line(piece, audio_format):
                    yield part
    except Exception as error:
        failure = as_api_error(ApiError(500, "The speech was cut off.") if isinstance(error, JobEnded) else error)
        yield json.dumps({"error": failure.as_object()}).encode() + b"\n"
        run.close(Outcome.ERROR)


def line(piece: Piece, audio_format: AudioFormat) -> Iterator[bytes]:
    """One line of JSON, in pieces."""
    yield from captioned([piece], audio_format)
    yield b"\n"


async def parts_of(pieces: Sequence[Piece], audio_format: AudioFormat) -> AsyncIterator[bytes]:
    """The whole object in pieces; the event loop serves others between them."""
    for part in captioned(pieces, audio_format):
        yield part


def captioned(pieces: Sequence[Piece], audio_format: AudioFormat) -> Iterator[bytes]:
    """Pieces as an object of Kokoro-FastAPI's form, in pieces."""
    words = [timestamp(word) for piece in pieces for word in piece.words]
    fields = {"audio_format": audio_format.media_type, "timestamps": words}
    return audio_json(fields, b"".join(piece.content for piece in pieces))
