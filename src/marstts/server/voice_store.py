"""Voices of the server: those in the package, OpenAI's names for them, and uploaded ones, each a file.

Upstream: the endpoints.  Downstream: `synthesis.clone.voice_folder`, one folder for each owner.

Voices without a key's owner are in the folder itself, by default that of the user's own voices, so that what the
commands make is here at once. A voice keeps its reference, so that the next model can clone it again.
"""

from __future__ import annotations

import io
import threading
import warnings
from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from marstts import audio
from marstts.errors import AudioError, MarsError, TextError, VoiceError
from marstts.server.api_errors import ApiError, storage_error
from marstts.server.callers import Caller, owners
from marstts.server.settings import ServeLimits
from marstts.synthesis.clone.packaged import OPENAI_VOICES, packaged_name, voice_table
from marstts.synthesis.clone.voice_folder import (
    ID,
    FolderFullError,
    KeptVoice,
    UnknownVoiceError,
    VoiceFolder,
    VoiceNameError,
    match,
)
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice, average_voice, mix_voices

T = TypeVar("T")

OPEN_VOICES = 64
"""Opened voices that are kept in memory, without their references."""


@dataclass(frozen=True, kw_only=True)
class StoredVoice(KeptVoice):
    """An uploaded voice as it is listed."""

    owner: str
    """Whose voice it is: `Caller.owner`."""

    def as_object(self) -> dict[str, object]:
        """OpenAI's object for a voice, and more."""
        return {
            "object": "audio.voice",
            "id": self.id,
            "name": self.name,
            "created_at": self.created_at,
            "kind": self.kind,
            "prefix": self.prefix,
            "consent": self.consent,
        }


class VoiceStore:
    """All voices that requests can name, each seen by its owner; its methods may be called from any thread."""

    def __init__(self, synthesizer: Synthesizer, folder: Path, limits: ServeLimits) -> None:
        self._folder, self._limits = folder, limits
        self._model: Synthesizer | None = synthesizer
        self._lock = threading.Lock()
        self._opened: OrderedDict[str | StoredVoice, Voice] = OrderedDict()
        self._packaged = {entry.name: entry.description for entry in voice_table().voices}
        self._folders: dict[str, VoiceFolder] = {}
        self._all()  # so that files that cannot be read are named at the start

    def use_model(self, synthesizer: Synthesizer | None) -> None:
        """Make voices ready for this model from now on; None: there is no model in memory."""
        with self._lock:
            self._model = synthesizer
            self._opened.clear()

    @property
    def _synthesizer(self) -> Synthesizer:
        model = self._model
        assert model is not None, "users of the model keep it in memory"
        return model

    def __len__(self) -> int:
        """Return the number of uploaded voices."""
        return len(self._all())

    def objects(self, caller: Caller) -> list[dict[str, object]]:
        """Objects of all voices of a caller: packaged ones, OpenAI's names, uploaded ones."""
        packaged = [packaged_object(name, description) for name, description in self._packaged.items()]
        aliases = [packaged_object(name, f"alias of {voice}") for name, voice in OPENAI_VOICES.items()]
        return [*packaged, *aliases, *(voice.as_object() for voice in self.uploaded(caller))]

    def uploaded(self, caller: Caller) -> list[StoredVoice]:
        """Uploaded voices of a caller, the oldest first; an administrator's own ones before those of others."""
        own = self._all() if caller.is_admin else self._of(caller.owner)
        return sorted(own, key=lambda voice: (voice.owner != caller.owner, voice.created_at, voice.id))

    def resolve(self, name: str, caller: Caller) -> str:
        """The packaged voice or the id for a name, alias or id, in any case; ApiError where there is none.

        A name in its own case comes before those of other case.
        """
        if name in self._packaged:
            return name
        if name in OPENAI_VOICES:
            return OPENAI_VOICES[name]
        found = match(self.uploaded(caller), name)
        if found is None and (packaged := packaged_name(name)) is not None:
            return packaged
        if found is None:
            raise ApiError(
                400,
                f"There is no voice {name[:80]!r}; the list of voices (GET /v1/audio/voices) has all names.",
                param="voice",
                code="voice_not_found",
            )
        return found.id

    def open(self, key: str) -> Voice:
        """The voice that `resolve` found, ready for the model."""
        stored = next((voice for voice in self._all() if voice.id == key), None) if ID.fullmatch(key) else None
        if stored is None and ID.fullmatch(key):
            raise VoiceError("the voice was deleted before it could speak; name another one")
        known = key if stored is None else stored  # with its name, so that a renamed voice is opened anew
        with self._lock:
            if known in self._opened:
                self._opened.move_to_end(known)
                return self._opened[known]
        path = None if stored is None else self._folder_of(stored.owner).path_of(stored)
        voice = replace(self._synthesizer.open_voice(path or key), reference=b"")
        with self._lock:
            self._opened[known] = voice
            while len(self._opened) > OPEN_VOICES:
                self._opened.popitem(last=False)
        return voice

    def create(
        self, name: str, recordings: Sequence[bytes], transcript: str, consent: str, caller: Caller
    ) -> tuple[StoredVoice, list[str]]:
        """`create_in_steps` at once -> the voice, and warnings about the recordings."""
        steps = self.create_in_steps(name, recordings, transcript, consent, caller)
        while (ended := next_step(steps)) is None:
            pass
        return ended[0]

    def create_in_steps(
        self, name: str, recordings: Sequence[bytes], transcript: str, consent: str, caller: Caller
    ) -> Generator[None, None, tuple[StoredVoice, list[str]]]:
        """Clone recordings of one speaker and keep the voice -> the voice, and warnings about the recordings.

        Yields between two recordings, of which one at a time is decoded, so that others' come between. One thread at a
        time may be at work here: warnings are caught for the whole process. The transcript is that of the first
        recording. Raises ApiError where a field is not as it must be, AudioError or TextError for unusable recordings.
        """
        folder = self._folder_of(caller.owner)
        with folder_errors():
            folder.check_free(name)
            folder.check_room(self._limits.voices)
        self._check_texts(transcript, consent)
        clones: list[Voice] = []
        seconds, found, limit = 0.0, [], self._limits.recordings_seconds
        for number, recording in enumerate(recordings, start=1):
            with numbered(number, len(recordings)), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                waveform = audio.read(io.BytesIO(recording), max_seconds=self._limits.upload_seconds)
                seconds += waveform.seconds
                if number > 1 and seconds > limit:
                    raise AudioError(
                        f"with it, the recordings have more than {limit:.0f} s; give fewer or shorter ones"
                    )
                is_first = number == 1
                words = (transcript.strip() or None) if is_first else None
                clone = self._synthesizer.clone(waveform, words, name=name, consent=consent, keep_reference=is_first)
                clones.append(clone)
            found += [str(warning.message) for warning in caught]
            if number < len(recordings):
                del waveform
                yield
        with folder_errors():
            kept = folder.add(average_voice(clones), limit=self._limits.voices)
        return stored_voice(kept, caller.owner), found

    def mix(self, name: str, shares: Mapping[str, float], consent: str, caller: Caller) -> StoredVoice:
        """Mix voices, each with its share, and keep the new one; ApiError or VoiceError where that cannot be."""
        folder = self._folder_of(caller.owner)
        with folder_errors():
            folder.check_free(name)
            folder.check_room(self._limits.voices)
        parts = [(self.open(self.resolve(voice, caller)), share) for voice, share in shares.items()]
        mixed = mix_voices(parts, name)
        consent = consent.strip() or mixed.consent or "a mix of packaged voices"
        self._check_texts("", consent)
        with folder_errors():
            return stored_voice(folder.add(replace(mixed, consent=consent), limit=self._limits.voices), caller.owner)

    def rename(self, voice_id: str, name: str, caller: Caller) -> StoredVoice:
        """Give an uploaded voice another name."""
        stored = self.find(voice_id, caller)
        with folder_errors():
            return stored_voice(self._folder_of(stored.owner).rename(stored.id, name), stored.owner)

    def delete(self, voice_id: str, caller: Caller) -> StoredVoice:
        """Delete the file of an uploaded voice; requests that speak with it continue."""
        stored = self.find(voice_id, caller)
        with folder_errors():
            self._folder_of(stored.owner).delete(stored.id)
        return stored

    def find(self, voice_id: str, caller: Caller) -> StoredVoice:
        """The caller's uploaded voice with this id or name; ApiError 404 where there is none."""
        found = match(self.uploaded(caller), voice_id)
        if found is None:
            raise not_found()
        return found

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

    def _folder_of(self, owner: str) -> VoiceFolder:
        with self._lock:
            return self._folders.setdefault(owner, VoiceFolder(self._folder / owner))

    def _of(self, owner: str) -> list[StoredVoice]:
        return [stored_voice(kept, owner) for kept in self._folder_of(owner).entries()]

    def _all(self) -> list[StoredVoice]:
        return [voice for owner in owners(self._folder) for voice in self._of(owner)]


