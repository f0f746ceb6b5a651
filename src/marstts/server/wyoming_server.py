"""Wyoming, the protocol of Home Assistant: one text at a time, or text as it arrives.

Upstream: Wyoming clients, over TCP without authentication, so the default address is loopback.
Downstream: `service`; the audio is 24 kHz, 16 bit, mono. Unknown events are ignored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

from pydantic import ValidationError
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.server import AsyncEventHandler, AsyncServer
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

import marstts
from marstts.server.api_errors import ApiError, as_api_error, validation_error
from marstts.server.encoders import API_RATE, AudioFormat
from marstts.server.schemas import SpeechBody
from marstts.server.service import SpeechService
from marstts.server.silent_connections import SilentConnections
from marstts.server.text_stream import SentenceBuffer, speak_bytes

FORMAT = {"rate": API_RATE, "width": 2, "channels": 1}
ATTRIBUTION = Attribution(name="marstts", url="")
DEFAULT_VOICE = "alloy"
MAX_EVENT_BYTES = 2**20
"""Bytes of one event, which is read whole: the longest text, not audio."""

SILENT_SECONDS = 60.0
"""A connection that sends nothing and is sent nothing for so long is closed."""

MAX_SILENT = 64
"""Silent connections; the oldest is closed where there are more."""

UNREAD_SECONDS = 30.0
"""A connection that reads nothing of what is sent for so long is closed."""

MAX_TEXTS = 64
"""Texts of one connection that wait to be spoken."""

log = logging.getLogger(__name__)


@asynccontextmanager
async def wyoming_server(service: SpeechService, host: str, port: int) -> AsyncIterator[AsyncServer]:
    """Serve Wyoming for the body of a `with`."""
    address = f"[{host}]" if ":" in host else host
    server = AsyncServer.from_uri(f"tcp://{address}:{port}")
    silent = SilentConnections(MAX_SILENT)
    await server.start(lambda reader, writer: WyomingHandler(service, silent, reader, writer))
    try:
        yield server
    finally:
        await server.stop()


def info_of(service: SpeechService) -> Info:
    """Return the description of this server: its model and all voices."""
    names = {str(voice["name"]): str(voice.get("description", "uploaded")) for voice in service.voices.objects()}
    voices = [
        TtsVoice(
            name=name, attribution=ATTRIBUTION, installed=True, description=description, version=None, languages=["en"]
        )
        for name, description in names.items()
    ]
    program = TtsProgram(
        name="marstts",
        attribution=ATTRIBUTION,
        installed=True,
        description=f"marstts, model {service.synthesizer.name}",
        version=marstts.__version__,
        voices=voices,
        supports_synthesize_streaming=True,
    )
    return Info(tts=[program])


class BoundedReader:
    """The reader of a connection, which refuses events of more than MAX_EVENT_BYTES and waits SILENT_SECONDS for each.

    While the connection is sent speech, it may stay silent.
    """

    def __init__(self, reader: asyncio.StreamReader, is_speaking: Callable[[], bool]) -> None:
        self._reader, self._is_speaking = reader, is_speaking

    async def readline(self) -> bytes:
        """The header of an event; asyncio raises ValueError beyond 64 KiB."""
        return await self._in_time(self._reader.readline())

    async def readexactly(self, size: Any) -> bytes:
        """The bytes that a header announces; ValueError where they are too many."""
        if not isinstance(size, int) or size > MAX_EVENT_BYTES:
            raise ValueError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        return await self._in_time(self._reader.readexactly(size))

    async def _in_time(self, reading: Coroutine[Any, Any, bytes]) -> bytes:
        task = asyncio.ensure_future(reading)
        try:
            while not (await asyncio.wait({task}, timeout=SILENT_SECONDS))[0]:
                if not self._is_speaking():
                    raise ConnectionError("the connection is silent")
            return task.result()
        finally:
            task.cancel()


class WyomingHandler(AsyncEventHandler):
    """One connection."""

    def __init__(
        self,
        service: SpeechService,
        silent: SilentConnections,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        super().__init__(cast(asyncio.StreamReader, BoundedReader(reader, lambda: self._is_speaking)), writer)
        self._service, self._silent = service, silent
        peer = writer.get_extra_info("peername")
        self._owner = str(peer[0]) if peer else ""
        self._buffer: SentenceBuffer | None = None
        """Text of a stream that has not ended."""
        self._voice: SynthesizeVoice | None = None
        self._texts: asyncio.Queue[tuple[str, SynthesizeVoice | None, bool]] = asyncio.Queue()
        """Texts to speak: the text, its voice, and whether a stream of text ends with it."""
        self._is_speaking = False
        self._silent.add(self, writer.transport.abort)
        self._speaking = asyncio.ensure_future(self._speak_all())

    async def run(self) -> None:
        """Handle events until the client leaves, or sends what is no event."""
        try:
            await super().run()
        except (AttributeError, LookupError, TypeError, RecursionError, EOFError, ConnectionError) as error:
            log.info("a Wyoming connection was closed after a malformed event: %s", type(error).__name__)

    async def write_event(self, event: Event) -> None:
        """Send an event; ConnectionError where the client reads nothing for too long."""
        try:
            await asyncio.wait_for(super().write_event(event), UNREAD_SECONDS)
        except TimeoutError as error:
            self.writer.transport.abort()
            raise ConnectionError("the client reads nothing") from error

    async def handle_event(self, event: Event) -> bool:
        """Handle an event; the connection stays open."""
        if not self._is_speaking:  # the newest of the silent ones again
            self._fall_silent()
        if self._texts.qsize() >= MAX_TEXTS:
            await self._report(ApiError(429, "Too many texts of this connection wait."))
            return False
        if Describe.is_type(event.type):
            await self.write_event(info_of(self._service).event())
        elif SynthesizeStart.is_type(event.type):
            self._buffer = SentenceBuffer(self._service.settings.limits.input_characters)
            self._voice = SynthesizeStart.from_event(event).voice
        elif SynthesizeChunk.is_type(event.type) and self._buffer is not None:
            await self._push(SynthesizeChunk.from_event(event).text)
        elif SynthesizeStop.is_type(event.type) and self._buffer is not None:
            rest = self._buffer.finish()
            self._buffer = None
            self._texts.put_nowait((rest[0] if rest else "", self._voice, True))
        elif Synthesize.is_type(event.type) and self._buffer is None:  # within a stream it is a copy of the text
            request = Synthesize.from_event(event)
            self._texts.put_nowait((request.text, request.voice, False))
        return True

    async def disconnect(self) -> None:
        """End what is spoken; the client has left."""
        self._speaking.cancel()
        self._silent.remove(self)

    def _fall_silent(self) -> None:
        self._silent.remove(self)
        self._silent.add(self, self.writer.transport.abort)

    async def _push(self, text: str) -> None:
        assert self._buffer is not None
        try:
            if not isinstance(text, str):  # the library takes any value of JSON
                raise ApiError(400, "text: Expected a text.")
            for sentence in self._buffer.push(text):
                self._texts.put_nowait((sentence, self._voice, False))
        except Exception as error:
            await self._report(error)

    async def _speak_all(self) -> None:
        while True:
            text, voice, ends_stream = await self._texts.get()
            self._is_speaking = True
            self._silent.remove(self)
            if text:
                try:
                    await self._speak(text, voice)
                except ConnectionError:
                    return
                except Exception as error:
                    await self._report(error)
            if ends_stream:
                await self.write_event(SynthesizeStopped().event())
            if self._texts.empty():
                self._is_speaking = False
                self._fall_silent()

    async def _speak(self, text: str, voice: SynthesizeVoice | None) -> None:
        name = (voice.name if voice else None) or DEFAULT_VOICE
        fields = {"model": self._service.synthesizer.name, "input": text, "voice": name}
        try:
            body = SpeechBody.model_validate({**fields, "response_format": AudioFormat.PCM})
        except ValidationError as error:
            raise validation_error(error.errors(include_url=False, include_context=False)) from error
        async with aclosing(speak_bytes(self._service, body, self._owner)) as pieces:
            first = await anext(pieces)
            await self.write_event(AudioStart(**FORMAT).event())
            await self.write_event(AudioChunk(**FORMAT, audio=first).event())
            async for content in pieces:
                await self.write_event(AudioChunk(**FORMAT, audio=content).event())
        await self.write_event(AudioStop().event())

    async def _report(self, error: Exception) -> None:
        failure = as_api_error(error)
        await self.write_event(Error(text=str(failure), code=failure.code or str(failure.status)).event())
