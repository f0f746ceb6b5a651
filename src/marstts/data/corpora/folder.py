"""A folder of your recordings, with their transcripts in a table or in a text file next to each.

Upstream: recordings of any origin.  Downstream: `build_manifest`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from unicodedata import normalize

from marstts.data.corpora.build_manifest import RawUtterance, RejectedItem, is_file
from marstts.errors import DataError, FileError
from marstts.io.reading import read_regular_file, read_text

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a")
TABLE = "metadata.csv"

VALIDATION_EVERY, MOST_VALIDATION = 10, 100
"""One recording in this many is held out, and never more than that; fine-tuning to a voice needs no test split."""

FILE_NAMES = ("file", "filename", "file name", "path", "audio", "audio file", "wav", "wav file", "id", "name")
TEXT_NAMES = ("normalized text", "text", "transcript", "transcription", "sentence", "raw text")
SPEAKER_NAMES = ("speaker", "speaker id", "speaker name", "client id")
"""Names of columns in headers, in lower case, blanks for underscores."""

BAR = " | "
MAX_NAME_WORDS = 4
"""Words of a speaker's name at most."""

MAX_TABLE_BYTES, MAX_TRANSCRIPT_BYTES = 2**28, 2**20

HELPFUL = (
    "expected recordings (wav, flac, mp3) with their transcripts: in metadata.csv, `file|text`, `file|text|speaker` or "
    "`file|text|normalized text` a line, or in a .txt file next to each recording"
)


