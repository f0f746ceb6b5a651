"""`marstts serve`: its options, and a process that stops on a signal."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

from marstts.cli import serve as command
from marstts.errors import ConfigError
from marstts.server.settings import ServeSettings

pytestmark = pytest.mark.slow


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch):
    """The settings that these options make; the server is not started."""
    for variable in ("MARSTTS_API_KEY", "MARSTTS_ADMIN_KEY"):
        monkeypatch.delenv(variable, raising=False)
    seen: list[ServeSettings] = []

    def create_app(synthesizer: Any, settings: ServeSettings, reopen: Any) -> Any:
        seen.append(settings)
        raise KeyboardInterrupt

    monkeypatch.setattr("marstts.server.app.create_app", create_app)
    monkeypatch.setattr("marstts.server.service.measure_listeners", lambda synthesizer, rows: 5 * rows)
    monkeypatch.setattr(command, "load", lambda model, engine: None)
    app = Typer()
    app.command()(command.serve)

    def run(*options: str, **environment: str) -> ServeSettings:
        result = CliRunner().invoke(app, ["--port", "0", *options], env=environment)
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


@pytest.mark.parametrize("key", ["", "correct horse", "schl\u00fcssel", " "])
@pytest.mark.parametrize("way", ["--api-key", "--admin-key", "MARSTTS_API_KEY", "MARSTTS_ADMIN_KEY", "--api-keys-file"])
def test_keys_that_cannot_be_sent_are_refused(settings_of, tmp_path: Path, way: str, key: str):
    for host in ("0.0.0.0", "127.0.0.1"):
        with pytest.raises(ConfigError, match=r"an API key|has none"):
            if way == "--api-keys-file":
                (tmp_path / "keys").write_text(f"{key}\n", encoding="utf-8")
                settings_of("--host", host, way, str(tmp_path / "keys"))
            elif way.startswith("--"):
                settings_of("--host", host, way, key)
            else:
                settings_of("--host", host, **{way: key})


def test_an_administrators_key_is_a_key_and_no_callers(settings_of):
    settings = settings_of("--host", "0.0.0.0", "--admin-key", "admin")
    assert settings.admin_key == "admin" and not settings.private_hosts_only
    assert settings_of(MARSTTS_ADMIN_KEY="admin").admin_key == "admin"
    with pytest.raises(ConfigError, match="choose another one"):
        settings_of("--api-key", "same", "--admin-key", "same")


@pytest.mark.parametrize("origin", ["*", "example.org", "https://example.org/page", "https://*.example.org"])
def test_origins_are_those_that_browsers_send(settings_of, origin: str):
    assert settings_of("--cors-origin", "https://example.org").cors_origins == ("https://example.org",)
    with pytest.raises(ConfigError, match="--cors-origin"):
        settings_of("--cors-origin", origin)


def test_without_keys_a_network_serves_private_names_and_those_that_are_given(settings_of):
    settings = settings_of("--host", "0.0.0.0", "--no-keys", "--allowed-host", "speech.example.org")
    assert settings.private_hosts_only and settings.allowed_hosts == ("speech.example.org",)


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid", "x" * 70])
def test_wyomings_address_is_tried_before_the_model_is_loaded(settings_of, host: str):
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match="name another --wyoming-port"),
    ):
        settings_of("--wyoming-port", str(taken.getsockname()[1]), "--wyoming-host", host)


@pytest.mark.parametrize(("stated", "seconds"), [("10m", 600), ("90s", 90), ("1.5H", 5400), ("600", 600)])
def test_the_time_after_which_the_model_is_unloaded_has_a_unit(settings_of, stated: str, seconds: float):
    assert settings_of("--unload-after", stated).unload_after_seconds == seconds
    assert settings_of().unload_after_seconds is None


@pytest.mark.parametrize("stated", ["", "0", "ten minutes", "-5m", "10 days", "1e9", "nan", "99999999h"])
def test_other_times_are_refused(settings_of, stated: str):
    with pytest.raises(ConfigError, match=r"--unload-after .*: expected a time .* such as 10m"):
        settings_of(f"--unload-after={stated}")


def test_the_port_is_tried_before_the_model_is_loaded(settings_of, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(command, "load", lambda model, engine: pytest.fail("the model was loaded"))
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError) as caught:
        settings_of("--port", str(taken.getsockname()[1]))
    assert str(caught.value).endswith(": address already in use; name another --port")
    assert "Errno" not in str(caught.value)


@pytest.mark.parametrize("folder", ["/proc/voices", "/dev/null/voices", "a file", "a file/below"])
def test_a_folder_that_cannot_keep_voices_is_refused_before_the_model_is_loaded(
    settings_of, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(command, "load", lambda model, engine: pytest.fail("the model was loaded"))
    (tmp_path / "a file").write_text("")
    with pytest.raises(ConfigError, match=r"--voices .*: no voice can be written there: .*; name another folder"):
        settings_of("--voices", str(tmp_path / folder))


def test_own_voices_that_cannot_be_written_are_a_warning(settings_of, caplog: pytest.LogCaptureFixture):
    assert settings_of(MARSTTS_VOICES="/dev/null/voices").voices_folder == Path("/dev/null/voices")
    assert "no voice can be written there" in caplog.text and "none can be uploaded" in caplog.text


def test_a_folder_for_voices_is_not_made_at_the_start(settings_of, tmp_path: Path):
    settings_of("--voices", str(tmp_path / "new" / "voices"))
    assert list(tmp_path.iterdir()) == []


def test_what_takes_time_at_the_start_is_announced(settings_of, caplog: pytest.LogCaptureFixture):
    with caplog.at_level("INFO"):
        settings_of()
    assert [word in caplog.text for word in ("loading", "measuring")] == [True, True]
    assert settings_of().adapts_places and not settings_of("--listeners", "9").adapts_places
