"""MCP: tools by which assistants speak, list voices and clone them, over standard input and output.

Upstream: `marstts serve --mcp`, started by the assistant's program.  Downstream: `service`, as for callers over HTTP.
Files are read and written as the user who runs the program; a file that exists is never overwritten.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    AudioContent,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    TextContent,
)
from pydantic import Field, ValidationError

import marstts
from marstts.audio.tempo import MAX_SPEED, MIN_SPEED
from marstts.errors import AudioError, ConfigError
from marstts.io.reading import describe_os_error, printable_name, read_regular_file
from marstts.server.api_errors import as_api_error, validation_error
from marstts.server.callers import ADMINISTRATOR
from marstts.server.encoders import AudioFormat
from marstts.server.schemas import DEFAULT_VOICE, SETTINGS, body_of
from marstts.server.service import SpeechService
from marstts.server.settings import ServeLimits
from marstts.server.speech_request import SpeechRequest

INSTRUCTIONS = "Speaks English text in packaged and cloned voices. Clone a voice only with its speaker's consent."
SUFFIXES = ", ".join(f".{audio_format.value}" for audio_format in AudioFormat)

Speed = Annotated[float, Field(ge=MIN_SPEED, le=MAX_SPEED, description="1 is the usual speed.")]
VoiceName = Annotated[str, Field(description="Name of a voice; list_voices has all.")]
Settings = Annotated[
    dict[str, Any] | None,
    Field(
        description="How it is spoken: seed, seconds (the length it is fitted to), dialogue (voice of what stands in "
        "quotation marks), style_of (a voice whose style is used), voices (names in the text, each with a voice), "
        "pauses (seconds after sentence, heading, paragraph, scene, end), lexicon (words with their pronunciations), "
        "top_p, continuation, paper."
    ),
]
OutputFile = Annotated[
    str, Field(description=f"Path of a new file for the audio ({SUFFIXES}); without it, the audio is in the answer.")
]
Recording = Annotated[
    str | list[str],
    Field(description="Path of a recording of 1 to 60 s, or a list of paths of several, all of one speaker."),
]
Consent = Annotated[str, Field(description="Who agreed that this voice is cloned, and how.")]
Transcript = Annotated[
    str, Field(description="The words of the (first) recording, if they are known: the clone is then closer.")
]


class AnsweringServer(MCPServer[Any]):
    """A server that answers lines that it cannot read with an error; that of the SDK leaves them unanswered."""

    async def run_stdio_async(self) -> None:
        """Serve over standard input and output until the input ends."""
        server = self._lowlevel_server
        async with stdio_server() as (received, sent):
            await server.run(_Readable(received, sent), sent, server.create_initialization_options())


class _Readable:
    """A stream of the messages that can be read."""

    def __init__(self, received: Any, sent: Any) -> None:
        self._received, self._sent = received, sent

    async def receive(self) -> Any:
        while not is_readable(message := await self._received.receive()):
            await self._answer(message)
        return message

    def __aiter__(self) -> _Readable:
        return self

    async def __anext__(self) -> Any:
        while not is_readable(message := await self._received.__anext__()):
            await self._answer(message)
        return message

    async def __aenter__(self) -> _Readable:
        await self._received.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._received.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._received, name)

    async def _answer(self, message: Any) -> None:
        answer = unreadable(message) if isinstance(message, Exception) else without_id()
        if answer is not None:
            await self._sent.send(SessionMessage(answer))


def is_readable(message: Any) -> bool:
    """Whether a message can be handled; a request whose id is none seems to be a notification, of another name."""
    if isinstance(message, Exception):
        return False
    content = message.message
    return not isinstance(content, JSONRPCNotification) or content.method.startswith("notifications/")


def without_id() -> JSONRPCError:
    """The answer to a request without an id that can be answered."""
    problem = "Expected a message of JSON-RPC 2.0 whose id is a text or a whole number."
    return JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=INVALID_REQUEST, message=problem))


def unreadable(error: Exception) -> JSONRPCError | None:
    """The answer to a line that is no message, with the id of the request where one can be found; None if blank."""
    complaints = error.errors(include_url=False, include_context=False) if isinstance(error, ValidationError) else []
    if any(isinstance(each["input"], str) and not each["input"].strip() for each in complaints):
        return None
    number = next((number for each in complaints if (number := _id_in(each["input"])) is not None), None)
    if complaints and complaints[0]["type"] == "json_invalid":
        data = ErrorData(code=PARSE_ERROR, message=str(validation_error(complaints)))
    else:
        data = ErrorData(code=INVALID_REQUEST, message="Expected a message of JSON-RPC 2.0.")
    return JSONRPCError(jsonrpc="2.0", id=number, error=data)


def _id_in(value: Any) -> int | str | None:
    """The id in a message, or in its line, which Python's reader may understand where a stricter one does not."""
    try:
        message = json.loads(value) if isinstance(value, str) else value
        number = message.get("id")
        json.dumps(number, ensure_ascii=False).encode()
    except (ValueError, AttributeError, RecursionError):  # UnicodeError is one of ValueError
        return None
    return number if isinstance(number, int | str) and not isinstance(number, bool) else None


