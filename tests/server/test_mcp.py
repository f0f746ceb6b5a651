"""MCP: the SDK's own client speaks, lists voices and clones, in this process and over standard input and output."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import soundfile

from marstts.audio import Waveform
from marstts.server.callers import ADMINISTRATOR
from marstts.server.service import SpeechService
from marstts.server.settings import ServeSettings
from marstts.synthesis.clone.voice_folder import VoiceFolder
from scripted import good, scripted_synthesizer

pytestmark = pytest.mark.slow


def sdk() -> ModuleType:
    """The SDK, which takes a second to import: processes that run none of these tests are spared it."""
    return pytest.importorskip("mcp", reason="mcp is not installed")


def mcp_server(service: SpeechService) -> Any:
    return pytest.importorskip("marstts.server.mcp_tools").mcp_server(service)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[SpeechService]:
    settings = ServeSettings(capacity=2, voices_folder=tmp_path / "voices")
    with closing(SpeechService(scripted_synthesizer(good), settings)) as service:
        yield service


def call(service: SpeechService, tool: str, **arguments: Any) -> Any:
    async def run() -> Any:
        async with sdk().Client(mcp_server(service)) as client:
            return await client.call_tool(tool, arguments)

    return asyncio.run(run())


@pytest.mark.parametrize("voice", ["alloy", "ada", "ross"])
def test_speech_is_in_the_answer(service: SpeechService, voice: str):
    [audio] = call(service, "speak", text="Hello there.", voice=voice).content
    assert (audio.type, audio.mime_type) == ("audio", "audio/mpeg")
    assert soundfile.info(io.BytesIO(base64.b64decode(audio.data))).duration > 0.5


@pytest.mark.parametrize("suffix", ["mp3", "wav", "flac"])
def test_speech_is_written_to_a_new_file(service: SpeechService, tmp_path: Path, suffix: str):
    path = tmp_path / f"hello.{suffix}"
    assert not call(service, "speak", text="Hello there.", file=str(path)).is_error
    content = path.read_bytes()
    assert soundfile.info(path).duration > 0.5
    again = call(service, "speak", text="Good bye.", file=str(path))
    assert again.is_error and path.read_bytes() == content, "a file that exists is kept"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"text": ""}, "input"),
        ({"text": "..."}, "nothing to speak"),
        ({"text": "Hello.", "voice": "nobody"}, "no voice"),
        ({"text": "Hello. [pause:60s] " * 40}, "at most 900 s"),
        ({"text": "Hello.", "file": "hello.txt"}, "expected a file that ends in"),
        ({"text": "Hello.", "speed": 9}, "speed"),
    ],
)
def test_what_cannot_be_spoken_is_refused_in_a_sentence(service: SpeechService, arguments: dict[str, Any], reason: str):
    answer = call(service, "speak", **arguments)
    assert answer.is_error and reason in answer.content[0].text


def test_a_voice_is_cloned_with_consent_alone(service: SpeechService, reference_file: Path):
    for missing in ({"consent": " "}, {"recording": str(reference_file.parent)}, {"name": "ada"}):
        fields = {"name": "Anna", "recording": str(reference_file), "consent": "Anna agreed.", **missing}
        assert call(service, "clone_voice", **fields).is_error and not service.voices.uploaded(ADMINISTRATOR)
    made = call(service, "clone_voice", name="Anna", recording=str(reference_file), consent="Anna agreed.")
    assert not made.is_error and "Anna: cloned" in call(service, "list_voices").content[0].text
    assert not call(service, "speak", text="Hello there.", voice="Anna").is_error


def test_a_voice_is_cloned_from_several_recordings(service: SpeechService, reference_file: Path):
    fields = {"name": "Anna", "consent": "Anna agreed."}
    for recordings in ([], [str(reference_file)] * 21, [str(reference_file), "missing.wav"]):
        refused = call(service, "clone_voice", recording=recordings, **fields)
        assert refused.is_error and not service.voices.uploaded(ADMINISTRATOR)
    assert "missing.wav" in refused.content[0].text
    assert not call(service, "clone_voice", recording=[str(reference_file)] * 2, **fields).is_error
    assert not call(service, "speak", text="Hello there.", voice="Anna").is_error


def test_assistants_have_the_users_own_voices(reference: Waveform):
    synthesizer = scripted_synthesizer(good)
    with closing(SpeechService(synthesizer, ServeSettings(capacity=2))) as service:
        VoiceFolder().add(synthesizer.clone(reference, name="me"))
        assert "me: cloned" in call(service, "list_voices").content[0].text
        assert not call(service, "speak", text="Hello there.", voice="me").is_error


@pytest.mark.end_to_end
def test_the_command_serves_over_standard_input_and_output(tmp_path: Path):
    code = "import typer; from marstts.cli.serve import serve; typer.run(serve)"
    options = ["--mcp", "--voices", str(tmp_path), "--capacity", "2"]
    command = sdk().StdioServerParameters(command=sys.executable, args=["-c", code, *options], env=dict(os.environ))

    async def run() -> tuple[set[str], Any]:
        async with sdk().Client(command) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            return tools, await client.call_tool("speak", {"text": "Hello there."})

    tools, spoken = asyncio.run(asyncio.wait_for(run(), 120))
    assert tools == {"speak", "list_voices", "clone_voice"} and len(spoken.content[0].data) > 5000


def answers(service: SpeechService, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The two answers of the server to lines of standard input, after the one to the first, which begins a session."""
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    first = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": begin})
    second = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
    written = io.BytesIO()
    read_end, write_end = os.pipe()

    def send() -> None:
        """Write all, and end the input once it is answered: the server leaves unanswered what is in work then."""
        with os.fdopen(write_end, "wb") as file:
            file.write("\n".join([first, second, *lines, ""]).encode())
            file.flush()
            deadline = time.monotonic() + 20
            while written.getvalue().count(b"\n") < 3 and time.monotonic() < deadline:
                time.sleep(0.01)

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(os.fdopen(read_end, "rb")))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written))
    sending = threading.Thread(target=send)
    sending.start()
    mcp_server(service).run("stdio")
    sending.join()
    return [json.loads(line) for line in written.getvalue().splitlines()][1:]


