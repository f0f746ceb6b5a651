"""Responses with speech: bytes as they are made, events with bytes, or a whole file.

Upstream: `speech_request`.  Downstream: clients, which may leave at any time: then the request ends.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from marstts.errors import MarsError
from marstts.server.api_errors import as_api_error
from marstts.server.metrics import RequestOutcome
from marstts.server.schemas import SpeechBody, StreamFormat
from marstts.server.speech_job import FilePiece
from marstts.server.speech_request import SpeechRequest

log = logging.getLogger(__name__)

WARNING_HEADER = "X-Marstts-Warning"
IGNORED_HEADER = "X-Marstts-Ignored"
EVENTS = "text/event-stream"

CLIENT_LEFT = 499
"""Status of a response whose client has disconnected."""

BASE64_BYTES = 3 * 2**14
"""Bytes of audio that are encoded at a time, so that other callers need not wait; a multiple of 3."""

Result = TypeVar("Result")


class SpeechResponse(Response):
    """A request for speech as a response, which begins with the first bytes; errors before them have a status.

    However the response ends, the request ends with it.
    """

    def __init__(self, speech: SpeechRequest) -> None:
        super().__init__()
        self._speech = speech
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_noting(message: Message) -> None:
            self._has_begun = True
            await send(message)

        try:
            async with self._speech as speech:
                pieces = speech.pieces()
                first = await unless_client_leaves(receive, anext(pieces))
                response = Response(None, CLIENT_LEFT) if first is None else await answer(speech, first, pieces)
                await response(scope, receive, send_noting)
        except Exception as error:
            if not self._has_begun:
                raise
            log_cut(error, self._speech)  # the connection is closed before the end of the response, as the client sees


async def answer(speech: SpeechRequest, first: FilePiece, pieces: AsyncIterator[FilePiece]) -> Response:
    """The response that begins with a piece: events, a whole file with its length, or bytes as they are made."""
    body, headers = speech.body, response_headers(first, speech.body)
    if body.stream_format is StreamFormat.SSE:
        return StreamingResponse(events(speech, first, pieces), 200, headers, EVENTS)
    if not body.stream:
        content = b"".join([piece async for piece in contents(first, pieces)])
        return Response(content, 200, headers, body.response_format.media_type)
    return StreamingResponse(contents(first, pieces), 200, headers, body.response_format.media_type)


def response_headers(first: FilePiece, body: SpeechBody) -> dict[str, str]:
    """Headers of a response that begins with a piece."""
    headers = {"X-Accel-Buffering": "no"}
    if first.warning:
        headers[WARNING_HEADER] = quote(first.warning, safe=" ,;:.()")
    if body.instructions:
        headers[IGNORED_HEADER] = "instructions"
    return headers


async def contents(first: FilePiece, pieces: AsyncIterator[FilePiece]) -> AsyncIterator[bytes]:
    """The bytes of the file."""
    yield first.content
    async for piece in pieces:
        if piece.content:
            yield piece.content


async def events(speech: SpeechRequest, first: FilePiece, pieces: AsyncIterator[FilePiece]) -> AsyncIterator[bytes]:
    """The bytes of the file as server-sent events; a failure after the first of them is an event, too."""
    try:
        for part in delta(first):
            yield part
        async for piece in pieces:
            if piece.content or piece.warning or piece.sentence or piece.is_flawed or piece.words:
                for part in delta(piece):
                    yield part
    except Exception as error:
        yield event("speech.audio.error", {"error": as_api_error(error).as_object()})
        return
    usage = {"input_tokens": len(speech.body.input), "output_tokens": speech.num_tokens}
    yield event("speech.audio.done", {"usage": {**usage, "total_tokens": sum(usage.values())}})


def delta(piece: FilePiece) -> Iterator[bytes]:
    """An event with the next bytes of the file, in pieces; words as Kokoro-FastAPI names them."""
    words = [
        {"word": word.written, "start_time": word.start, "end_time": word.end, "spoken": word.spoken}
        for word in piece.words
    ]
    extra = {
        "warning": piece.warning,
        "sentence": piece.sentence,
        "sentence_number": piece.number,
        "flawed": piece.is_flawed,
        "words": words,
    }
    kind = "speech.audio.delta"
    fields = {"type": kind, **{name: value for name, value in extra.items() if value}}
    yield f'event: {kind}\ndata: {json.dumps(fields, ensure_ascii=False)[:-1]}, "audio": "'.encode()
    for start in range(0, len(piece.content), BASE64_BYTES):
        yield base64.b64encode(piece.content[start : start + BASE64_BYTES])
    yield b'"}\n\n'


def event(kind: str, fields: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def log_cut(error: Exception, speech: SpeechRequest) -> None:
    """Log in one line why a response ends early, unless the client has left or the deadline was logged."""
    if speech.outcome is RequestOutcome.DEADLINE or isinstance(error, (ClientDisconnect, OSError)):
        return
    if isinstance(error, MarsError):
        log.warning("a stream was cut off: %s", error)
    else:
        log.error("a stream was cut off", exc_info=error)


async def unless_client_leaves(receive: Receive, work: Awaitable[Result]) -> Result | None:
    """The result of `work`; None, and `work` is canceled, where the client leaves before."""
    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(wait_until_left(receive))
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        for task in (doing, leaving):
            task.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)


async def wait_until_left(receive: Receive) -> None:
    """Return when the client has closed its connection; the body was read before."""
    while (await receive())["type"] != "http.disconnect":
        pass
