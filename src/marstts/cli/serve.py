"""`marstts serve`: the speech server on this machine.

Upstream: the shell.  Downstream: `server.app`, which makes the application; `server.base`, which serves it.
"""

from __future__ import annotations

import ipaddress
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from marstts.errors import ConfigError, check_installed
from marstts.generation.engine import EngineKind
from marstts.io.reading import read_text
from marstts.server.certificate import Certificate
from marstts.server.settings import DEFAULT_VOICES_FOLDER, ServeSettings
from marstts.synthesis.loading import load

log = logging.getLogger(__name__)

PACKAGES = ("fastapi", "uvicorn", "wsproto", "multipart", "prometheus_client", "av", "wyoming")
SWITCH_SECONDS = 0.001
"""A thread that computes in Python lets another one go on after this time (Python's default: 5 ms), so that patches are
not delayed by the decoding of audio."""

LOCAL = "127.0.0.1"
LOCAL_HOSTS = ("localhost", LOCAL, "[::1]")
MAX_KEY_FILE_BYTES = 2**20
DEFAULTS = ServeSettings()

WyomingPort = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port for Wyoming (Home Assistant), which has no keys.")
]
Drain = Annotated[int, typer.Option(min=0, help="Seconds that responses have to end once the server is stopped.")]
MaxWait = Annotated[float, typer.Option(min=0.1, help="Seconds that a request waits for a place before status 429.")]
WyomingHost = Annotated[str, typer.Option(help="Address for Wyoming.")]
CertificateFile = Annotated[
    Path | None,
    typer.Option("--certificate", metavar="FILE", help="TLS certificate in PEM format; the server then speaks https."),
]
PrivateKey = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Private key of --certificate, if it is in a separate file.")
]
KeysFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A file with one key per line; # begins a comment.")
]
Queue = Annotated[int, typer.Option(min=0, help="Requests that wait for a place; further ones get status 429.")]


def serve(
    model: Annotated[str, typer.Option(metavar="NAME_OR_FOLDER", help="The model.")] = "mini",
    engine: Annotated[
        EngineKind,
        typer.Option(help="Runtime of the model; auto: the fastest one that is installed."),
    ] = EngineKind.AUTO,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 admits other machines.")] = LOCAL,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 for any free one.")] = 8000,
    capacity: Annotated[int, typer.Option(min=1, max=256, help="Rows of the running batch.")] = DEFAULTS.capacity,
    listeners: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Requests that are spoken at a time; otherwise measured at the start."),
    ] = None,
    queue: Queue = DEFAULTS.queue,
    max_wait: MaxWait = DEFAULTS.max_wait_seconds,
    voices: Annotated[Path, typer.Option(help="Folder of uploaded voices.")] = DEFAULT_VOICES_FOLDER,
    api_key: Annotated[
        list[str] | None,
        typer.Option(envvar="MARSTTS_API_KEY", help="A key that callers must send; may be given several times."),
    ] = None,
    api_keys_file: KeysFile = None,
    no_keys: Annotated[bool, typer.Option("--no-keys", help="Serve other machines without asking for a key.")] = False,
    certificate_file: CertificateFile = None,
    private_key: PrivateKey = None,
    wyoming_port: WyomingPort = None,
    wyoming_host: WyomingHost = LOCAL,
    drain: Drain = DEFAULTS.drain_seconds,
) -> None:
    """Serve OpenAI's speech API until interrupted."""
    check_installed(PACKAGES, "serve")
    from marstts.server.app import create_app  # help needs no server
    from marstts.server.base import Server
    from marstts.server.service import measure_listeners

    keys = (*(api_key or ()), *(() if api_keys_file is None else read_keys(api_keys_file)))
    check_keys(keys, host, no_keys)
    certificate = certificate_of(certificate_file, private_key)
    synthesizer = load(model, engine)
    sys.setswitchinterval(SWITCH_SECONDS)
    settings = ServeSettings(
        capacity=capacity,
        listeners=listeners or measure_listeners(synthesizer, capacity),
        queue=queue,
        max_wait_seconds=max_wait,
        wyoming_port=wyoming_port,
        wyoming_host=wyoming_host,
        voices_folder=voices,
        api_keys=keys,
        allowed_hosts=LOCAL_HOSTS if is_loopback(host) and not keys else (),
        drain_seconds=drain,
    )
    app = create_app(synthesizer, settings)
    app.state.service.warm_up()
    with closing(app.state.service), Server(app, host, port, has_sessions=True, certificate=certificate) as server:
        signal.signal(signal.SIGTERM, interrupt)
        typer.echo(server.address)
        log.info(f"model {model}, {settings.listeners} requests at a time, {capacity} rows, voices in {voices}")
        with suppress(KeyboardInterrupt):
            server.serve()


def check_keys(keys: Sequence[str], host: str, no_keys: bool) -> None:
    """Raise ConfigError if other machines are admitted without keys."""
    if not keys and not no_keys and not is_loopback(host):
        raise ConfigError(
            f"--host {host} admits other machines, so keys are needed: give --api-key or --api-keys-file, or --no-keys"
        )


def certificate_of(path: Path | None, private_key: Path | None) -> Certificate | None:
    """The certificate in these files, checked before the model is loaded; None where none is given."""
    if path is None:
        if private_key is not None:
            raise ConfigError("--private-key belongs to a certificate; give --certificate, too")
        return None
    certificate = Certificate(path, private_key)
    certificate.check()
    return certificate


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_keys(path: Path) -> list[str]:
    """The keys in a file, one a line."""
    lines = [line.partition("#")[0].strip() for line in read_text(path, MAX_KEY_FILE_BYTES, ConfigError).splitlines()]
    keys = [line for line in lines if line]
    if not keys:
        raise ConfigError(f"{path}: expected API keys, one a line, but the file has none")
    return keys


def interrupt(number: int, frame: Any) -> None:
    """Stop as Ctrl-C does, so that the process ends with code 0."""
    raise KeyboardInterrupt
