"""A folder of your recordings, with their transcripts in a table or in a text file next to each.

Upstream: recordings of any origin.  Downstream: `build_manifest`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from marstts.data.corpora.build_manifest import RawUtterance, RejectedItem, is_file
from marstts.errors import DataError, FileError
from marstts.io.reading import read_regular_file, read_text

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a")
TABLE = "metadata.csv"

VALIDATION_EVERY, MOST_VALIDATION = 10, 100
"""One recording in so many is held out, and never more than that; fine-tuning to a voice needs no test split."""

MAX_TABLE_BYTES, MAX_TRANSCRIPT_BYTES = 2**28, 2**20

HELPFUL = (
    "expected recordings (wav, flac, mp3) with their transcripts: in metadata.csv, `file|text` or `file|text|speaker` "
    "a line, or in a .txt file next to each recording"
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
    for number, line in enumerate(read_text(table, MAX_TABLE_BYTES, DataError).splitlines(), start=1):
        if not line.strip():
            continue
        name, *rest = (part.strip() for part in line.split("|"))
        if not rest:
            yield RejectedItem(id=f"{TABLE}:{number}", text=line, reason="expected file|text or file|text|speaker")
            continue
        path = find(root, name)
        if path is None:
            yield RejectedItem(id=name, text=rest[0], reason=f"{name}: no such audio file below {root}")
            continue
        speaker = rest[1] if len(rest) > 1 and rest[1] else speaker_of(root, path)
        yield recording(root, path, rest[0], speaker, license)


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
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return None
    paths = [root / name, root / "wavs" / name]
    paths += [path.with_name(path.name + suffix) for path in paths[:2] for suffix in SUFFIXES if path.name]
    return next((path for path in paths if is_file(path)), None)


def name_of(root: Path, path: Path) -> str:
    """The path below `root` without suffix."""
    return path.relative_to(root).with_suffix("").as_posix()


def speaker_of(root: Path, path: Path) -> str:
    """The folder of a recording: the first one below `root`, or `root`; `wavs` is no speaker."""
    first = path.relative_to(root).parts[0] if path.parent != root else root.resolve().name
    return root.resolve().name if first == "wavs" else first
