"""Voices of the server: those in the package, OpenAI's names for them, and uploaded ones, each a file.

Upstream: the endpoints.  Downstream: voice files in one folder.

A file's name is an id that was made here; no name that came from outside is part of a path. The folder is read once,
so one process writes to it. A voice keeps its reference, so that the next model can clone it again.
"""

from __future__ import annotations

import io
import logging
import os
import re
import threading
import time
import unicodedata
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from marstts import audio
from marstts.errors import AudioError, MarsError, TextError, VoiceError
from marstts.server.api_errors import ApiError, storage_errors
from marstts.server.callers import Caller, owners
from marstts.server.private_files import check_name, make_private, new_id, write_private
from marstts.server.settings import ServeLimits
from marstts.synthesis.clone.voices import VOICE_SUFFIX, voice_table
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice, average_voice

log = logging.getLogger(__name__)

OPENAI_VOICES = {
    "alloy": "ada",
    "ash": "ross",
    "ballad": "alan",
    "cedar": "kal",
    "coral": "linda",
    "echo": "ross",
    "fable": "emma",
    "marin": "nora",
    "nova": "linda",
    "onyx": "kal",
    "sage": "nora",
    "shimmer": "emma",
    "verse": "ewan",
}
"""OpenAI's voice names and the packaged voices that stand for them."""

ID = re.compile(r"voice_[a-z0-9]{26}")
OPEN_VOICES = 64
"""Opened voices that are kept in memory, without their references."""


@dataclass(frozen=True, kw_only=True)
class StoredVoice:
    """An uploaded voice as it is listed."""

    id: str
    name: str
    created_at: int
    """Unix time, seconds."""

    is_deep: bool
    """Whether it was made with a transcript."""

    prefix: str
    """The words that a deep voice continues from; empty for a shallow one."""

    consent: str

    owner: str
    """Whose voice it is: `Caller.owner`."""

    def as_object(self) -> dict[str, object]:
        """OpenAI's object for a voice, and more."""
        return {
            "object": "audio.voice",
            "id": self.id,
            "name": self.name,
            "created_at": self.created_at,
            "kind": "deep" if self.is_deep else "shallow",
            "prefix": self.prefix,
            "consent": self.consent,
        }


