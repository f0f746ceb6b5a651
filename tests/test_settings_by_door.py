"""A table: every setting of `Speaking` through every door, with the samples that Python gives for the same value."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from typer.testing import CliRunner

from marstts.cli.main import app
from marstts.errors import MarsError
from marstts.synthesis.speaking import Speaking, pauses_of
from marstts.synthesis.speech import Continuation
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.lexicon import lexicon_of
from marstts.voice import Voice
from scripted import (
    CODEBOOK_SIZE,
    ScriptedEngine,
    ScriptedModel,
    ScriptedPrompt,
    ScriptedTake,
    scripted_synthesizer,
    with_parts,
)

pytestmark = pytest.mark.slow

Fields = dict[str, Any]
Pcm = NDArray[np.int16]

TWO = "The cat sat on the mat. It rained all day long."
LONG = "She sells sea shells, " * 9 + "there."
SETTINGS: dict[str, tuple[str, Fields]] = {
    "voice": (TWO, {"voice": "emma"}),
    "style_of": (TWO, {"style_of": "emma"}),
    "voices": ("[voice:Anna] The cat sat on the mat.", {"voices": {"Anna": "emma"}}),
    "dialogue": ("“Come here now, please!” she said to him.", {"dialogue": "emma"}),
    "lexicon": ("Hello there, Nguyen and all the others.", {"lexicon": {"Nguyen": "fantastically"}}),
    "seed": (TWO, {"seed": 5}),
    "top_p": (TWO, {"top_p": 0.9}),
    "continuation": (TWO, {"continuation": "per-chunk"}),
    "speed": (TWO, {"speed": 1.5}),
    "seconds": (TWO, {"seconds": 6.5}),
    "pauses": (TWO, {"pauses": {"sentence": 0.9, "end": 0.4}}),
    "paper": (LONG, {"paper": True}),
}
"""A text in which each setting can be heard, and the setting as the fields of a request."""


class DrawingEngine(ScriptedEngine):
    """An engine whose number of patches depends on the prompt alone; codes are drawn from a few likely ones."""

    def next_logits(self, state: Any, tokens: np.ndarray) -> Any:
        logits, state = super().next_logits(state, tokens)
        logits[logits[:, -1] < 0, 40:48] = np.arange(8, 0, -1) / 4
        return logits, state


@dataclass(frozen=True, eq=False)
class VoicedModel(ScriptedModel):
    """A model that says more, or less, in each voice."""

    def prompt(self, text: str, voice: Voice) -> ScriptedPrompt:
        prompt = super().prompt(text, voice)
        return replace(prompt, text=f"{prompt.text} {voice.name * 9}")


def speaker() -> Synthesizer:
    def script(attempt: int, prompt: ScriptedPrompt) -> ScriptedTake:
        return ScriptedTake(10 + len(prompt.text) // 3)

    tts = scripted_synthesizer(script)
    layout = tts.session.engine.layout
    assert layout.codebook_size == CODEBOOK_SIZE
    return with_parts(tts, model=VoicedModel(DrawingEngine(script, layout), layout))


def speaking_of(tts: Synthesizer, stated: Fields) -> Speaking:
    """The value that fields of a request stand for."""
    read: dict[str, Callable[[Any], Any]] = {
        "voices": lambda cast: {name: tts.open_voice(voice) for name, voice in cast.items()},
        "lexicon": lexicon_of,
        "pauses": pauses_of,
        "continuation": Continuation,
    }
    given = {name: read.get(name, lambda value: value)(value) for name, value in stated.items()}
    if "dialogue" in given:
        given["voices"] = {given["dialogue"]: tts.open_voice(given["dialogue"])}
    return Speaking(**{"voice": "ada", **given})


def whole(text: str, stated: Fields) -> Pcm:
    tts = speaker()
    return as_pcm(tts.speak(text, speaking_of(tts, stated)).samples)


def streamed(text: str, stated: Fields) -> Pcm:
    tts = speaker()
    return as_pcm(np.concatenate([chunk.samples for chunk in tts.stream(text, speaking_of(tts, stated))]))


@functools.cache
def from_python(say: Callable[[str, Fields], Pcm], setting: str) -> Pcm:
    """What Python says with a setting; each door is compared with it."""
    return say(*SETTINGS[setting])


@functools.cache
def without(say: Callable[[str, Fields], Pcm], text: str) -> Pcm:
    """What Python says without any setting."""
    return say(text, {})


def as_pcm(samples: np.ndarray) -> Pcm:
    return np.rint(samples * 32767).astype(np.int16)


def options_of(stated: Fields, folder: Path) -> list[str]:
    """The options of `marstts speak` for fields of a request."""
    options = ["--voice", stated.get("voice", "ada")]
    for name, value in stated.items():
        if name == "voices":
            (folder / "cast").write_text("".join(f"{each} = {voice}\n" for each, voice in value.items()))
            options += ["--cast", str(folder / "cast")]
        elif name == "lexicon":
            (folder / "words.tsv").write_text("".join(f"{word}\t{said}\n" for word, said in value.items()))
            options += ["--lexicon", str(folder / "words.tsv")]
        elif name == "pauses":
            options += ["--pauses", ",".join(f"{each}={seconds}" for each, seconds in value.items())]
        elif name == "paper":
            options += ["--paper"]
        elif name != "voice":
            options += [f"--{name.replace('_', '-')}", str(value)]
    return options


def by_command(*output: str, source: bool = False) -> Callable[[str, Fields, Path, pytest.MonkeyPatch], Pcm]:
    """A door of the command line that writes the only audio file under its output."""

    def door(text: str, stated: Fields, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Pcm:
        monkeypatch.setattr("marstts.cli.speak.load", lambda *how: speaker())
        monkeypatch.chdir(folder)
        (folder / "out").mkdir()
        (folder / "text.txt").write_text(text, encoding="utf-8")
        given = ["--file", "text.txt"] if source else [text]
        result = CliRunner().invoke(app, ["speak", *given, *output, *options_of(stated, folder)])
        assert result.exit_code == 0, result.output
        [path] = [path for path in (folder / "out").rglob("*") if path.suffix in (".wav", ".flac")]
        return soundfile.read(path, dtype="int16")[0]

    return door


def service_of(folder: Path) -> Any:
    from marstts.server.settings import ServeSettings

    return speaker(), ServeSettings(capacity=3, voices_folder=folder / "voices")


def over_http(text: str, stated: Fields, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Pcm:
    from starlette.testclient import TestClient

    from marstts.server.app import create_app

    with TestClient(create_app(*service_of(folder))) as client:
        body = {"voice": "ada", **stated, "input": text, "response_format": "pcm"}
        response = client.post("/v1/audio/speech", json=body)
        assert response.status_code == 200, response.text
        return np.frombuffer(response.content, np.int16)


def over_websocket(text: str, stated: Fields, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Pcm:
    from starlette.testclient import TestClient

    from marstts.server.app import create_app

    with (
        TestClient(create_app(*service_of(folder))) as client,
        client.websocket_connect("/v1/audio/speech/stream") as session,
    ):
        session.send_text(json.dumps({"type": "session.config", "voice": "ada", **stated}))
        for start in range(0, len(text), 7):
            session.send_text(json.dumps({"type": "input.text", "text": text[start : start + 7]}))
        session.send_text(json.dumps({"type": "input.done"}))
        audio = b""
        while True:
            message = session.receive()
            audio += message.get("bytes") or b""
            if "text" in message and message["text"] is not None:
                event = json.loads(message["text"])
                assert event["type"] != "error", event
                if event["type"] == "session.done":
                    return np.frombuffer(audio, np.int16)


def over_wyoming(text: str, stated: Fields, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Pcm:
    client = pytest.importorskip("wyoming.client", reason="wyoming is not installed")
    from wyoming.audio import AudioChunk
    from wyoming.tts import Synthesize, SynthesizeVoice

    from marstts.server.service import SpeechService
    from marstts.server.wyoming_server import wyoming_server

    tts, settings = service_of(folder)
    voice = SynthesizeVoice(name=stated.get("voice", "ada"))
    context = {name: value for name, value in stated.items() if name != "voice"}

    async def run(service: SpeechService) -> bytes:
        served = settings.model_copy(update={"wyoming_port": port})
        async with wyoming_server(service, served), client.AsyncTcpClient("127.0.0.1", port) as connection:
            await connection.write_event(Synthesize(text=text, voice=voice, context=context).event())
            audio = b""
            while (event := await asyncio.wait_for(connection.read_event(), 20)) is not None:
                assert event.type != "error", event
                audio += AudioChunk.from_event(event).audio if AudioChunk.is_type(event.type) else b""
                if event.type == "audio-stop":
                    break
            return audio

    port = free_port()
    with closing(SpeechService(tts, settings)) as service:
        return np.frombuffer(asyncio.run(run(service)), np.int16)


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def over_mcp(text: str, stated: Fields, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Pcm:
    mcp = pytest.importorskip("mcp", reason="mcp is not installed")
    from marstts.server.mcp_tools import mcp_server
    from marstts.server.service import SpeechService

    path = folder / "said.wav"
    others = {name: value for name, value in stated.items() if name != "voice"}
    arguments = {"text": text, "voice": stated.get("voice", "ada"), "file": str(path), "settings": others}

    async def run(service: SpeechService) -> None:
        async with mcp.Client(mcp_server(service)) as client:
            answer = await client.call_tool("speak", arguments)
            assert not answer.is_error, answer

    with closing(SpeechService(*service_of(folder))) as service:
        asyncio.run(run(service))
    return soundfile.read(path, dtype="int16")[0]


DOORS = {
    "file": (by_command("--output", "out/a.wav"), whole),
    "batch": (by_command("--output", "out", "--batch", "2", source=True), whole),
    "stream": (by_command("--output", "out/a.wav", "--stream"), streamed),
    "streamed lines": (by_command("--output", "out", "--batch", "1", "--stream", source=True), streamed),
    "book": (by_command("--output", "out/a.m4b", source=True), whole),
    "HTTP": (over_http, streamed),
    "WebSocket": (over_websocket, streamed),
    "Wyoming": (over_wyoming, streamed),
    "MCP": (over_mcp, whole),
}

NOT_SUPPORTED: set[tuple[str, str]] = set()
"""Settings that a door has no field for."""


def test_the_table_has_every_setting():
    assert {field.name for field in fields(Speaking)} == set(SETTINGS) and len(NOT_SUPPORTED) <= 5


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("door", DOORS)
def test_a_setting_counts_at_a_door(setting: str, door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    enter, say = DOORS[door]
    text, stated = SETTINGS[setting]
    said, expected = enter(text, stated, tmp_path, monkeypatch), from_python(say, setting)
    assert len(said) == len(expected)
    assert np.abs(said.astype(int) - expected.astype(int)).max() <= 2
    try:
        usual = without(say, text)
    except MarsError:
        return  # a voice that only the setting names
    assert len(usual) != len(expected) or np.abs(usual.astype(int) - expected.astype(int)).max() > 100


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_page_sends_a_setting(setting: str):
    from marstts.server.page import STATIC
    from marstts.server.schemas import SpeechBody

    script = (STATIC / "page.js").read_text(encoding="utf-8")
    assert setting in SpeechBody.model_fields and re.search(rf"^    {setting}: ", script, re.MULTILINE), setting
    for name in re.findall(r"byId\(\"([a-z-]+)\"\)|pairs\(\"([a-z-]+)\"", script):
        assert f'id="{name[0] or name[1]}"' in (STATIC / "page.html").read_text(encoding="utf-8")


def test_the_page_keeps_the_values_of_its_form_over_a_reload():
    from marstts.server.page import STATIC

    page, script = ((STATIC / name).read_text(encoding="utf-8") for name in ("page.html", "settings.js"))
    form = page.partition('<form id="speech-form"')[2].partition("</form>")[0]
    fields = re.findall(r"<(?:input|select|textarea) [^>]*>", form)
    with_values = [field for field in fields if 'type="file"' not in field and 'type="checkbox"' not in field]
    of_the_book = {"part"}
    [kept] = re.findall(r"^const FIELDS = (\[.*\]);$", script, re.MULTILINE)
    assert {re.findall(r'id="([a-z-]+)"', field)[0] for field in with_values} - of_the_book == set(json.loads(kept))


def test_mcp_names_the_settings_to_assistants(tmp_path: Path):
    mcp = pytest.importorskip("mcp", reason="mcp is not installed")
    from marstts.server.mcp_tools import mcp_server
    from marstts.server.service import SpeechService

    async def list_tools() -> Any:
        async with mcp.Client(mcp_server(service)) as client:
            return (await client.list_tools()).tools

    with closing(SpeechService(*service_of(tmp_path))) as service:
        [parameters] = [tool.input_schema["properties"] for tool in asyncio.run(list_tools()) if tool.name == "speak"]
    listed = re.sub(r" \(.*?\)", "", parameters["settings"]["description"]).partition(": ")[2].rstrip(".").split(", ")
    assert set(listed) == SETTINGS.keys() - parameters.keys()
