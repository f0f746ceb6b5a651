"""A folder of your recordings, with their transcripts in a table or in a text file next to each.

Upstream: recordings of any origin.  Downstream: `build_manifest`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

from marstts.errors import DataError, FileError
from marstts.io.reading import printable_name, read_regular_file, read_text
from marstts_lab.data.corpora.build_manifest import RawUtterance, RejectedItem, is_file
from marstts_lab.data.corpora.table_columns import find_columns, header_of, split_columns, with_file_first
from marstts_lab.data.shards import SHARD_PATTERN

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a")
TABLE = "metadata.csv"

VALIDATION_EVERY, MOST_VALIDATION = 10, 100
"""One recording in this many is held out, and never more than that; fine-tuning to a voice needs no test split."""

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


def holds_recordings(folder: Path) -> bool:
    """True for a folder that has recordings and no shards."""
    if not folder.is_dir() or any(folder.glob(SHARD_PATTERN)):
        return False
    return (folder / TABLE).is_file() or any(path.suffix.lower() in SUFFIXES for path in folder.rglob("*"))


def key_of(row: RawUtterance) -> bytes:
    """The id as bytes; file names may hold bytes that are no UTF-8."""
    return row.id.encode("utf-8", "surrogateescape")


def from_table(root: Path, table: Path, license: str) -> Iterator[RawUtterance | RejectedItem]:
    """The lines of metadata.csv; a file may be named without suffix, and lie in `wavs/`.

    DataError where it is uncertain which column is the text.
    """
    files = FileNames(root)
    lines = read_text(table, MAX_TABLE_BYTES, DataError).splitlines()
    numbers = [number for number, line in enumerate(lines, start=1) if line.strip()]
    cut = split_columns([lines[number - 1] for number in numbers])
    rows = dict(zip(numbers, with_file_first(cut[0], cut) if cut else [], strict=True))
    first = next(iter(rows), 0)
    columns = header_of(rows[first]) if rows and files.find(rows[first][0]) is None else None
    if columns is not None:
        del rows[first]
    else:
        try:
            columns = find_columns([cells for cells in rows.values() if len(cells) > 1])
        except DataError as error:
            raise DataError(f"{printable_name(table)}: {error}") from error
    for number, cells in rows.items():
        name = cells[0]
        try:
            text, speaker = columns.read(cells)
        except DataError as error:
            yield RejectedItem(id=f"{TABLE}:{number}", text=lines[number - 1], reason=str(error))
            continue
        path = files.find(name)
        if path is None:
            yield RejectedItem(id=name, text=text, reason=f"{name}: no such audio file below {root}")
            continue
        yield recording(root, path, text, speaker or speaker_of(root, path), license)


def from_text_files(root: Path, license: str) -> Iterator[RawUtterance | RejectedItem]:
    """Every recording below `root`, with the .txt file next to it."""
    files = FileNames(root)
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() not in SUFFIXES:
            continue
        transcript = files.spelled_as(path.with_suffix(".txt")) or path.with_suffix(".txt")
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
        self._roots = tuple(dict.fromkeys((root.absolute(), root.resolve())))
        self._entries: dict[Path, dict[str, Path | None]] = {}

    def find(self, name: str) -> Path | None:
        """The file of this name below the root or in its `wavs/`; None for any other name.

        A name may be an absolute path into the root.
        """
        for form in dict.fromkeys((name, name.replace("\\", "/"))):
            path = self._relative(Path(form))
            if path is None or ".." in path.parts or not path.name:
                continue
            paths = [self._root / path, self._root / "wavs" / path]
            paths += [path.with_name(path.name + suffix) for path in paths[:2] for suffix in SUFFIXES]
            found = next((path for path in paths if is_file(path)), None)
            found = found or next((other for path in paths if (other := self.spelled_as(path)) is not None), None)
            if found is not None:
                return found
        return None

    def _relative(self, path: Path) -> Path | None:
        """The path below the root; None for an absolute one that leads elsewhere."""
        if not path.is_absolute():
            return path
        root = next((root for root in self._roots if path.is_relative_to(root)), None)
        return None if root is None else path.relative_to(root)

    def spelled_as(self, path: Path) -> Path | None:
        """The file with this path but for capitals, and for accents apart from their letters, as macOS stores them."""
        found = self._root
        for part in path.relative_to(self._root).parts:
            entry = self._entries_of(found).get(_spelling(part))
            if entry is None:
                return None
            found = entry
        return found if is_file(found) else None

    def _entries_of(self, folder: Path) -> dict[str, Path | None]:
        """What is in a folder by its spelling; None where two entries differ in capitals only."""
        if folder not in self._entries:
            entries: dict[str, Path | None] = {}
            for entry in folder.iterdir() if folder.is_dir() else ():
                spelling = _spelling(entry.name)
                entries[spelling] = None if spelling in entries else entry
            self._entries[folder] = entries
        return self._entries[folder]


def _spelling(name: str) -> str:
    return normalize("NFC", name).casefold()


def name_of(root: Path, path: Path) -> str:
    """The path below `root` without suffix."""
    return path.relative_to(root).with_suffix("").as_posix()


def speaker_of(root: Path, path: Path) -> str:
    """The folder of a recording: the first one below `root`, or `root`; `wavs` is no speaker."""
    first = path.relative_to(root).parts[0] if path.parent != root else root.resolve().name
    return root.resolve().name if first == "wavs" else first
