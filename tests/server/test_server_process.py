"""A server as a process: killed while it saves a voice, stopped while it speaks, and sent bodies too slowly."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from api_server import free_port, live_server
from starlette.testclient import TestClient

from marstts.audio import Waveform, encode
from marstts.server.app import create_app
from marstts.server.settings import ServeLimits, ServeSettings
from marstts.voice import Voice
from scripted import good, scripted_synthesizer

pytestmark = [pytest.mark.slow, pytest.mark.end_to_end]

TESTS = Path(__file__).parents[1]
SAVE_AND_DIE = """
import os, sys
from pathlib import Path
from killed_commands import Killer
from marstts.server.callers import ADMINISTRATOR
from marstts.server.settings import ServeLimits
from marstts.server.voice_store import VoiceStore
from scripted import good, scripted_synthesizer
folder, recording = Path(sys.argv[1]), Path(sys.argv[2]).read_bytes()
for point in sys.stdin:
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    else:
        store = VoiceStore(scripted_synthesizer(good), folder, ServeLimits())
        Killer(int(point)).install()
        store.create("Second", [recording], "", "Bob agreed.", ADMINISTRATOR)
        os._exit(0)
"""
"""Saves a voice once for each number it reads, and is killed at the operation on a file with that number."""

SERVE = "import typer; from marstts.cli.serve import serve; typer.run(serve)"
PART = b'--b\r\nContent-Disposition: form-data; name="audio_sample"; filename="a.wav"\r\n\r\n'
LONG_TEXT = "It was a bright cold day in April, and all the clocks in the town were striking at the same time. "


@pytest.mark.slow
def test_a_server_that_is_killed_while_it_saves_a_voice_loses_no_other(tmp_path: Path, reference: Waveform):
    folder, recording = tmp_path / "voices", tmp_path / "recording.wav"
    recording.write_bytes(encode(reference, ".wav"))
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    fields, files = {"name": "First", "consent": "Anna agreed."}, {"audio_sample": ("a.wav", recording.read_bytes())}
    settings = ServeSettings(voices_folder=folder)
    with TestClient(create_app(scripted_synthesizer(good), settings)) as client:
        first = client.post("/v1/audio/voices", data=fields, files=files).json()
    kept, num_killed = (folder / f"{first['id']}.voice").read_bytes(), 0
    command = [sys.executable, "-c", SAVE_AND_DIE, str(folder), str(recording)]
    saving = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert saving.stdin is not None and saving.stdout is not None
    for point in range(1, 30):
        print(point, file=saving.stdin, flush=True)
        was_killed = int(saving.stdout.readline()) == -signal.SIGKILL
        num_killed += was_killed
        assert (folder / f"{first['id']}.voice").read_bytes() == kept
        with TestClient(create_app(scripted_synthesizer(good), settings)) as client:
            listed = [voice for voice in client.get("/v1/audio/voices").json()["voices"] if "consent" in voice]
            assert "First" in {voice["name"] for voice in listed}
            for voice in listed:
                assert Voice.load(folder / f"{voice['id']}.voice").name == voice["name"]
                if voice["name"] != "First":
                    assert client.delete(f"/v1/audio/voices/{voice['id']}").status_code == 200
        if not was_killed:
            break
    saving.communicate()
    assert num_killed >= 3 and not was_killed, "it was killed at every operation on a file, and then at none"


@contextmanager
def process(*options: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`marstts serve` and its address."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", SERVE, "--port", "0", "--listeners", "4", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as running:
        assert running.stdout is not None
        found = re.match(r"http://\S+", running.stdout.readline().decode())
        assert found, "the server did not start"
        try:
            yield running, found[0].rstrip("/")
        finally:
            running.kill()  # otherwise a failed test would wait for ever; nothing is done where it has ended


@pytest.mark.slow
def test_a_server_that_is_terminated_ends_its_streams_and_takes_no_more(tmp_path: Path):
    body = {"model": "mini", "voice": "ada", "input": LONG_TEXT, "response_format": "pcm"}
    port, url = free_port(), "/v1/audio/speech"
    options = ("--voices", str(tmp_path), "--drain", "60", "--api-key", "secret", "--wyoming-port", str(port))
    with (
        process(*options) as (running, address),
        httpx.Client(base_url=address, headers={"Authorization": "Bearer secret"}, timeout=120) as client,
    ):
        socket.create_connection(("127.0.0.1", port)).close()
        whole = client.post(url, json=body).content
        with client.stream("POST", url, json=body) as response:
            pieces = response.iter_raw()
            received = [next(pieces)]
            running.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            with pytest.raises(httpx.TransportError):
                raise_for_503(httpx.post(f"{address}{url}", json=body, headers=client.headers, timeout=5))
            received += pieces
        assert len(b"".join(received)) == len(whole) > 125_000
        assert running.wait(timeout=30) == 0


def raise_for_503(response: httpx.Response) -> None:
    """A connection that is refused, or status 503: both are no service."""
    if response.status_code == 503:
        raise httpx.TransportError("503")


@pytest.mark.slow
@pytest.mark.parametrize("length", [100_000, None])
def test_an_upload_that_does_not_arrive_in_time_is_refused(tmp_path: Path, length):
    settings = ServeSettings(voices_folder=tmp_path, limits=ServeLimits(body_seconds=0.4))
    with live_server(scripted_synthesizer(good), settings) as server:
        host, port = server.address.removeprefix("http://").split(":")
        size = f"Content-Length: {length}" if length else "Transfer-Encoding: chunked"
        lines = ("POST /v1/audio/voices HTTP/1.1", "Host: x", "Content-Type: multipart/form-data; boundary=b", size)
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall("\r\n".join((*lines, "", "")).encode())
            connection.sendall(PART if length else f"{len(PART):x}\r\n".encode() + PART + b"\r\n")
            stopped = threading.Event()

            def trickle() -> None:
                while not stopped.wait(0.02):
                    try:
                        connection.sendall(b"-" if length else b"1\r\n-\r\n")
                    except OSError:
                        return

            threading.Thread(target=trickle, daemon=True).start()
            started = time.monotonic()
            status = connection.recv(4096).split(b"\r\n")[0]
            stopped.set()
        assert b" 408 " in status and time.monotonic() - started < 5.0
        assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_health_check_of_the_container_passes_while_the_server_runs_and_fails_after_it(tmp_path: Path):
    image = (TESTS.parent / "Dockerfile").read_text(encoding="utf-8")
    [script] = re.findall(r'HEALTHCHECK .* CMD \["\S+python", "-c", "(.*)"\]', image)
    settings = ServeSettings(voices_folder=tmp_path, api_keys=("secret",))
    with live_server(scripted_synthesizer(good), settings) as server:
        command = [sys.executable, "-c", script.replace("http://127.0.0.1:8000", server.address)]
        assert subprocess.run(command, check=False, timeout=60).returncode == 0
    assert subprocess.run(command, check=False, timeout=60, stderr=subprocess.DEVNULL).returncode != 0
