"""Text that arrives piece by piece: the WebSocket and Wyoming."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from api_server import TEXT, LiveServer, free_port, live_server, wait_until

from marstts.audio import Waveform
from marstts.server.settings import ServeSettings
from marstts.synthesis.clone.voice_folder import VoiceFolder
from marstts.text.reading import read_text
from scripted import good, scripted_synthesizer

websockets = pytest.importorskip("websockets.sync.client", reason="websockets is not installed")
client_module = pytest.importorskip("wyoming.client", reason="wyoming is not installed")

pytestmark = pytest.mark.slow

TWO = "The cat sat on the mat. Dr. Smith sells 3.5 shells."
SENTENCES = ["The cat sat on the mat.", "Dr. Smith sells 3.5 shells."]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    port = free_port()
    settings = ServeSettings(voices_folder=tmp_path / "voices", wyoming_port=port)
    with live_server(scripted_synthesizer(good), settings) as server:
        yield server


def pcm_of(server: LiveServer, text: str) -> bytes:
    return b"".join(chunk.pcm() for chunk in server.service.synthesizer.stream(text, "ada"))


def connect(server: LiveServer, **headers: str):
    return websockets.connect(
        server.address.replace("http", "ws") + "/v1/audio/speech/stream", additional_headers=headers
    )


def test_a_websocket_speaks_each_sentence_of_text_that_arrives_in_pieces(server: LiveServer):
    with connect(server) as session:
        session.send(json.dumps({"type": "session.config", "voice": "alloy"}))
        for piece in (TWO[:9], TWO[9:30], TWO[30:]):
            session.send(json.dumps({"type": "input.text", "text": piece}))
        session.send(json.dumps({"type": "input.done"}))
        messages = list(session)
    audio = b"".join(message for message in messages if isinstance(message, bytes))
    events = [json.loads(message) for message in messages if isinstance(message, str)]
    assert [event["type"] for event in events] == ["audio.start", "audio.done"] * 2 + ["session.done"]
    assert [event["text"] for event in events if "text" in event] == SENTENCES
    assert audio == pcm_of(server, TWO)


@pytest.mark.parametrize("message", ["{", "[]", '{"type": "x"}', '{"type": "session.config", "speed": 9}'])
def test_a_wrong_message_is_answered_with_an_error_and_closes(server: LiveServer, message):
    with connect(server) as session:
        session.send(message)
        answer = session.recv()
    assert json.loads(answer)["error"]["type"] == "invalid_request_error"


def test_a_websocket_needs_the_key_and_the_same_origin(tmp_path: Path):
    settings = ServeSettings(voices_folder=tmp_path / "voices", api_keys=("secret",))
    with live_server(scripted_synthesizer(good), settings) as server:
        key = {"Authorization": "Bearer secret"}
        for headers in ({}, {"Authorization": "Bearer wrong"}, {**key, "Origin": "http://evil.example"}):
            with pytest.raises(Exception, match="403"):
                connect(server, **headers)
        with connect(server, **key):
            pass


def test_a_client_that_leaves_a_websocket_frees_its_place(server: LiveServer):
    with connect(server) as session:
        session.send(json.dumps({"type": "input.text", "text": f"{TEXT.capitalize()}. " * 40}))
        session.recv()
    for _ in range(100):
        if server.service.admission.num_active == 0:
            return
        asyncio.run(asyncio.sleep(0.02))
    pytest.fail("the place was not freed")


def exchange(server: LiveServer, events: list, last: str) -> list:
    """Send events to the Wyoming server -> all that it sends up to one of the type `last`."""

    port = server.service.settings.wyoming_port

    async def run() -> list:
        async with client_module.AsyncTcpClient("127.0.0.1", port) as client:
            for event in events:
                await client.write_event(event)
            received = []
            while (event := await asyncio.wait_for(client.read_event(), 20)) is not None:
                received.append(event)
                if event.type == last:
                    break
            return received

    return asyncio.run(run())


def test_wyoming_describes_its_voices(server: LiveServer):
    from wyoming.info import Describe, Info

    [event] = exchange(server, [Describe().event()], "info")
    [program] = Info.from_event(event).tts
    assert program.supports_synthesize_streaming and {"ada", "alloy"} <= {voice.name for voice in program.voices}


def test_wyoming_has_the_users_own_voices(reference: Waveform):
    from wyoming.info import Describe, Info
    from wyoming.tts import Synthesize, SynthesizeVoice

    synthesizer = scripted_synthesizer(good)
    with live_server(synthesizer, ServeSettings(wyoming_port=free_port())) as server:
        VoiceFolder().add(synthesizer.clone(reference, name="me"))
        [event] = exchange(server, [Describe().event()], "info")
        assert "me" in {voice.name for voice in Info.from_event(event).tts[0].voices}
        events = exchange(server, [Synthesize(text=TEXT, voice=SynthesizeVoice(name="me")).event()], "audio-stop")
        assert "error" not in {event.type for event in events} and len(events) > 2


def test_wyoming_speaks_a_text_and_ignores_unknown_events(server: LiveServer):
    from wyoming.audio import AudioChunk, AudioStart
    from wyoming.event import Event
    from wyoming.tts import Synthesize, SynthesizeVoice

    request = Synthesize(text=TEXT, voice=SynthesizeVoice(name="alloy"))
    events = exchange(server, [Event(type="future-event"), request.event()], "audio-stop")
    assert AudioStart.from_event(events[0]) == AudioStart(rate=24_000, width=2, channels=1)
    assert b"".join(AudioChunk.from_event(event).audio for event in events[1:-1]) == pcm_of(server, TEXT)


def test_wyoming_speaks_text_as_it_arrives_and_ignores_its_copy(server: LiveServer):
    from wyoming.audio import AudioChunk
    from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop

    chunks = [SynthesizeChunk(text=piece).event() for piece in (TWO[:9], TWO[9:30], TWO[30:])]
    events = exchange(
        server,
        [SynthesizeStart().event(), *chunks, Synthesize(text=TWO).event(), SynthesizeStop().event()],
        "synthesize-stopped",
    )
    assert [event.type for event in events if event.type != "audio-chunk"] == [
        "audio-start", "audio-stop", "audio-start", "audio-stop", "synthesize-stopped",
    ]  # fmt: skip
    audio = b"".join(AudioChunk.from_event(event).audio for event in events if event.type == "audio-chunk")
    assert audio == pcm_of(server, TWO)


def test_wyoming_reports_what_cannot_be_spoken(server: LiveServer):
    from wyoming.tts import Synthesize, SynthesizeVoice

    [event] = exchange(server, [Synthesize(text=TEXT, voice=SynthesizeVoice(name="nobody")).event()], "error")
    assert event.data["code"] == "voice_not_found"


@pytest.mark.parametrize(
    "header",
    [
        b'{"type": "synthesize", "data_length": 9223372036854775808}',
        b'{"type": "audio-chunk", "payload_length": 1e300}',
        b'{"type": "synthesize", "data_length": "x"}',
        b'{"type": "synthesize"}',
        b'{"type": "synthesize-chunk", "data": []}',
        b"[]",
        b"[" * 60_000,
        b"9" * 5_000,
        b"a" * 100_000,
        b"\xff\xfe",
    ],
    ids=lambda header: header[:40].decode(errors="replace"),
)
def test_malformed_wyoming_events_end_their_connection_only(header: bytes, server: LiveServer, caplog):
    from wyoming.info import Describe

    with socket.create_connection(("127.0.0.1", server.service.settings.wyoming_port), timeout=10) as connection:
        begin = b'{"type": "synthesize-start"}\n' if b"chunk" in header else b""
        connection.sendall(begin + header + b"\n")
        with suppress(ConnectionError):
            assert connection.recv(1) == b"", "the server closes the connection"
    exchange(server, [Describe().event()], "info")
    assert not [record for record in caplog.records if record.exc_info]


def messages_of(session) -> list[dict]:
    """All messages up to the end of the session; audio is left out."""
    return [json.loads(message) for message in session if isinstance(message, str)]


@pytest.mark.parametrize("wordless", ["\u043f\u0440\u0438\u0432\u0435\u0442.", "\u9234\u3002", "\u00a7 \u2603."])
def test_a_sentence_without_words_ends_no_session(server: LiveServer, wordless: str):
    with connect(server) as session:
        for text in (f"{wordless} ", "Hello there. ", f"{wordless} ", "Good bye."):
            session.send(json.dumps({"type": "input.text", "text": text}))
        session.send(json.dumps({"type": "input.done"}))
        messages = messages_of(session)
    assert messages[-1]["type"] == "session.done"
    spoken = [m["text"] for m in messages if m["type"] == "audio.start"]
    assert any("Hello there." in text for text in spoken) and "Good bye." in spoken[-1]
    for message in messages:
        assert "error" not in message or message["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "message",
    [
        r'{"type": "input.text", "text": "Hello \ud800 there. More. "}',
        r'{"type": "input.text", "text": "\udc00"}',
        r'{"type": "session.config", "voice": "a\udfff"}',
        r'{"type": "session.config", "\ud83d": 1}',
    ],
)
def test_halves_of_characters_are_refused_in_a_sentence(server: LiveServer, message: str, caplog):
    with connect(server) as session:
        session.send(message)
        answer = json.loads(session.recv())
    assert answer["error"]["type"] == "invalid_request_error" and "surrogate" in answer["error"]["message"]
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("text", [None, ["Hello."], 5, {"a": "b"}])
def test_what_is_no_text_is_refused_and_not_spoken(server: LiveServer, text: object):
    with connect(server) as session:
        session.send(json.dumps({"type": "input.text", "text": text}))
        answer = json.loads(session.recv())
    assert answer["error"]["type"] == "invalid_request_error" and answer["error"]["param"] == "text"


@pytest.mark.parametrize("text", [f"{TEXT.capitalize()}. " * 8, f"{TEXT}. {TEXT}. More."])
def test_clients_that_leave_a_session_leave_no_trace_in_the_log(server: LiveServer, caplog, text: str):
    for number in range(4):
        session = connect(server)
        session.send(json.dumps({"type": "input.text", "text": text}))
        if number % 2:
            session.recv()
        with suppress(OSError):  # the server may have closed it first
            session.socket.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: server.service.admission.num_active == 0, seconds=60.0)
    asyncio.run(asyncio.sleep(0.3))
    assert not [record for record in caplog.records if record.exc_info], caplog.text


def test_unknown_fields_and_empty_texts_cost_nothing(server: LiveServer):
    with connect(server) as session:
        for number in range(40):
            junk = {f"field {number} {index}": index for index in range(800)}
            session.send(json.dumps({"type": "session.config", **junk}))
        for _ in range(2000):
            session.send(json.dumps({"type": "input.text", "text": ""}))
        session.send(json.dumps({"type": "input.text", "text": TEXT}))
        session.send(json.dumps({"type": "input.done"}))
        kinds = [message["type"] for message in messages_of(session)]
    assert kinds == ["audio.start", "audio.done", "session.done"]


def test_frames_are_not_deflated(server: LiveServer):
    with connect(server) as session:
        assert "Sec-WebSocket-Extensions" not in session.response.headers


@pytest.mark.parametrize("text", ["\u043f\u0440\u0438\u0432\u0435\u0442", "...", "", "Hello. [pause:60s] " * 40])
@pytest.mark.parametrize("is_stream", [True, False])
def test_wyoming_ends_audio_whatever_the_text(server: LiveServer, text: str, is_stream: bool):
    from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop

    stream = [SynthesizeStart().event(), SynthesizeChunk(text=text).event(), SynthesizeStop().event()]
    last = "synthesize-stopped" if is_stream else "audio-stop"
    events = [event.type for event in exchange(server, stream if is_stream else [Synthesize(text=text).event()], last)]
    assert events.count("audio-start") == events.count("audio-stop") >= 1 and events[-1] == last


def test_wyoming_reads_lists_of_text_in_pieces(server: LiveServer):
    from wyoming.tts import SynthesizeChunk, SynthesizeStart, SynthesizeStop

    pieces = ["Steps:\n\n1", ". Wa", "sh.\n2", ".", " Boil.\n"]
    chunks = [SynthesizeChunk(text=piece).event() for piece in pieces]
    exchange(server, [SynthesizeStart().event(), *chunks, SynthesizeStop().event()], "synthesize-stopped")
    spoken = [prompt.text for prompt in server.service.synthesizer.session.engine.prompts]
    assert spoken == list(read_text("".join(pieces)).sentences) == ["Steps.", "one, Wash.", "two, Boil."]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"text": "Hello \ud800 there."}, "half of a surrogate pair"),
        ({"text": "Hi.", "voice": {"name": "a\udfff"}}, "no voice"),
    ],
)
@pytest.mark.parametrize("is_stream", [True, False])
def test_wyoming_refuses_halves_of_characters_in_a_sentence(
    server: LiveServer, fields: dict[str, Any], reason: str, is_stream: bool, caplog
):
    whole = [{"type": "synthesize", "data": fields}]
    stream = [
        {"type": "synthesize-start", "data": {key: value for key, value in fields.items() if key == "voice"}},
        {"type": "synthesize-chunk", "data": {"text": fields["text"]}},
        {"type": "synthesize-stop"},
    ]
    lines = "".join(json.dumps(event) + "\n" for event in (stream if is_stream else whole))
    with socket.create_connection(("127.0.0.1", server.service.settings.wyoming_port), timeout=20) as connection:
        connection.sendall(lines.encode())
        received = b""
        while b'"audio-stop"' not in received and (content := connection.recv(4096)):
            received += content
    assert reason.encode() in received and b'"audio-stop"' in received
    assert not [record for record in caplog.records if record.exc_info]
