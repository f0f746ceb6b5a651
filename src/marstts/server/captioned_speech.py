"""Captioned speech, as Kokoro-FastAPI has it: audio with the times of its words.

Upstream: `app`.  Downstream: `service.SpeechRun`, whose pieces name words.

The response is a JSON object. Streamed it is one object a line: each holds the next bytes of the file, and the words
that were finished since the last line, in seconds from the beginning of the file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from marstts.server.api_errors import ApiError, as_api_error
from marstts.server.encoders import AudioFormat
from marstts.server.metrics import Outcome
from marstts.server.schemas import SpeechBody
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
    content = json.dumps(as_object(pieces, body.response_format), ensure_ascii=False).encode()
    return Response(content, 200, headers, "application/json")


async def lines(run: SpeechRun, first: Piece, following: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    """One JSON object a line for each piece."""
    audio_format = run.spec.audio_format
    try:
        yield as_line(as_object([first], audio_format))
        async for piece in following:
            if piece.content or piece.words:
                yield as_line(as_object([piece], audio_format))
    except Exception as error:
        failure = as_api_error(ApiError(500, "The speech was cut off.") if isinstance(error, JobEnded) else error)
        yield as_line({"error": failure.as_object()})
        run.close(Outcome.ERROR)


def as_object(pieces: Sequence[Piece], audio_format: AudioFormat) -> dict[str, Any]:
    """Pieces in Kokoro-FastAPI's form."""
    return {
        "audio": base64.b64encode(b"".join(piece.content for piece in pieces)).decode("ascii"),
        "audio_format": audio_format.media_type,
        "timestamps": [timestamp(word) for piece in pieces for word in piece.words],
    }


def as_line(fields: dict[str, Any]) -> bytes:
    """One line of JSON."""
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"
