"""A folder of voices by their names: the user's own, which the commands, Python and the server share.

Upstream: `voice`, clones to keep.  Downstream: `voices`, which opens them by name; the server, which has a folder for
each key.

A file's name is an id that is made here; the voice's name is inside the file. So no name is ever part of a path.
Several processes may use a folder: each change holds it, and a folder that was changed is read again.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import string
import sys
import threading
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from marstts.errors import FileError, MarsError, VoiceError, did_you_mean
from marstts.io.files import hold_folder
from marstts.io.private_files import make_folder, make_private, write_private
from marstts.io.reading import os_errors, printable_text
from marstts.synthesis.clone.packaged import OPENAI_VOICES, VOICE_SUFFIX, packaged_name, packaged_names
from marstts.voice import Voice

log = logging.getLogger(__name__)

VARIABLE = "MARSTTS_VOICES"
"""Environment variable: the folder of the user's own voices."""

ID = re.compile(r"voice_[a-z0-9]{26}")
FILE_NAME = re.compile(ID.pattern + re.escape(VOICE_SUFFIX))
NAME_CHARACTERS = 64
RESERVED = frozenset({"default", "narrator", "dialogue"})
"""Names with a meaning of their own in texts and casts."""

HELD_SECONDS = 10.0
"""Time that a change waits for that of another process."""

SETTLED_NS = 2_000_000_000
"""The clock of a file system is coarse: a folder that was changed so shortly before it was read is read again."""


class VoiceNameError(VoiceError):
    """No voice can get this name, or a voice has it."""


class UnknownVoiceError(VoiceError):
    """No voice of the folder has this name or id."""


class FolderFullError(VoiceError):
    """The folder has as many voices as it may have."""


@dataclass(frozen=True, kw_only=True)
class KeptVoice:
    """A voice of the folder as it is listed."""

    id: str
    name: str
    created_at: int
    """Unix time, seconds."""

    is_deep: bool
    """Whether it was made with a transcript."""

    prefix: str
    """The words that a deep voice continues from; empty for a shallow one."""

    consent: str

    @property
    def kind(self) -> str:
        """Whether it is deep, in a word."""
        return "deep" if self.is_deep else "shallow"


ReadEntry = tuple[tuple[int, ...], KeptVoice | None]
UNREADABLE: ReadEntry = ((), None)
AnyKept = TypeVar("AnyKept", bound=KeptVoice)