class VoiceStore:
    """All voices that requests can name, each seen by its owner; its methods may be called from any thread."""

    def __init__(self, synthesizer: Synthesizer, folder: Path, limits: ServeLimits) -> None:
        self._synthesizer, self._folder, self._limits = synthesizer, folder, limits
        self._lock = threading.Lock()
        self._changing = threading.Lock()
        """Held while a file is renamed or deleted, so that a deleted voice does not come back."""
        self._opened: OrderedDict[str, Voice] = OrderedDict()
        self._packaged = {entry.name: entry.description for entry in voice_table().voices}
        self._stored = read_folders(folder)

    def __len__(self) -> int:
        """Return the number of uploaded voices."""
        return len(self._stored)

    def objects(self, caller: Caller) -> list[dict[str, object]]:
        """Objects of all voices of a caller: packaged ones, OpenAI's names, uploaded ones."""
        packaged = [packaged_object(name, description) for name, description in self._packaged.items()]
        aliases = [packaged_object(name, f"alias of {voice}") for name, voice in OPENAI_VOICES.items()]
        return [*packaged, *aliases, *(voice.as_object() for voice in self.uploaded(caller))]

    def uploaded(self, caller: Caller) -> list[StoredVoice]:
        """Uploaded voices of a caller, the oldest first; an administrator's own ones before those of others."""
        with self._lock:
            own = [voice for voice in self._stored.values() if caller.may_use(voice.owner)]
        return sorted(own, key=lambda voice: (voice.owner != caller.owner, voice.created_at, voice.id))

    def resolve(self, name: str, caller: Caller) -> str:
        """The packaged voice or the id for a name, alias or id; ApiError `voice_not_found` where there is none."""
        if name in self._packaged:
            return name
        if name in OPENAI_VOICES:
            return OPENAI_VOICES[name]
        found = self._find(name, caller)
        if found is None:
            raise ApiError(
                400,
                f"There is no voice {name[:80]!r}; GET /v1/audio/voices lists all.",
                param="voice",
                code="voice_not_found",
            )
        return found.id

    def open(self, key: str) -> Voice:
        """The voice that `resolve` found, ready for the model."""
        with self._lock:
            if key in self._opened:
                self._opened.move_to_end(key)
                return self._opened[key]
            stored = self._stored.get(key)
        if stored is None and ID.fullmatch(key):
            raise VoiceError("the voice was deleted before it could speak; name another one")
        voice = replace(self._synthesizer.open_voice(key if stored is None else self._path(stored)), reference=b"")
        with self._lock:
            self._opened[key] = voice
            while len(self._opened) > OPEN_VOICES:
                self._opened.popitem(last=False)
        return voice

    def create(
        self, name: str, recordings: Sequence[bytes], transcript: str, consent: str, caller: Caller
    ) -> tuple[StoredVoice, list[str]]:
        """Clone recordings of one speaker and keep the voice -> the voice, and warnings about the recordings.

        The transcript is that of the first recording.
        Raises ApiError where a field is not as it must be, AudioError or TextError for unusable recordings.
        """
        check_name(name)
        with self._lock:
            self._check_free(name, caller.owner)
            self._check_room(caller.owner)
        self._check_texts(transcript, consent)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            clones = []
            for number, recording in enumerate(recordings, start=1):
                with numbered(number, len(recordings)):
                    waveform = audio.read(io.BytesIO(recording), max_seconds=self._limits.upload_seconds)
                    words = transcript.strip() or None if number == 1 else None
                    clone = self._synthesizer.clone(
                        waveform, words, name=name, consent=consent, keep_reference=number == 1
                    )
                    clones.append(clone)
        return self._keep(average_voice(clones), caller.owner), [str(warning.message) for warning in caught]

    def rename(self, voice_id: str, name: str, caller: Caller) -> StoredVoice:
        """Give an uploaded voice another name."""
        check_name(name)
        with self._changing:
            stored = self.find(voice_id, caller)
            renamed = replace(stored, name=name)
            with self._lock:  # the name is taken before the file is written, so that no other voice gets it meanwhile
                if composed(name) != composed(stored.name):
                    self._check_free(name, stored.owner)
                self._stored[stored.id] = renamed
            try:
                path = self._path(stored)
                write_private(path, replace(Voice.load(path), name=name).to_bytes())
                os.utime(path, (stored.created_at, stored.created_at))  # the time of the file is that of the voice
            except BaseException:
                with self._lock:
                    self._stored[stored.id] = stored
                raise
            with self._lock:
                self._opened.pop(stored.id, None)
        return renamed

    def delete(self, voice_id: str, caller: Caller) -> StoredVoice:
        """Delete the file of an uploaded voice; requests that speak with it continue."""
        with self._changing:
            stored = self.find(voice_id, caller)
            with storage_errors():
                self._path(stored).unlink(missing_ok=True)
            with self._lock:
                self._stored.pop(stored.id, None)
                self._opened.pop(stored.id, None)
        return stored

    def find(self, voice_id: str, caller: Caller) -> StoredVoice:
        """The caller's uploaded voice with this id or name; ApiError 404 where there is none."""
        found = self._find(voice_id, caller)
        if found is None:
            raise ApiError(404, "There is no uploaded voice with this id.", param="voice_id", code="voice_not_found")
        return found

    def _find(self, name: str, caller: Caller) -> StoredVoice | None:
        matches = (
            voice for voice in self.uploaded(caller) if name == voice.id or composed(name) == composed(voice.name)
        )
        return next(matches, None)

    def _check_texts(self, transcript: str, consent: str) -> None:
        if not consent.strip() or len(consent) > self._limits.consent_characters:
            raise ApiError(
                400,
                "consent: expected a sentence that states who agreed to this voice being cloned, and how, of at most "
                f"{self._limits.consent_characters} characters.",
                param="consent",
            )
        if len(transcript) > self._limits.transcript_characters:
            limit = self._limits.transcript_characters
            raise ApiError(400, f"transcript: expected at most {limit} characters.", param="transcript")

    def _keep(self, voice: Voice, owner: str) -> StoredVoice:
        stored = describe(new_id("voice_"), voice, max(0.0, time.time()), owner)
        with self._lock:  # another caller may have taken the name, or the last place, while this voice was made
            self._check_free(voice.name, owner)
            self._check_room(owner)
            self._stored[stored.id] = stored
        try:
            write_private(self._path(stored), voice.to_bytes())
        except BaseException:
            with self._lock:
                self._stored.pop(stored.id, None)
            raise
        return stored

    def _check_free(self, name: str, owner: str) -> None:
        """ApiError where a voice of this owner has this name; call it under the lock."""
        taken = name in self._packaged or name in OPENAI_VOICES or ID.fullmatch(name) is not None
        own = (voice for voice in self._stored.values() if voice.owner == owner)
        if taken or any(composed(voice.name) == composed(name) for voice in own):
            raise ApiError(400, "name: there is a voice of this name; choose another one.", param="name")

    def _check_room(self, owner: str) -> None:
        if sum(voice.owner == owner for voice in self._stored.values()) >= self._limits.voices:
            raise ApiError(400, f"This server keeps at most {self._limits.voices} voices; delete one first.")

    def _path(self, voice: StoredVoice) -> Path:
        assert ID.fullmatch(voice.id), "ids are made here"
        return self._folder / voice.owner / f"{voice.id}{VOICE_SUFFIX}"


