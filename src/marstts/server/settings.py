"""Settings and limits of the speech server.

Upstream: the command line, or any caller of `app.create_app`.  Downstream: every module of the server.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from marstts.io.config import Config

DEFAULT_VOICES_FOLDER = Path("voices")


class ServeLimits(Config):
    """Bounds on requests. They are published in docs/serving.md."""

    input_characters: int = Field(4096, ge=1)
    """Longest text of a request, as OpenAI's."""

    json_bytes: int = Field(65_536, ge=1)
    """Largest JSON body."""

    upload_bytes: int = Field(10 * 2**20, ge=1)
    """Largest recording that is uploaded; its form may have 64 KiB more."""

    upload_seconds: float = Field(60.0, gt=0.0)
    """Longest recording, decoded."""

    transcript_characters: int = Field(400, ge=1)
    """Longest transcript of an uploaded recording."""

    consent_characters: int = Field(500, ge=1)
    """Longest statement of consent."""

    voices: int = Field(1000, ge=0)
    """Uploaded voices that are kept."""

    body_seconds: float = Field(20.0, gt=0.0)
    """A body that takes longer to arrive is refused."""

    first_audio_seconds: float = Field(30.0, gt=0.0)
    """A request without audio after this time is ended; the time that it waited for a place counts."""

    seconds_per_audio_second: float = Field(3.0, gt=0.0)
    """Once audio is expected, a request may take this many times the expected length, and 10 s more."""

    connections: int = Field(256, ge=1)
    """Further connections get status 503."""


class ServeSettings(Config):
    """Settings of the server."""

    capacity: int = Field(16, ge=1, le=256)
    """Rows of the running batch. More rows make more audio per second, and first audio later: a patch takes longer."""

    listeners: int | None = Field(None, ge=1, le=256)
    """Requests that are spoken at a time; rows beyond `capacity` take turns. None: as many as `capacity`."""

    queue: int = Field(32, ge=0)
    """Requests that wait for a place; further ones get status 429."""

    max_wait_seconds: float = Field(10.0, gt=0.0)
    """A request that waited this long for a place gets status 429."""

    wyoming_port: int | None = Field(None, ge=0, le=65535)
    """Port for Wyoming, the protocol of Home Assistant; None: not served."""

    wyoming_host: str = "127.0.0.1"
    """Address for Wyoming, which has no keys."""

    voices_folder: Path = DEFAULT_VOICES_FOLDER
    """Folder of uploaded voices; it is created with the first voice."""

    api_keys: tuple[str, ...] = ()
    """Keys of callers; without any, requests need no key."""

    allowed_hosts: tuple[str, ...] = ()
    """Values of the header `Host` that are served, without port; empty: all. Guards a server without keys on loopback
    against pages of other sites that use another host name for it (DNS rebinding)."""

    drain_seconds: int = Field(10, ge=0)
    """Time that responses have to end after the server receives a signal to stop."""

    limits: ServeLimits = ServeLimits()
