"""Responses with speech: bytes as they are made, events with bytes, or a whole file.

Upstream: `service.SpeechRun`.  Downstream: clients, which may leave at any time: then the run is ended.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from marstts.errors import MarsError
from marstts.server.api_errors import ApiError, as_api_error
from marstts.server.metrics import RequestOutcome
from marstts.server.schemas import SpeechBody, StreamFormat
from marstts.server.service import SpeechRun
from marstts.server.speech_job import FilePiece, JobEnded

log = logging.getLogger(__name__)

WARNING_HEADER = "X-Marstts-Warning"
IGNORED_HEADER = "X-Marstts-Ignored"
EVENTS = "text/event-stream"

CLIENT_LEFT = 499
"""Status of a response whose client has disconnected."""

BASE64_BYTES = 3 * 2**14
"""Bytes of audio that are encoded at a time, so that other callers need not wait; a multiple of 3."""

Result = TypeVar("Result")


async def speech_response(request: Request, run: SpeechRun, body: SpeechBody) -> Response:
    """The response to a request for speech, once its first bytes are there. Errors before that have a status."""
    began = await begin(request, run)
    if began is None:
        return Response(status_code=CLIENT_LEFT)
    first, pieces = began
    headers = response_headers(first, body)
    if body.stream_format is StreamFormat.SSE:
        return RunResponse(run, events(run, body, first, pieces), headers, EVENTS)
    if not body.stream:
        return await whole_response(run, first, pieces, headers)
    return RunResponse(run, contents(first, pieces), headers, body.response_format.media_type)


async def begin(request: Request, run: SpeechRun) -> tuple[FilePiece, AsyncIterator[FilePiece]] | None:
    """The first bytes of a run and an iterator of what follows; None where the client has left."""
    try:
        return await unless_client_leaves(request, run.begin())
    except BaseException as error:
        run.close(outcome_of(error))
        if isinstance(error, JobEnded):
            return None
        raise


def response_headers(first: FilePiece, body: SpeechBody) -> dict[str, str]:
    """Headers of a response that begins with a piece."""
    headers = {"X-Accel-Buffering": "no"}
    if first.warning:
        headers[WARNING_HEADER] = quote(first.warning, safe=" ,;:.()")
    if body.instructions:
        headers[IGNORED_HEADER] = "instructions"
    return headers


async def whole_response(
    run: SpeechRun, first: FilePiece, pieces: AsyncIterator[FilePiece], headers: dict[str, str]
) -> Response:
    """A whole file, with its length."""
    outcome = RequestOutcome.ERROR
    try:
        content = b"".join([piece async for piece in contents(first, pieces)])
        outcome = RequestOutcome.OK
    finally:
        run.close(outcome)
    return Response(content, 200, headers, run.body.response_format.media_type)


async def contents(first: FilePiece, pieces: AsyncIterator[FilePiece]) -> AsyncIterator[bytes]:
    """The bytes of the file."""
    yield first.content
    async for piece in pieces:
        if piece.content:
            yield piece.content


async def events(
    run: SpeechRun, body: SpeechBody, first: FilePiece, pieces: AsyncIterator[FilePiece]
) -> AsyncIterator[bytes]:
    """The bytes of the file as server-sent events; a failure after the first of them is an event, too."""
    try:
        for part in delta(first):
            yield part
        async for piece in pieces:
            if piece.content or piece.warning or piece.sentence or piece.is_flawed or piece.words:
                for part in delta(piece):
                    yield part
    except Exception as error:
        failure = as_api_error(ApiError(500, "The speech was cut off.") if isinstance(error, JobEnded) else error)
        yield event("speech.audio.error", {"error": failure.as_object()})
        run.close(RequestOutcome.ERROR)
        return
    usage = {"input_tokens": len(body.input), "output_tokens": run.num_tokens}
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


class RunResponse(StreamingResponse):
    """A stream that ends its run, however the stream ends."""

    def __init__(self, run: SpeechRun, content: AsyncIterator[bytes], headers: dict[str, str], media_type: str) -> None:
        super().__init__(self._marked(content), 200, headers, media_type)
        self._run, self._is_whole, self._has_begun = run, False, False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outcome = RequestOutcome.LEFT

        async def send_noting(message: Message) -> None:
            self._has_begun = True
            await send(message)

        try:
            await super().__call__(scope, receive, send_noting)
            outcome = RequestOutcome.OK if self._is_whole else RequestOutcome.LEFT
        except Exception as error:
            outcome = outcome_of(error)
            if not self._has_begun:
                raise
            log_cut(error, self._run)  # the connection is closed before the end of the response, which tells the client
        finally:
            self._run.close(outcome)

    async def _marked(self, content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in content:
            yield piece
        self._is_whole = True


def log_cut(error: Exception, run: SpeechRun) -> None:
    """Log in one line why a response ends early, unless the client has left or the deadline was logged."""
    if run.is_late or isinstance(error, (JobEnded, ClientDisconnect, OSError)):
        return
    if isinstance(error, MarsError):
        log.warning("a stream was cut off: %s", error)
    else:
        log.error("a stream was cut off", exc_info=error)


def outcome_of(error: BaseException) -> RequestOutcome:
    """The outcome of a request that raised this error."""
    if isinstance(error, (JobEnded, asyncio.CancelledError)):
        return RequestOutcome.LEFT
    is_refused = isinstance(error, ApiError) and error.status == 429
    return RequestOutcome.REFUSED if is_refused else RequestOutcome.ERROR


async def unless_client_leaves(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`; cancels it and raises JobEnded where the client leaves before."""
    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(wait_until_left(request))
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise JobEnded
        return doing.result()
    finally:
        for task in (doing, leaving):
            task.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)


async def wait_until_left(request: Request) -> None:
    """Return when the client has closed its connection; the body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