class CallersVoices(Mapping[str, Voice]):
    """The voices that the text of a caller may name; each is opened when it is asked for."""

    def __init__(self, store: VoiceStore, caller: Caller) -> None:
        self._store, self._caller = store, caller

    def __getitem__(self, name: str) -> Voice:
        try:
            return self._store.open(self._store.resolve(name, self._caller))
        except ApiError as error:
            raise KeyError(name) from error

    def __iter__(self) -> Iterator[str]:
        return (voice.name for voice in self._store.uploaded(self._caller))

    def __len__(self) -> int:
        return len(self._store.uploaded(self._caller))


@contextmanager
def numbered(number: int, num_recordings: int) -> Iterator[None]:
    """Name the recording in an error about it, where there are several."""
    try:
        yield
    except (AudioError, TextError) as error:
        if num_recordings == 1:
            raise
        raise type(error)(f"recording {number}: {error}") from error


def composed(name: str) -> str:
    """A name with composed letters: two spellings in Unicode of what reads the same are one name."""
    return unicodedata.normalize("NFC", name)


def packaged_object(name: str, description: str) -> dict[str, object]:
    """OpenAI's object for a packaged voice or an alias of one."""
    return {"object": "audio.voice", "id": name, "name": name, "created_at": 0, "description": description}


def describe(voice_id: str, voice: Voice, created: float, owner: str) -> StoredVoice:
    """The entry for a voice."""
    return StoredVoice(
        id=voice_id,
        name=voice.name,
        created_at=int(created),
        is_deep=voice.prefix is not None,
        prefix="" if voice.prefix is None else voice.prefix.transcript,
        consent=voice.consent,
        owner=owner,
    )


def read_folders(folder: Path) -> dict[str, StoredVoice]:
    """Entries of the voices of all owners; what is not a voice of a server is left alone, with a warning."""
    found: dict[str, StoredVoice] = {}
    for owner in owners(folder):
        own = folder / owner
        for path in sorted(own.glob(f"voice_*{VOICE_SUFFIX}")) if own.is_dir() else ():
            if ID.fullmatch(path.stem):
                try:
                    found[path.stem] = describe(path.stem, Voice.load(path), path.stat().st_mtime, owner)
                    make_private(path)
                except (MarsError, OSError) as error:
                    log.warning(f"left out: {error}")
    return found
