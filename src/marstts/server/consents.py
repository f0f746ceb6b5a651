"""Consent recordings: speakers who say that their voice may be cloned, in the shape of OpenAI's API.

Upstream: the endpoints.  Downstream: two files for each, `cons_….json` and `cons_….flac`, and what a voice keeps of it.
Whether the speaker of a consent is the one who is cloned is not checked: people must listen to it.
"""

from __future__ import annotations

import hashlib
import io
import logging
import re
import secrets
import string
import threading
import time
from pathlib import Path

from pydantic import Field

from marstts import audio
from marstts.audio import encode
from marstts.errors import FileError, MarsError
from marstts.io.config import Config
from marstts.io.file_errors import printable_name
from marstts.io.files import write_file
from marstts.io.reading import read_text
from marstts.server.api_errors import ApiError, storage_errors
from marstts.server.settings import ServeLimits

log = logging.getLogger(__name__)

ID = re.compile(r"cons_[a-z0-9]{26}")
LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8}){0,4}")
NAME_CHARACTERS = 64
MAX_ENTRY_BYTES = 4096


class Consent(Config):
    """A consent recording as it is listed and kept."""

    id: str = Field(pattern=f"^{ID.pattern}$")
    name: str = Field(min_length=1, max_length=NAME_CHARACTERS)

    language: str = Field(max_length=40)
    """BCP 47, such as en-US."""

    created_at: int = Field(ge=0)
    """Unix time, seconds."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """Hash of the recording as it was uploaded."""

    def as_object(self) -> dict[str, object]:
        """OpenAI's object for a consent recording."""
        fields = {"id": self.id, "name": self.name, "language": self.language, "created_at": self.created_at}
        return {"object": "audio.voice_consent", **fields}

    @property
    def statement(self) -> str:
        """The text that the voice file of a clone keeps."""
        return f"Consent recording {self.id}, {self.name!r}, {self.language}, SHA-256 {self.sha256}"


class ConsentStore:
    """All consent recordings of a server; its methods may be called from any thread."""

    def __init__(self, folder: Path, limits: ServeLimits) -> None:
        self._folder, self._limits = folder, limits
        self._lock = threading.Lock()
        self._known = read_folder(folder)

    def all(self) -> list[Consent]:
        """All consents, the oldest first."""
        with self._lock:
            return sorted(self._known.values(), key=lambda consent: (consent.created_at, consent.id))

    def create(self, name: str, recording: bytes, language: str) -> Consent:
        """Keep a recording. ApiError where a field is not as it must be, AudioError for unusable recordings."""
        check_name(name)
        if not LANGUAGE.fullmatch(language):
            raise ApiError(400, "language: expected a BCP 47 tag such as en-US.", param="language")
        if len(self.all()) >= self._limits.voices:
            raise ApiError(400, f"This server keeps at most {self._limits.voices} consents; delete one first.")
        waveform = audio.read(io.BytesIO(recording), max_seconds=self._limits.upload_seconds)
        letters = string.ascii_lowercase + string.digits
        consent = Consent(
            id="cons_" + "".join(secrets.choice(letters) for _ in range(26)),
            name=name,
            language=language,
            created_at=int(time.time()),
            sha256=hashlib.sha256(recording).hexdigest(),
        )
        path = self._folder / f"{consent.id}.flac"
        with storage_errors():
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                write_file(path, encode(waveform, ".flac"))
                self._write(consent)  # last: without it, there is no consent
            except BaseException:
                path.unlink(missing_ok=True)
                raise
        return consent

    def find(self, consent_id: str) -> Consent:
        """The consent with this id; ApiError 404 where there is none."""
        with self._lock:
            found = self._known.get(consent_id)
        if found is None:
            raise ApiError(
                404, "There is no consent recording with this id.", param="consent_id", code="consent_not_found"
            )
        return found

    def rename(self, consent_id: str, name: str) -> Consent:
        """Give a consent another name."""
        check_name(name)
        renamed = self.find(consent_id).model_copy(update={"name": name})
        with storage_errors():
            self._write(renamed)
        return renamed

    def delete(self, consent_id: str) -> Consent:
        """Delete a consent with its recording; voices that were made with it stay."""
        found = self.find(consent_id)
        with self._lock:
            self._known.pop(found.id, None)
        for suffix in (".json", ".flac"):
            (self._folder / f"{found.id}{suffix}").unlink(missing_ok=True)
        return found

    def statement(self, consent: str) -> str:
        """The statement for a voice's field `consent`, which may be the id of a recording; ApiError 404."""
        return self.find(consent).statement if ID.fullmatch(consent) else consent

    def _write(self, consent: Consent) -> None:
        write_file(self._folder / f"{consent.id}.json", consent.model_dump_json() + "\n")
        with self._lock:
            self._known[consent.id] = consent


def check_name(name: str) -> None:
    """Raise ApiError where a consent cannot have this name."""
    if not 1 <= len(name) <= NAME_CHARACTERS or not name.isprintable():
        raise ApiError(400, f"name: expected 1 to {NAME_CHARACTERS} printable characters.", param="name")


def read_folder(folder: Path) -> dict[str, Consent]:
    """All consents of a folder; what is none is left alone, with a warning."""
    found: dict[str, Consent] = {}
    for path in sorted(folder.glob("cons_*.json")) if folder.is_dir() else ():
        if ID.fullmatch(path.stem):
            try:
                consent = Consent.model_validate_json(read_text(path, MAX_ENTRY_BYTES, FileError))
            except (MarsError, ValueError):
                log.warning(f"left out: {printable_name(path)} is no entry of a consent recording")
                continue
            if consent.id == path.stem:
                found[consent.id] = consent
    return found