@pytest.mark.parametrize(
    ("line", "number", "reason"),
    [
        (
            json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"text": "a \ud800"}}),
            7,
            "surrogate",
        ),
        (json.dumps({"jsonrpc": "2.0", "id": "k", "method": "\udc00"}), "k", "surrogate"),
        (json.dumps({"jsonrpc": "2.0", "id": "\udc00", "method": "ping"}), None, "surrogate"),
        ('{"jsonrpc": "2.0", "id": 8', None, "JSON"),
        ("[" * 5000, None, "JSON"),
        ('{"jsonrpc": "2.0", "id": 9}', 9, "JSON-RPC"),
        ("[]", None, "JSON-RPC"),
        ('{"jsonrpc": "2.0", "id": 1e999, "method": "ping"}', None, "id is a text or a whole number"),
        ('{"jsonrpc": "2.0", "id": null, "method": "tools/list"}', None, "id is a text or a whole number"),
    ],
)
def test_a_line_that_cannot_be_read_is_answered_with_its_reason(
    service: SpeechService, monkeypatch: pytest.MonkeyPatch, line: str, number: int | str | None, reason: str
):
    ping = json.dumps({"jsonrpc": "2.0", "id": "last", "method": "ping"})
    refused, answered = answers(service, [line, "", ping], monkeypatch)
    assert refused["id"] == number and reason in refused["error"]["message"]
    assert answered["id"] == "last" and "result" in answered


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("speak", {"text": "Hello.", "file": "~nosuchuser/x.wav"}),
        ("speak", {"text": "Hello.", "file": "a\0b.wav"}),
        ("speak", {"text": "Hello.", "file": "/no/such/folder/x.wav"}),
        ("speak", {"text": "Hello.", "file": "a" * 5000 + ".wav"}),
        ("clone_voice", {"name": "v", "recording": "~nosuchuser/x", "consent": "hers"}),
        ("clone_voice", {"name": "v", "recording": "a\0b", "consent": "hers"}),
        ("clone_voice", {"name": "v", "recording": [__file__, "a\0b"], "consent": "hers"}),
        ("clone_voice", {"name": "v", "recording": [__file__, "~nosuchuser/x"], "consent": "hers"}),
    ],
)
def test_a_path_that_cannot_be_is_refused_with_a_reason(service: SpeechService, tool: str, arguments: dict[str, Any]):
    answer = call(service, tool, **arguments)
    message = answer.content[0].text
    assert answer.is_error and ": " in message and not message.endswith(f"tool {tool}") and len(message) < 500
