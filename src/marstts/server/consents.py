"""Consent recordings: speakers who say that their voice may be cloned, in the shape of OpenAI's API.

Upstream: the endpoints.  Downstream: two files for each, `cons_….json` and `cons_….flac`, and what a voice keeps of it.
Whether the speaker of a consent is the one who is cloned is not checked: people must listen to it.
"""

from __future__ import annotations

import hashlib
import io
import logging
import re
import threading
import time
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from marstts import audio
from marstts.audio import encode
from marstts.errors import FileError, MarsError
from marstts.io.config import Config
from marstts.io.reading import printable_name, read_text
from marstts.server.api_errors import ApiError, storage_errors
from marstts.server.callers import Caller, owners
from marstts.server.private_files import NAME_CHARACTERS, check_name, make_private, new_id, write_private
from marstts.server.settings import ServeLimits

log = logging.getLogger(__name__)

ID = re.compile(r"cons_[a-z0-9]{26}")
LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8}){0,4}")
FOLDER = "consents"
"""Folder of an owner's consents, next to the voices."""

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

    owner: str = Field("", exclude=True)
    """Whose it is: `Caller.owner`, the folder that it is kept in."""

    def as_object(self) -> dict[str, object]:
        """OpenAI's object for a consent recording."""
        fields = {"id": self.id, "name": self.name, "language": self.language, "created_at": self.created_at}
        return {"object": "audio.voice_consent", **fields}

    @property
    def statement(self) -> str:
        """The text that the voice file of a clone keeps."""
        return f"Consent recording {self.id}, {self.name!r}, {self.language}, SHA-256 {self.sha256}"


class ConsentStore:
    """All consent recordings of a server, each seen by its owner; its methods may be called from any thread."""

    def __init__(self, folder: Path, limits: ServeLimits) -> None:
        """`folder`: that of the voices; each owner's consents are in a folder in it."""
        self._folder, self._limits = folder, limits
        self._lock = threading.RLock()
        """Held while files change, so that a deleted consent does not come back."""
        self._known = read_folders(folder)

    def all(self, caller: Caller) -> list[Consent]:
        """All consents of a caller, the oldest first."""
        with self._lock:
            own = [consent for consent in self._known.values() if caller.may_use(consent.owner)]
        return sorted(own, key=lambda consent: (consent.created_at, consent.id))

    def create(self, name: str, recording: bytes, language: str, caller: Caller) -> Consent:
        """Keep a recording. ApiError where a field is not as it must be, AudioError for unusable recordings."""
        check_name(name)
        if not LANGUAGE.fullmatch(language):
            raise ApiError(400, "language: expected a BCP 47 tag such as en-US.", param="language")
        with self._lock:
            num_kept = sum(consent.owner == caller.owner for consent in self._known.values())
        if num_kept >= self._limits.voices:
            raise ApiError(400, f"This server keeps at most {self._limits.voices} consents; delete one first.")
        waveform = audio.read(io.BytesIO(recording), max_seconds=self._limits.upload_seconds)
        consent = Consent(
            id=new_id("cons_"),
            name=name,
            language=language,
            created_at=max(0, int(time.time())),  # clocks without a battery begin in 1970 or before
            sha256=hashlib.sha256(recording).hexdigest(),
            owner=caller.owner,
        )
        path = self._path(consent, ".flac")
        try:
            write_private(path, encode(waveform, ".flac"))
            self._write(consent)  # last: without it, there is no consent
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise
        return consent

    def find(self, consent_id: str, caller: Caller) -> Consent:
        """The caller's consent with this id; ApiError 404 where there is none."""
        with self._lock:
            consent = self._known.get(consent_id)
        if consent is None or not caller.may_use(consent.owner):
            raise ApiError(
                404, "There is no consent recording with this id.", param="consent_id", code="consent_not_found"
            )
        return consent

    def rename(self, consent_id: str, name: str, caller: Caller) -> Consent:
        """Give a consent another name."""
        check_name(name)
        with self._lock:
            renamed = self.find(consent_id, caller).model_copy(update={"name": name})
            self._write(renamed)
        return renamed

    def delete(self, consent_id: str, caller: Caller) -> Consent:
        """Delete a consent with its recording; voices that were made with it stay."""
        with self._lock:
            consent = self.find(consent_id, caller)
            with storage_errors():
                for suffix in (".json", ".flac"):
                    self._path(consent, suffix).unlink(missing_ok=True)
            del self._known[consent.id]
        return consent

    def statement(self, consent: str, caller: Caller) -> str:
        """The statement for a voice's field `consent`, which may be the id of a recording; ApiError 404."""
        return self.find(consent, caller).statement if ID.fullmatch(consent) else consent

    def _write(self, consent: Consent) -> None:
        with self._lock:
            write_private(self._path(consent, ".json"), f"{consent.model_dump_json()}\n".encode())
            self._known[consent.id] = consent

    def _path(self, consent: Consent, suffix: str) -> Path:
        return self._folder / consent.owner / FOLDER / f"{consent.id}{suffix}"


def read_folders(folder: Path) -> dict[str, Consent]:
    """The consents of all owners; what is none is left alone, with a warning."""
    found: dict[str, Consent] = {}
    for owner in owners(folder):
        own = folder / owner / FOLDER
        for path in sorted(own.glob("cons_*.json")) if own.is_dir() else ():
            if ID.fullmatch(path.stem):
                try:
                    consent = Consent.model_validate_json(read_text(path, MAX_ENTRY_BYTES, FileError))
                except (MarsError, ValueError):
                    log.warning(f"left out: {printable_name(path)} is no entry of a consent recording")
                    continue
                if consent.id == path.stem:
                    found[consent.id] = consent.model_copy(update={"owner": owner})
                    make_private(path)
                    make_private(path.with_suffix(".flac"))
    return found
