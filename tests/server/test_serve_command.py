"""`marstts serve`: its options, and a process that stops on a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer import Typer
from typer.testing import CliRunner

from marstts.cli import serve as command
from marstts.errors import ConfigError
from marstts.server.settings import ServeSettings

KEYS = {"Authorization": "Bearer secret"}


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch):
    """The settings that these options make; the server is not started."""
    monkeypatch.delenv("MARSTTS_API_KEY", raising=False)
    seen: list[ServeSettings] = []

    def create_app(synthesizer: Any, settings: ServeSettings) -> Any:
        seen.append(settings)
        raise KeyboardInterrupt

    monkeypatch.setattr("marstts.server.app.create_app", create_app)
    monkeypatch.setattr("marstts.server.service.measure_listeners", lambda synthesizer, rows: 5 * rows)
    monkeypatch.setattr(command, "load", lambda model, engine: None)
    app = Typer()
    app.command()(command.serve)

    def run(*options: str, **environment: str) -> ServeSettings:
        result = CliRunner().invoke(app, options, env=environment)
        if isinstance(result.exception, ConfigError):
            raise result.exception
        return seen.pop()

    return run


def test_defaults_serve_this_machine_alone(settings_of):
    settings = settings_of()
    assert settings.api_keys == () and settings.allowed_hosts == ("localhost", "127.0.0.1", "[::1]")
    assert (settings.capacity, settings.listeners, settings.queue) == (16, 80, 32)


def test_options_become_settings(settings_of, tmp_path: Path):
    keys = tmp_path / "keys"
    keys.write_text("# callers\nfirst # Anna\n\nsecond\n")
    settings = settings_of(
        "--capacity", "3", "--listeners", "9", "--queue", "5", "--voices", str(tmp_path), "--drain", "7",
        "--host", "0.0.0.0", "--api-key", "third", "--api-keys-file", str(keys),
    )  # fmt: skip
    assert settings == ServeSettings(
        capacity=3, listeners=9, queue=5, voices_folder=tmp_path, drain_seconds=7, api_keys=("third", "first", "second")
    )


def test_a_key_may_come_from_the_environment(settings_of):
    assert settings_of(MARSTTS_API_KEY="secret").api_keys == ("secret",)


def test_other_machines_need_keys_unless_the_option_allows_none(settings_of, tmp_path: Path):
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.org"):
        with pytest.raises(ConfigError, match="--no-keys"):
            settings_of("--host", host)
    assert settings_of("--host", "0.0.0.0", "--no-keys").allowed_hosts == ()
    for host in ("localhost", "::1", "127.0.0.2"):
        assert settings_of("--host", host).api_keys == ()
    empty = tmp_path / "keys"
    empty.write_text("# none\n")
    with pytest.raises(ConfigError, match="has none"):
        settings_of("--api-keys-file", str(empty))


@pytest.mark.slow
def test_the_process_serves_and_ends_well_when_it_is_terminated(tmp_path: Path):
    script = "import typer; from marstts.cli.serve import serve; typer.run(serve)"
    options = ["--port", "0", "--api-key", "secret", "--voices", str(tmp_path)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", script, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        body = {"model": "mini", "voice": "ada", "input": "Hello.", "response_format": "pcm"}
        response = httpx.post(f"{address}v1/audio/speech", json=body, headers=KEYS, timeout=60)
        assert response.status_code == 200 and len(response.content) > 10_000
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


@pytest.mark.slow
def test_the_server_needs_no_pytorch():
    code = "import sys; sys.modules['torch'] = None; import marstts.cli.serve, marstts.server.app"
    subprocess.run([sys.executable, "-c", code], check=True)