def folder(root: Path, license: str) -> Iterator[RawUtterance | RejectedItem]:
    """All items of the table, or, without one, all recordings below `root`; a tenth is for validation.

    Paths are below `root`. Without a name in the table, the speaker is the first folder below `root`, or `root`.
    """
    table = root / TABLE
    rows = list(from_table(root, table, license) if table.is_file() else from_text_files(root, license))
    if not rows:
        raise DataError(f"{root}: {HELPFUL}; there are none")
    found = [row for row in rows if isinstance(row, RawUtterance)]
    count = min(MOST_VALIDATION, max(1, len(found) // VALIDATION_EVERY)) if len(found) > 1 else 0
    chosen = {row.id for row in sorted(found, key=lambda row: hashlib.sha256(key_of(row)).digest())[:count]}
    for row in rows:
        yield replace(row, split="validation") if isinstance(row, RawUtterance) and row.id in chosen else row


def key_of(row: RawUtterance) -> bytes:
    """The id as bytes; file names may hold bytes that are no UTF-8."""
    return row.id.encode("utf-8", "surrogateescape")


def from_table(root: Path, table: Path, license: str) -> Iterator[RawUtterance | RejectedItem]:
    """The lines of metadata.csv; a file may be named without suffix, and lie in `wavs/`."""
    files = FileNames(root)
    lines = read_text(table, MAX_TABLE_BYTES, DataError).splitlines()
    rows = {number: columns_of(line) for number, line in enumerate(lines, start=1) if line.strip()}
    first = next(iter(rows), 0)
    header = header_of(rows[first]) if rows and files.find(rows[first][0]) is None else None
    if header is not None:
        del rows[first]
    read = read_columns_of(list(rows.values())) if header is None else header.read
    for number, columns in rows.items():
        if len(columns) < 2:
            reason = "expected file|text or file|text|speaker"
            yield RejectedItem(id=f"{TABLE}:{number}", text=lines[number - 1], reason=reason)
            continue
        name, (text, speaker) = columns[0], read(columns)
        path = files.find(name)
        if path is None:
            yield RejectedItem(id=name, text=text, reason=f"{name}: no such audio file below {root}")
            continue
        yield recording(root, path, text, speaker or speaker_of(root, path), license)


def columns_of(line: str) -> list[str]:
    """The columns of a line, without the blanks around them."""
    return [part.strip() for part in line.split("|")]


@dataclass(frozen=True)
class Header:
    """The places of the columns that the first line names."""

    width: int
    text: int
    speaker: int | None

    def read(self, columns: list[str]) -> tuple[str, str]:
        """(text, speaker) of a line; columns that are too many are of a text with bars."""
        extra = max(0, len(columns) - self.width)
        text = BAR.join(columns[self.text : self.text + 1 + extra])
        if self.speaker is None:
            return text, ""
        place = self.speaker + (extra if self.speaker > self.text else 0)
        return text, columns[place] if place < len(columns) else ""


def header_of(columns: list[str]) -> Header | None:
    """The header of a table by its names; None where the line is none.

    A normalized text counts before the text, because it is closer to what is said.
    """
    names = [column.lower().replace("_", " ").replace("normalised", "normalized") for column in columns]
    texts = [name for name in TEXT_NAMES if name in names[1:]]
    if names[0] not in FILE_NAMES or not texts:
        return None
    speakers = [names.index(name) for name in SPEAKER_NAMES if name in names[1:]]
    return Header(len(names), names.index(texts[0]), speakers[0] if speakers else None)


def read_columns_of(rows: Sequence[list[str]]) -> Callable[[list[str]], tuple[str, str]]:
    """The function (text, speaker) of a line of these rows, which no header explains, decided by all of them."""
    halves = [halves_of(columns) for columns in rows if len(columns) > 2 and columns[-1]]
    if halves and 2 * sum(is_same_text(text, other) for text, other in halves) >= len(halves):
        return lambda columns: (halves_of(columns)[1] or halves_of(columns)[0], "")
    return read_with_speaker


def read_with_speaker(columns: list[str]) -> tuple[str, str]:
    """(text, speaker) of file|text|speaker; where the last column is no name, it is a part of a text with bars."""
    _, *texts, last = columns
    is_name = bool(texts) and len(last.split()) <= MAX_NAME_WORDS and not last.endswith(tuple(".,;:?!\"'"))
    return (BAR.join(texts), last) if is_name else (BAR.join([*texts, last]), "")


def halves_of(columns: list[str]) -> tuple[str, str]:
    """The text of LJSpeech's id|text|normalized text, twice; both may have bars."""
    middle = 1 + len(columns) // 2
    return BAR.join(columns[1:middle]), BAR.join(columns[middle:])


def is_same_text(text: str, other: str) -> bool:
    """Whether a text is the other one, perhaps with numbers and abbreviations written out."""
    return SequenceMatcher(None, text.lower().split(), other.lower().split(), autojunk=False).ratio() > 0.5


def from_text_files(root: Path, license: str) -> Iterator[RawUtterance | RejectedItem]:
    """Every recording below `root`, with the .txt file next to it."""
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() not in SUFFIXES:
            continue
        transcript = path.with_suffix(".txt")
        try:
            content = read_regular_file(transcript, MAX_TRANSCRIPT_BYTES)
        except FileError as error:
            yield RejectedItem(id=name_of(root, path), reason=f"{error}; it should hold the transcript")
            continue
        text = " ".join(content.decode("utf-8-sig", errors="replace").split())
        yield recording(root, path, text, speaker_of(root, path), license)


def recording(root: Path, path: Path, text: str, speaker: str, license: str) -> RawUtterance:
    """An utterance for training."""
    return RawUtterance(id=name_of(root, path), audio=path, text=text, speaker=speaker, split="train", license=license)


def find(root: Path, name: str) -> Path | None:
    """The file of this name below `root`; None for any other name."""
    return FileNames(root).find(name)


class FileNames:
    """Finds the recordings that a table names, whatever system it was written on."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._composed: dict[Path, dict[str, Path]] = {}

    def find(self, name: str) -> Path | None:
        """The file of this name below the root or in its `wavs/`; None for any other name."""
        for form in dict.fromkeys((name, name.replace("\\", "/"))):
            if Path(form).is_absolute() or ".." in Path(form).parts or not Path(form).name:
                continue
            paths = [self._root / form, self._root / "wavs" / form]
            paths += [path.with_name(path.name + suffix) for path in paths[:2] for suffix in SUFFIXES]
            found = next((path for path in paths if is_file(path)), None)
            found = found or next((other for path in paths if (other := self._composed_as(path)) is not None), None)
            if found is not None:
                return found
        return None

    def _composed_as(self, path: Path) -> Path | None:
        """The file whose path is the same once accents are composed: macOS stores them apart from their letters."""
        folder = path.parent
        if folder not in self._composed:
            files = folder.iterdir() if folder.is_dir() else ()
            self._composed[folder] = {normalize("NFC", file.name): file for file in files if is_file(file)}
        return self._composed[folder].get(normalize("NFC", path.name))


def name_of(root: Path, path: Path) -> str:
    """The path below `root` without suffix."""
    return path.relative_to(root).with_suffix("").as_posix()


def speaker_of(root: Path, path: Path) -> str:
    """The folder of a recording: the first one below `root`, or `root`; `wavs` is no speaker."""
    first = path.relative_to(root).parts[0] if path.parent != root else root.resolve().name
    return root.resolve().name if first == "wavs" else first
