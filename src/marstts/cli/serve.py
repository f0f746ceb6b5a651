"""`marstts serve`: the speech server on this machine.

Upstream: the shell.  Downstream: `server.app`, which makes the application; `http.server`, which serves it.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from marstts.cli.terminal import say
from marstts.errors import ConfigError, check_installed
from marstts.generation.engine import EngineKind
from marstts.http.certificate import Certificate
from marstts.io.reading import describe_os_error, printable_name, read_text
from marstts.server.settings import ServeSettings
from marstts.synthesis.clone.packaged import VOICE_SUFFIX
from marstts.synthesis.clone.voice_folder import own_folder
from marstts.synthesis.loading import load
from marstts.synthesis.synthesizer import Synthesizer

if TYPE_CHECKING:
    from marstts.server.idle_model import OpenModel

log = logging.getLogger(__name__)

PACKAGES = ("fastapi", "uvicorn", "wsproto", "multipart", "prometheus_client", "av", "wyoming")
SWITCH_SECONDS = 0.001
"""A thread that computes in Python yields to another one after this time (Python's default: 5 ms), so that patches are
not delayed by the decoding of audio."""

LOCAL = "127.0.0.1"
LOCAL_HOSTS = ("localhost", LOCAL, "[::1]")
KEY_VARIABLE, ADMIN_KEY_VARIABLE = "MARSTTS_API_KEY", "MARSTTS_ADMIN_KEY"
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s*]+")
MAX_KEY_FILE_BYTES = 2**20
DURATION = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,3})?) ?(?P<unit>s|m|h|)")
UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
MAX_IDLE_SECONDS = 30 * 24 * 3600.0
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
AdminKey = Annotated[
    str | None,
    typer.Option(
        help="A key for the voices of all keys, and for those made without one; or MARSTTS_ADMIN_KEY.",
    ),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option("--allowed-host", metavar="NAME", help="A host name by which a server without keys is reached, too."),
]
CorsOrigins = Annotated[
    list[str] | None,
    typer.Option(
        "--cors-origin",
        metavar="ORIGIN",
        help="A site whose pages may use the server, such as https://example.org; may be given several times.",
    ),
]
Mcp = Annotated[
    bool, typer.Option("--mcp", help="Serve assistants by MCP over standard input and output, instead of HTTP.")
]
VoicesFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Folder of voices (default: your own, as in `marstts voice list`, or MARSTTS_VOICES)."
    ),
]
UnloadAfter = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Free the model's memory after this time without a request, such as 10m, 90s or 1h; the next request "
        "loads it again (default: never).",
    ),
]
Queue = Annotated[int, typer.Option(min=0, help="Requests that wait for a place; further ones get status 429.")]


def serve(
    model: Annotated[str, typer.Option(metavar="NAME_OR_FOLDER", help="The model.")] = "mini",
    engine: Annotated[
        EngineKind,
        typer.Option(help="Runtime of the model; auto: the fastest one that is installed.", case_sensitive=False),
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
    voices: VoicesFolder = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            help="A key that callers must send; may be given several times, or once as the variable MARSTTS_API_KEY."
        ),
    ] = None,
    api_keys_file: KeysFile = None,
    admin_key: AdminKey = None,
    no_keys: Annotated[bool, typer.Option("--no-keys", help="Serve other machines without asking for a key.")] = False,
    allowed_hosts: AllowedHosts = None,
    cors_origins: CorsOrigins = None,
    certificate_file: CertificateFile = None,
    private_key: PrivateKey = None,
    wyoming_port: WyomingPort = None,
    wyoming_host: WyomingHost = LOCAL,
    mcp: Mcp = False,
    drain: Drain = DEFAULTS.drain_seconds,
    unload_after: UnloadAfter = None,
) -> None:
    """Serve OpenAI's speech API until interrupted."""
    check_installed(PACKAGES, "serve")
    is_stated = voices is not None
    voices = own_folder_with_hint() if voices is None else voices
    check_voices_folder(voices, is_stated=is_stated)
    unload_seconds = read_duration(unload_after)
    if mcp:
        settings = ServeSettings(
            capacity=capacity, listeners=listeners, voices_folder=voices, unload_after_seconds=unload_seconds
        )
        serve_mcp(partial(open_model, model, engine), settings)
        return
    keys = keys_of(api_key, api_keys_file)
    admin_key = os.environ.get(ADMIN_KEY_VARIABLE) if admin_key is None else admin_key
    has_keys, is_local = bool(keys or admin_key is not None), is_loopback(host)
    settings = checked_settings(
        capacity=capacity, listeners=listeners, adapts_places=listeners is None, queue=queue, max_wait_seconds=max_wait,
        wyoming_port=wyoming_port, wyoming_host=wyoming_host, voices_folder=voices,
        api_keys=keys, admin_key=admin_key,
        allowed_hosts=() if has_keys else (*(LOCAL_HOSTS if is_local else ()), *(allowed_hosts or ())),
        private_hosts_only=not has_keys and not is_local,
        cors_origins=tuple(cors_origins or ()), drain_seconds=drain,
        unload_after_seconds=unload_seconds,
    )  # fmt: skip
    check_network(settings, host, port, no_keys=no_keys)
    certificate = certificate_of(certificate_file, private_key)
    serve_model(model, partial(open_model, model, engine), settings, (host, port), certificate)


def open_model(model: str, engine: EngineKind) -> Synthesizer:
    """Load a model, and say so."""
    log.info(f"loading the model {model}")
    return load(model, engine)


def read_duration(stated: str | None) -> float | None:
    """Seconds of a time such as 10m, 90s, 1h or 600; None without one. ConfigError for anything else."""
    if stated is None:
        return None
    match = DURATION.fullmatch(stated.strip().lower())
    seconds = 0.0 if match is None else float(match["number"]) * UNIT_SECONDS[match["unit"]]
    if not 0.0 < seconds <= MAX_IDLE_SECONDS:
        raise ConfigError(f"--unload-after {stated}: expected a time of at most 30 days, such as 10m, 90s or 1h")
    return seconds


def own_folder_with_hint() -> Path:
    """The folder of the user's own voices; a warning names the folder that earlier versions used, if it has any."""
    earlier = Path("voices")
    if any(earlier.glob("voice_*.voice")) or any(earlier.glob("*/voice_*.voice")):
        log.warning("the folder 'voices' here has voices of an earlier server; --voices voices serves them")
    return own_folder()


def checked_settings(**fields: Any) -> ServeSettings:
    """The settings; ConfigError for keys that no caller can send."""
    try:
        return ServeSettings(**fields)
    except ValidationError as error:
        raise ConfigError(error.errors()[0]["msg"].removeprefix("Value error, ")) from error


def check_network(settings: ServeSettings, host: str, port: int, *, no_keys: bool) -> None:
    """Raise ConfigError where the settings admit others without keys or no one at all, or a port cannot be taken.

    Called before the model is loaded.
    """
    from marstts.http.server import listen  # help needs no server

    if settings.private_hosts_only and not no_keys:
        raise ConfigError(
            f"--host {host} admits other machines, so keys are needed: give --api-key or --api-keys-file, or --no-keys"
        )
    for origin in settings.cors_origins:
        if not ORIGIN.fullmatch(origin):
            raise ConfigError(f"--cors-origin {origin}: expected a scheme and a host, such as https://example.org")
    listen(host, port).close()
    if settings.wyoming_port:
        listen(settings.wyoming_host, settings.wyoming_port, "--wyoming-port").close()


def serve_model(
    model: str,
    open_model: OpenModel,
    settings: ServeSettings,
    address: tuple[str, int],
    certificate: Certificate | None,
) -> None:
    """Measure the machine where the number of listeners is not given, warm up, and serve until interrupted."""
    from marstts.http.server import Server
    from marstts.server.app import create_app  # help needs no server
    from marstts.server.service import measure_listeners

    sys.setswitchinterval(SWITCH_SECONDS)
    synthesizer = open_model()
    if settings.listeners is None:
        log.info("measuring how many requests this machine can speak at a time")
        listeners = measure_listeners(synthesizer, settings.capacity)
        settings = settings.model_copy(update={"listeners": listeners})
    app = create_app(synthesizer, settings, open_model)
    del synthesizer  # so that it can leave memory
    log.info("warming up")
    app.state.service.warm_up()
    with closing(app.state.service), Server(app, *address, has_sessions=True, certificate=certificate) as server:
        signal.signal(signal.SIGTERM, interrupt)
        log.info(
            f"model {model}, {settings.listeners} requests at a time, {settings.capacity} rows, "
            f"voices in {settings.voices_folder}"
        )
        with suppress(KeyboardInterrupt):
            server.serve(on_start=lambda: say(server.address))


def serve_mcp(open_model: OpenModel, settings: ServeSettings) -> None:
    """Serve MCP until standard input ends."""
    check_installed(("mcp",), "mcp")
    from marstts.server.mcp_tools import mcp_server
    from marstts.server.service import SpeechService

    with closing(SpeechService(open_model(), settings, open_model)) as service, suppress(KeyboardInterrupt):
        mcp_server(service).run("stdio")


def check_voices_folder(folder: Path, *, is_stated: bool) -> None:
    """Raise ConfigError where no voice can be written; a warning where the folder was not `is_stated` or has voices.

    Nothing is left behind: the folder is made with the first voice.
    """
    parent = folder.absolute()
    while not os.path.lexists(parent):
        parent = parent.parent
    try:
        TemporaryDirectory(dir=parent, prefix=".marstts-").cleanup()
    except OSError as error:
        sentence = f"--voices {printable_name(folder)}: no voice can be written there: {describe_os_error(error)}"
        if not is_stated or any(folder.glob(f"**/*{VOICE_SUFFIX}")):
            log.warning(f"{sentence}; none can be uploaded")
            return
        raise ConfigError(f"{sentence}; name another folder") from error


def keys_of(given: Sequence[str] | None, path: Path | None) -> tuple[str, ...]:
    """The callers' keys, of the options or of the environment, and of the file."""
    variable = os.environ.get(KEY_VARIABLE)
    own = given or ([] if variable is None else [variable])
    return (*own, *([] if path is None else read_keys(path)))


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
