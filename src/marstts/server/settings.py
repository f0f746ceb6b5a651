"""Settings and limits of the speech server.

Upstream: the command line, or any caller of `app.create_app`.  Downstream: every module of the server.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from marstts.io.config import Config


class ServeLimits(Config):
    """Bounds on requests. They are published in docs/serving.md."""

    input_characters: int = Field(4096, ge=1)
    """Longest text of a request, as OpenAI's."""

    audio_seconds: float = Field(900.0, gt=0.0)
    """Audio that a request or a session may ask for, pauses and speed included."""

    whole_audio_seconds: float = Field(3600.0, gt=0.0)
    """Audio of all whole files at work; further ones get status 429, since each is held in memory until its end."""

    json_bytes: int = Field(65_536, ge=1)
    """Largest JSON body."""

    upload_bytes: int = Field(10 * 2**20, ge=1)
    """Largest recording that is uploaded; its form may have 64 KiB more."""

    upload_seconds: float = Field(60.0, gt=0.0)
    """Longest recording, decoded."""

    recordings: int = Field(20, ge=1)
    """Recordings of one speaker in an upload; they count together as `upload_bytes`."""

    recordings_seconds: float = Field(180.0, gt=0.0)
    """Recordings of an upload together, decoded: each second of them keeps other uploads waiting."""

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

    adapts_places: bool = False
    """Speak more or fewer requests at a time as the machine is seen to make audio for them."""

    queue: int = Field(32, ge=0)
    """Requests that wait for a place; further ones get status 429."""

    max_wait_seconds: float = Field(10.0, gt=0.0)
    """A request that waited this long for a place gets status 429."""

    unload_after_seconds: float | None = Field(None, gt=0.0, le=30 * 24 * 3600.0)
    """The model leaves memory after this time without a request; the next request loads it again. None: it stays."""

    wyoming_port: int | None = Field(None, ge=0, le=65535)
    """Port for Wyoming, the protocol of Home Assistant; None: not served."""

    wyoming_host: str = "127.0.0.1"
    """Address for Wyoming, which has no keys."""

    voices_folder: Path | None = None
    """Folder of voices, which is created with the first one; None is that of the user's own voices."""

    api_keys: tuple[str, ...] = ()
    """Keys of callers, each with its own voices; without any, requests need no key."""

    admin_key: str | None = None
    """A key for the voices of all keys, and for those that were made without a key."""

    allowed_hosts: tuple[str, ...] = ()
    """Values of the header `Host` that are served, without port; empty: all. Guards a server without keys on loopback
    against pages of other sites that use another host name for it (DNS rebinding)."""

    private_hosts_only: bool = False
    """Serve only addresses and names of private networks, besides `allowed_hosts`: the same guard on a network."""

    cors_origins: tuple[str, ...] = ()
    """Origins of other sites whose pages may use this server, such as https://example.org."""

    drain_seconds: int = Field(10, ge=0)
    """Time that responses have to end after the server receives a signal to stop."""

    limits: ServeLimits = ServeLimits()

    @model_validator(mode="after")
    def _check_keys(self) -> ServeSettings:
        """Headers can hold every key, and no key has two meanings."""
        for key in (*self.api_keys, *([] if self.admin_key is None else [self.admin_key])):
            check_key(key)
        if self.admin_key in self.api_keys:
            raise ValueError("--admin-key is also a key of --api-key or of --api-keys-file; choose another one")
        return self


def check_key(key: str) -> None:
    """ValueError unless a header can hold the key."""
    if not key:
        raise ValueError("an API key is empty; give one of letters, digits and marks, or none at all")
    if not all("!" <= character <= "~" for character in key):
        raise ValueError("an API key has a blank or a character beyond ASCII; use letters, digits and marks alone")