def mcp_server(service: SpeechService) -> MCPServer:
    """The MCP server of a service."""
    server = AnsweringServer("marstts", instructions=INSTRUCTIONS, version=marstts.__version__, log_level="WARNING")

    @server.tool(structured_output=False)
    async def speak(
        text: str,
        voice: VoiceName = DEFAULT_VOICE,
        speed: Speed = 1.0,
        file: OutputFile = "",
        settings: Settings = None,
    ) -> list[AudioContent | TextContent]:
        """Speak a text."""
        with tool_errors():
            path = path_of(file)
            audio_format = format_of(path) if file else AudioFormat.MP3
            settings = settings or {}
            odd = [name for name in settings if name not in SETTINGS]
            if odd:
                raise ConfigError(f"settings: expected {', '.join(sorted(SETTINGS))}, but came {odd[0][:80]!r}")
            fields = {"speed": speed, **settings, "input": text, "voice": voice, "response_format": audio_format}
            fields["stream"] = False
            async with SpeechRequest(service, body_of(fields), ADMINISTRATOR) as speech:
                pieces = [piece async for piece in speech.pieces()]
            content = b"".join(piece.content for piece in pieces)
            warnings = [TextContent(type="text", text=piece.warning) for piece in pieces if piece.warning]
            if file:
                await asyncio.to_thread(write_new, path, content)
                return [TextContent(type="text", text=f"The speech is in {path}."), *warnings]
        data = base64.b64encode(content).decode("ascii")
        return [AudioContent(type="audio", data=data, mime_type=audio_format.media_type), *warnings]

    @server.tool(structured_output=False)
    def list_voices() -> str:
        """List all voices, one a line."""
        voices = service.voices.objects(ADMINISTRATOR)
        return "\n".join(f"{voice['name']}: {voice.get('description', 'cloned')}" for voice in voices)

    @server.tool(structured_output=False)
    async def clone_voice(name: str, recording: Recording, consent: Consent, transcript: Transcript = "") -> str:
        """Clone the voice of a recording, with the consent of its speaker, and keep it under a name."""
        with tool_errors():
            paths = [recording] if isinstance(recording, str) else recording
            contents = await asyncio.to_thread(read_recordings, paths, service.settings.limits)
            voice, warnings = await service.upload(name, contents, transcript, consent, ADMINISTRATOR)
        return "; ".join([f"The voice {voice.name!r} can speak now", *warnings])

    return server


def read_recordings(paths: Sequence[str], limits: ServeLimits) -> list[bytes]:
    """The bytes of recordings; AudioError where there is none, or more of them or of their bytes than of an upload."""
    if not 1 <= len(paths) <= limits.recordings:
        raise AudioError(f"recording: expected 1 to {limits.recordings} paths, but came {len(paths)}")
    contents: list[bytes] = []
    for path in paths:
        room = limits.upload_bytes - sum(map(len, contents))
        contents.append(read_regular_file(path_of(path), room, AudioError))
    return contents


def path_of(name: str) -> Path:
    """The path that an assistant names; AudioError where there can be none."""
    if "\0" in name:
        raise AudioError(f"{printable_name(name)}: no file can have this name")
    try:
        return Path(name).expanduser()
    except RuntimeError as error:  # a user who does not exist
        raise AudioError(f"{printable_name(name)}: the folder of this user is not known") from error


def format_of(path: Path) -> AudioFormat:
    """The format by a path's suffix; AudioError for any other suffix."""
    try:
        return AudioFormat(path.suffix.lower().removeprefix("."))
    except ValueError as error:
        raise AudioError(f"{printable_name(path)}: expected a file that ends in {SUFFIXES}") from error


def write_new(path: Path, content: bytes) -> None:
    """Write a file that must not exist; AudioError where it does, or cannot be written."""
    try:
        with path.open("xb") as file:
            file.write(content)
    except OSError as error:
        reason = describe_os_error(error)
        raise AudioError(f"{printable_name(path)}: expected the path of a new file, but {reason}") from error
    except ValueError as error:
        raise AudioError(f"{printable_name(path)}: no file can have this name") from error


@contextmanager
def tool_errors() -> Iterator[None]:
    """Turn errors for people into errors for the assistant."""
    try:
        yield
    except ToolError:
        raise
    except Exception as error:  # of which an unexpected one shows nothing of itself, and is logged
        raise ToolError(str(as_api_error(error))) from error
