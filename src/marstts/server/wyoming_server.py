"""Wyoming, the protocol of Home Assistant: one text at a time, or text as it arrives.

Upstream: Wyoming clients, over TCP without authentication, so the default address is loopback.
Downstream: `service`; the audio is 24 kHz, 16 bit, mono. Unknown events are ignored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

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
from marstts.http.connections import SilentConnections
from marstts.server.api_errors import ApiError, as_api_error
from marstts.server.arriving_text import ArrivingText
from marstts.server.callers import Caller
from marstts.server.encoders import API_RATE, AudioFormat
from marstts.server.schemas import DEFAULT_VOICE, SETTINGS, body_of
from marstts.server.service import SpeechService
from marstts.server.settings import ServeSettings
from marstts.server.speech_job import FilePiece
from marstts.server.speech_request import SpeechRequest

FORMAT = {"rate": API_RATE, "width": 2, "channels": 1}
ATTRIBUTION = Attribution(name="marstts", url="")
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
async def wyoming_server(service: SpeechService, settings: ServeSettings) -> AsyncIterator[AsyncServer]:
    """Serve Wyoming at the settings' port for the body of a `with`."""
    host, port = settings.wyoming_host, settings.wyoming_port or 0
    server = AsyncServer.from_uri(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")
    silent = SilentConnections(MAX_SILENT)
    await server.start(lambda reader, writer: WyomingHandler(service, silent, reader, writer))
    try:
        yield server
    finally:
        await server.stop()


def info_of(service: SpeechService, caller: Caller) -> Info:
    """Return the description of this server: its model and the voices of a caller."""
    names = {str(voice["name"]): str(voice.get("description", "uploaded")) for voice in service.voices.objects(caller)}
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
        description=f"marstts, model {service.model_label}",
        version=marstts.__version__,
        voices=voices,
        supports_synthesize_streaming=True,
    )
    return Info(tts=[program])


def settings_of(context: Any) -> dict[str, Any]:
    """The settings of speech in the context of a text; other entries are for other programs."""
    return {name: context[name] for name in SETTINGS & context.keys()} if isinstance(context, dict) else {}


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

    def feed_eof(self) -> None:
        """End the connection from this side, as a server that stops does."""
        self._reader.feed_eof()

    async def _in_time(self, reading: Coroutine[Any, Any, bytes]) -> bytes:
        task = asyncio.ensure_future(reading)
        try:
            while not (await asyncio.wait({task}, timeout=SILENT_SECONDS))[0]:
                if not self._is_speaking():
                    raise ConnectionError("the connection is silent")
            return task.result()
        finally:
            task.cancel()


@dataclass(frozen=True)
class QueuedText:
    """A text that waits to be spoken."""

    text: str | ArrivingText
    """The text, or one that is still being written."""
    voice: SynthesizeVoice | None
    settings: dict[str, Any]
    """Fields of a request for speech."""


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
        self._caller = Caller(is_admin=not service.has_keys, address=str(peer[0]) if peer else "")
        """Without a key: where others have keys, only what was made without one, or with the administrator's."""
        self._text: ArrivingText | None = None
        """Text of a stream that has not ended."""
        self._texts: asyncio.Queue[QueuedText] = asyncio.Queue()
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
            await self.write_event(info_of(self._service, self._caller).event())
        elif SynthesizeStart.is_type(event.type):
            if self._text is not None:
                self._text.finish()
            start, self._text = SynthesizeStart.from_event(event), self._service.arriving_text()
            self._texts.put_nowait(QueuedText(self._text, start.voice, settings_of(start.context)))
        elif SynthesizeChunk.is_type(event.type) and self._text is not None:
            await self._push(self._text, SynthesizeChunk.from_event(event).text)
        elif SynthesizeStop.is_type(event.type) and self._text is not None:
            self._text.finish()
            self._text = None
        elif Synthesize.is_type(event.type) and self._text is None:  # within a stream it is a copy of the text
            request = Synthesize.from_event(event)
            self._texts.put_nowait(QueuedText(request.text, request.voice, settings_of(request.context)))
        return True

    async def disconnect(self) -> None:
        """End what is spoken; the client has left."""
        if self._text is not None:
            self._text.finish()
        self._speaking.cancel()
        self._silent.remove(self)

    def _fall_silent(self) -> None:
        self._silent.remove(self)
        self._silent.add(self, self.writer.transport.abort)

    async def _push(self, arriving: ArrivingText, text: str) -> None:
        """Append a piece of a stream."""
        try:
            if not isinstance(text, str):  # the library takes any value of JSON
                raise ApiError(400, "text: Expected a text.")
            arriving.push(text)
        except Exception as error:
            await self._report(error)

    async def _speak_all(self) -> None:
        while True:
            queued = await self._texts.get()
            try:
                await self._speak(queued)
                if isinstance(queued.text, ArrivingText):
                    await self.write_event(SynthesizeStopped().event())
            except ConnectionError:
                return
            if self._texts.empty():
                self._rest()

    async def _speak(self, queued: QueuedText) -> None:
        """Send a text as audio, or an error; clients wait for the end of the audio, whatever happened."""
        has_begun = is_open = False
        is_whole = not isinstance(queued.text, ArrivingText)
        if is_whole:
            self._work()
        try:
            async with aclosing(self._pieces(queued)) as pieces:
                async for piece in pieces:
                    if piece.content and not is_open:
                        self._work()
                        await self.write_event(AudioStart(**FORMAT).event())
                        has_begun = is_open = True
                    if piece.content:
                        await self.write_event(AudioChunk(**FORMAT, audio=piece.content).event())
                    if piece.ends_sentence and is_open and not is_whole:
                        await self.write_event(AudioStop().event())
                        is_open = False
                        self._rest()
        except ConnectionError:
            raise
        except Exception as error:
            await self._report(error)
        if not has_begun:
            await self.write_event(AudioStart(**FORMAT).event())
        if is_open or not has_begun:
            await self.write_event(AudioStop().event())

    async def _pieces(self, queued: QueuedText) -> AsyncGenerator[FilePiece, None]:
        """The pieces of a text; none of one that arrives and has ended without words."""
        if not isinstance(queued.text, ArrivingText) or await queued.text.begins():
            async with self._request(queued) as speech:
                async for piece in speech.pieces():
                    yield piece

    def _work(self) -> None:
        """Note that the connection is sent speech."""
        self._is_speaking = True
        self._silent.remove(self)

    def _rest(self) -> None:
        """Note that the connection only waits for the client."""
        self._is_speaking = False
        self._fall_silent()

    def _request(self, queued: QueuedText) -> SpeechRequest:
        name = (queued.voice.name if queued.voice else None) or DEFAULT_VOICE
        arriving = queued.text if isinstance(queued.text, ArrivingText) else None
        text = "text" if arriving is not None else queued.text
        fields = {**queued.settings, "input": text, "voice": name, "response_format": AudioFormat.PCM}
        return SpeechRequest(self._service, body_of(fields), self._caller, arriving)

    async def _report(self, error: Exception) -> None:
        failure = as_api_error(error)
        await self.write_event(Error(text=str(failure), code=failure.code or str(failure.status)).event())
