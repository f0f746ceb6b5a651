"""`/v1/audio/speech/stream`: a WebSocket for text that arrives word by word, with the messages of vLLM-Omni.

Upstream: the client's messages `session.config`, `input.text`, `input.done`, `session.close`.
Downstream: `audio.start`, binary frames and `audio.done` for each sentence, `session.done` at the end, `error`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI
from pydantic_core import from_json
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from marstts.http.connections import SilentConnections
from marstts.server.api_errors import ApiError, as_api_error, json_error
from marstts.server.callers import caller_of
from marstts.server.schemas import DEFAULT_VOICE, SpeechBody, body_of
from marstts.server.service import SpeechService
from marstts.server.speech_job import FilePiece
from marstts.server.speech_request import SpeechRequest

PATH = "/v1/audio/speech/stream"
DEFAULTS = {"model": "tts-1", "voice": DEFAULT_VOICE, "response_format": "pcm"}
CONFIGURED = SpeechBody.model_fields.keys() - {"input", "stream", "sentence", "sentences"}
"""Fields of `session.config`; others are ignored."""

SILENT_SECONDS = 60.0
"""A session that sends nothing for so long is closed."""


def add_websocket(app: FastAPI, service: SpeechService) -> None:
    """Add the endpoint. Of sessions that send nothing, a quarter of all connections is kept."""
    silent = SilentConnections(max(1, service.settings.limits.connections // 4))

    @app.websocket(PATH)
    async def stream(socket: WebSocket) -> None:
        await socket.accept()
        session = WebSocketSession(socket, service, silent)
        speaking = asyncio.ensure_future(session.speak())
        try:
            await session.listen()
            leaving = asyncio.ensure_future(session.wait_until_left())
            await asyncio.wait({speaking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            if speaking.done():
                await socket.close()
        except Exception as error:
            await session.refuse(error)
        finally:
            speaking.cancel()


class WebSocketSession:
    """One connection: messages in, sentences out."""

    def __init__(self, socket: WebSocket, service: SpeechService, silent: SilentConnections) -> None:
        self._socket, self._service, self._silent = socket, service, silent
        self._fields: dict[str, Any] = dict(DEFAULTS)
        self._text = service.arriving_text()
        self._receiving: asyncio.Future[str] | None = None
        self._is_speaking = False
        self._caller = caller_of(socket)

    async def listen(self) -> None:
        """Read messages until the text is complete. Raises ApiError for a message that is not understood."""
        while True:
            message = await self._receive()
            kind = message.pop("type", None)
            if kind == "session.config":
                if self._text.has_begun:
                    raise ApiError(400, "session.config: expected before the first text.", param="type")
                self._fields |= {name: message[name] for name in CONFIGURED & message.keys()}
                self._body("text")
            elif kind == "input.text":
                text = message.get("text", "")
                if not isinstance(text, str):
                    raise ApiError(400, "text: expected a text.", param="text")
                self._text.push(text)
            elif kind in ("input.done", "session.close"):
                self._text.finish()
                return
            else:
                raise ApiError(400, "Expected session.config, input.text, input.done or session.close.", param="type")

    async def speak(self) -> None:
        """Speak the sentences in order, then say that all are spoken."""
        done: dict[str, Any] = {"type": "session.done", "sentences": 0}
        try:
            if await self._text.begins():
                async with SpeechRequest(self._service, self._body("text"), self._caller, self._text) as speech:
                    async for piece in speech.pieces():
                        await self._send(piece, done)
            await self._socket.send_json(done)
        except Exception as error:
            await self.refuse(error)

    async def _send(self, piece: FilePiece, done: dict[str, Any]) -> None:
        """Send a piece, and with it that its sentence begins or ends; `done` counts the sentences."""
        index = done["sentences"]
        is_end = piece.content and piece.sentence is None and not self._is_speaking  # the silence after the last one
        if piece.sentence is not None or is_end:
            self._is_speaking = True
            self._silent.remove(self)
            await self._socket.send_json({"type": "audio.start", "index": index, "text": piece.sentence or ""})
        if piece.content:
            await self._socket.send_bytes(piece.content)
        if piece.warning:
            done["warning"] = "; ".join(filter(None, [done.get("warning"), piece.warning]))
        if piece.ends_sentence or is_end:
            self._is_speaking = False
            self._fall_silent()
            await self._socket.send_json({"type": "audio.done", "index": index})
            done["sentences"] += 1

    async def wait_until_left(self) -> None:
        """Return when the client has closed its connection; messages after the text are ignored."""
        while (await self._socket.receive())["type"] != "websocket.disconnect":
            pass

    async def refuse(self, error: Exception) -> None:
        """Send an error and close; there is no one to tell once the client has left."""
        is_closed = WebSocketState.DISCONNECTED in (self._socket.client_state, self._socket.application_state)
        if is_closed or isinstance(error, WebSocketDisconnect):
            return
        try:
            await self._socket.send_json({"type": "error", "error": as_api_error(error).as_object()})
            await self._socket.close(1011)
        except (WebSocketDisconnect, RuntimeError):
            pass  # it is closed already

    def _body(self, text: str) -> SpeechBody:
        return body_of({**self._fields, "input": text, "stream": True, "sentences": True})

    async def _receive(self) -> dict[str, Any]:
        try:
            message = from_json(await self._receive_text())  # which refuses halves of surrogate pairs, unlike `json`
        except ValueError as error:
            raise json_error(str(error)) from error
        except KeyError as error:
            raise json_error("bytes") from error
        if not isinstance(message, dict):
            raise ApiError(400, "Expected a JSON object.")
        return message

    async def _receive_text(self) -> str:
        """The next message. ApiError where none comes in time, or where the session gives way to a newer one."""
        self._receiving = asyncio.ensure_future(self._socket.receive_text())
        self._fall_silent()
        try:
            await asyncio.wait({self._receiving}, timeout=SILENT_SECONDS)
            if self._receiving.cancelled() or not self._receiving.done():
                raise ApiError(408, "The session sent nothing for too long.")
            return self._receiving.result()
        finally:
            self._receiving.cancel()
            self._silent.remove(self)

    def _fall_silent(self) -> None:
        """Note that the session only waits for a message: it may be closed for a newer one."""
        if self._receiving is not None and not self._receiving.done() and not self._is_speaking:
            self._silent.add(self, self._receiving.cancel)