def next_step(steps: Generator[None, None, T]) -> tuple[T] | None:
    """Run a generator to where it yields, or to its end -> what it returns there."""
    try:
        return next(steps)
    except StopIteration as end:
        return (end.value,)


class CallersVoices(Mapping[str, Voice]):
    """The voices that the text of a caller may name; each is opened when it is asked for."""

    def __init__(self, store: VoiceStore, caller: Caller, cast: Mapping[str, str]) -> None:
        """`cast`: voices by names of the request; ApiError where there is no such voice."""
        self._store, self._caller = store, caller
        self._cast = {name: store.resolve(voice, caller) for name, voice in cast.items()}

    def __getitem__(self, name: str) -> Voice:
        if name in self._cast:
            return self._store.open(self._cast[name])
        try:
            return self._store.open(self._store.resolve(name, self._caller))
        except ApiError as error:
            raise KeyError(name) from error

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._cast, *(voice.name for voice in self._store.uploaded(self._caller))]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@contextmanager
def numbered(number: int, num_recordings: int) -> Iterator[None]:
    """Name the recording in an error about it, where there are several."""
    try:
        yield
    except (AudioError, TextError) as error:
        if num_recordings == 1:
            raise
        raise type(error)(f"recording {number}: {error}") from error


def packaged_object(name: str, description: str) -> dict[str, object]:
    """OpenAI's object for a packaged voice or an alias of one."""
    return {"object": "audio.voice", "id": name, "name": name, "created_at": 0, "description": description}


def stored_voice(kept: KeptVoice, owner: str) -> StoredVoice:
    """A voice of a folder as that of an owner."""
    return StoredVoice(**vars(kept), owner=owner)


def not_found() -> ApiError:
    """The error for a voice that the caller does not have."""
    return ApiError(404, "There is no uploaded voice with this id.", param="voice_id", code="voice_not_found")


@contextmanager
def folder_errors() -> Iterator[None]:
    """Errors of a folder of voices as those of a request; failures of the disk have status 507 and name no path."""
    try:
        yield
    except VoiceNameError as error:
        raise ApiError(400, f"name: {error}.", param="name") from error
    except FolderFullError as error:
        raise ApiError(400, f"This server is full: {error}.") from error
    except UnknownVoiceError as error:
        raise not_found() from error
    except (MarsError, OSError) as error:
        raise storage_error(error) from error