class VoiceFolder(Mapping[str, Voice]):
    """The voices in a folder, by name; each is read when it is asked for. Methods may be called from any thread.

    As a mapping, it is an argument `voices` of `Synthesizer.speak`. Files that this class did not write are left alone.
    """

    def __init__(self, folder: Path | str | None = None) -> None:
        """The folder is made with its first voice; None is that of the user's own voices (`own_folder`)."""
        self.folder = own_folder() if folder is None else Path(folder)
        self._lock, self._changing = threading.Lock(), threading.Lock()
        self._read: dict[str, ReadEntry] = {}
        self._entries: dict[str, KeptVoice] = {}
        self._changed_ns: int | None = None

    def entries(self) -> list[KeptVoice]:
        """All voices, the oldest first."""
        return sorted(self._refreshed().values(), key=lambda voice: (voice.created_at, voice.id))

    def find(self, name: str) -> KeptVoice | None:
        """The voice with this name, in any case, or with this id."""
        return match(self.entries(), name)

    def path_of(self, voice: KeptVoice) -> Path:
        """The file of a voice."""
        assert ID.fullmatch(voice.id), "ids are made here"
        return self.folder / f"{voice.id}{VOICE_SUFFIX}"

    def add(self, voice: Voice, *, limit: int | None = None) -> KeptVoice:
        """Keep a voice under its name -> its entry.

        Raises VoiceNameError where that name is taken or no name for a voice, FolderFullError where there are `limit`
        voices already, FileError where the folder cannot be written.
        """
        check_name(voice.name)
        with self._held():
            self.check_free(voice.name)
            self.check_room(limit)
            entry = describe(new_id(), voice, max(0.0, time.time()))
            write_private(self.path_of(entry), voice.to_bytes())
        return entry

    def rename(self, name: str, new_name: str) -> KeptVoice:
        """Give the voice with this name or id another name -> its new entry; errors as `add`, and UnknownVoiceError."""
        check_name(new_name)
        self.require(name)
        with self._held():
            entry = self.require(name)
            if composed(new_name) != composed(entry.name):
                self.check_free(new_name)
            path = self.path_of(entry)
            write_private(path, replace(Voice.load(path), name=new_name).to_bytes())
            with os_errors(path):
                os.utime(path, (entry.created_at, entry.created_at))  # the time of the file is that of the voice
        return replace(entry, name=new_name)

    def delete(self, name: str) -> KeptVoice:
        """Delete the voice with this name or id -> what it was; UnknownVoiceError where there is none."""
        self.require(name)
        with self._held():
            entry = self.require(name)
            with os_errors(self.path_of(entry), "be deleted"):
                self.path_of(entry).unlink(missing_ok=True)
        return entry

    def check_free(self, name: str) -> None:
        """VoiceNameError where a voice of this folder has this name, or a packaged one."""
        check_name(name)
        if any(composed(entry.name) == composed(name) for entry in self.entries()):
            raise VoiceNameError("there is a voice of this name; choose another one, or delete that one first")

    def check_room(self, limit: int | None) -> None:
        """FolderFullError where there are `limit` voices."""
        if limit is not None and len(self) >= limit:
            raise FolderFullError(f"at most {limit} voices are kept here; delete one first")

    def __getitem__(self, name: str) -> Voice:
        entry = self.find(name)
        if entry is None:
            raise KeyError(name)
        return Voice.load(self.path_of(entry))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def __iter__(self) -> Iterator[str]:
        return (entry.name for entry in self.entries())

    def __len__(self) -> int:
        return len(self._refreshed())

    def __repr__(self) -> str:
        return f"VoiceFolder({str(self.folder)!r}, {len(self)} voices)"

    def require(self, name: str) -> KeptVoice:
        """The voice with this name or id; UnknownVoiceError where there is none."""
        entry = self.find(name)
        if entry is None:
            raise UnknownVoiceError(
                f"{printable_text(name, NAME_CHARACTERS)}: you have no voice of this name"
                f"{did_you_mean(name[:NAME_CHARACTERS], self)}; `marstts voice list` lists all"
            )
        return entry

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Keep other threads and processes from changing the folder."""
        with self._changing:
            make_folder(self.folder)
            with hold_folder(self.folder, HELD_SECONDS, FileError):
                self._changed_ns = None
                try:
                    yield
                finally:
                    self._changed_ns = None

    def _refreshed(self) -> dict[str, KeptVoice]:
        """Entries by id, read again where the folder was changed; those of files that cannot be read are left out."""
        with self._lock:
            try:
                changed = os.stat(self.folder).st_mtime_ns
                if changed != self._changed_ns:
                    self._scan()
                    self._changed_ns = changed if time.time_ns() - changed > SETTLED_NS else None
            except OSError:  # there is none yet, or it cannot be read
                self._read, self._entries, self._changed_ns = {}, {}, None
            return self._entries

    def _scan(self) -> None:
        with os.scandir(self.folder) as items:
            names = [item.name for item in items if FILE_NAME.fullmatch(item.name)]
        self._read = {name: self._read_entry(name) for name in names}
        self._entries = {entry.id: entry for _, entry in self._read.values() if entry is not None}

    def _read_entry(self, name: str) -> ReadEntry:
        """What tells one content of the file from another, and its entry; None where it is no voice."""
        path = self.folder / name
        try:
            make_private(path)
            found = path.stat()
            content = (found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size)
            if name in self._read and self._read[name][0] == content:
                return self._read[name]
            return content, describe(path.stem, Voice.load(path), found.st_mtime)
        except (MarsError, OSError) as error:
            if path.exists() and self._read.get(name) != UNREADABLE:
                log.warning(f"left out: {error}")
            return UNREADABLE


def own_folder() -> Path:
    """The folder of the user's own voices: that of MARSTTS_VOICES, or one in the user's data folder.

    VoiceError where the user has no home folder.
    """
    try:
        if stated := os.environ.get(VARIABLE):
            return Path(stated).expanduser()
        return data_folder() / "marstts" / "voices"
    except RuntimeError as error:  # there is no home folder
        raise VoiceError(f"there is no home folder for your voices; name a folder by {VARIABLE}") from error


def data_folder() -> Path:
    """The folder of the user's data, as each system has it."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local) if local else Path.home() / "AppData" / "Local"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    stated = Path(os.environ.get("XDG_DATA_HOME", ""))
    return stated if stated.is_absolute() else Path.home() / ".local" / "share"


def own_voices() -> VoiceFolder:
    """The user's own voices."""
    return _opened(own_folder())


@cache
def _opened(folder: Path) -> VoiceFolder:
    """A folder, whose entries are then read once."""
    return VoiceFolder(folder)


def match(voices: Iterable[AnyKept], name: str) -> AnyKept | None:
    """The first voice with this id or name, or else the first with this name in another case.

    Names of packaged voices in any case, and OpenAI's, are theirs, unless a voice of an earlier version has that name.
    """
    known, wanted = list(voices), composed(name)
    exact = (voice for voice in known if name == voice.id or wanted == composed(voice.name))
    similar = (voice for voice in known if folded(name) == folded(voice.name))
    return next(exact, None) or (next(similar, None) if packaged_name(name) is None else None)


def check_name(name: str) -> None:
    """VoiceNameError where no voice of the user can have this name."""
    if not 1 <= len(name) <= NAME_CHARACTERS or not name.isprintable() or name != name.strip():
        raise VoiceNameError(f"a voice's name has 1 to {NAME_CHARACTERS} printable characters, no blanks at its ends")
    if name.casefold() in packaged_names():
        raise VoiceNameError(f"there is a packaged voice of this name, {name.casefold()}; choose another one")
    if name.casefold() in OPENAI_VOICES or name.casefold() in RESERVED or ID.fullmatch(name):
        raise VoiceNameError(f"the name {name} has another meaning; choose another one")


def composed(name: str) -> str:
    """A name with composed letters: two spellings in Unicode of what reads the same are one name."""
    return unicodedata.normalize("NFC", name)


def folded(name: str) -> str:
    """A name without the difference between capital and small letters."""
    return composed(name).casefold()


def new_id() -> str:
    """A random id of 128 bits or more, which cannot be guessed; it is the file's name, too."""
    return "voice_" + "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(26))


def describe(voice_id: str, voice: Voice, created: float) -> KeptVoice:
    """The entry for a voice."""
    return KeptVoice(
        id=voice_id,
        name=voice.name,
        created_at=int(created),
        is_deep=voice.prefix is not None,
        prefix="" if voice.prefix is None else voice.prefix.transcript,
        consent=voice.consent,
    )
