"""A folder of one's own recordings, with the words in a table or in a text file beside each.

Upstream: whatever somebody recorded.  Downstream: `gather`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from marstts.data.corpora.gather import Found, Refused
from marstts.errors import DataError

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a")
TABLE = "metadata.csv"

VALIDATION_EVERY, MOST_VALIDATION = 10, 100
"""One recording in so many is held out, and never more than that; nobody tests on the voice they fine-tune to."""

HELPFUL = (
    "expected recordings (wav, flac, mp3) with their words: in metadata.csv, `file|text` or `file|text|speaker` a "
    "line, or in a .txt file beside each recording"
)


def folder(root: Path, licence: str) -> Iterator[Found | Refused]:
    """Everything in `root`, a tenth of it for validation."""
    table = root / TABLE
    rows = list(from_table(root, table, licence) if table.is_file() else from_neighbours(root, licence))
    if not rows:
        raise DataError(f"{root}: {HELPFUL}; there are none")
    found = [row for row in rows if isinstance(row, Found)]
    count = min(MOST_VALIDATION, max(1, len(found) // VALIDATION_EVERY)) if len(found) > 1 else 0
    chosen = {row.id for row in sorted(found, key=lambda row: hashlib.sha256(row.id.encode()).digest())[:count]}
    for row in rows:
        yield replace(row, split="validation") if isinstance(row, Found) and row.id in chosen else row


def from_table(root: Path, table: Path, licence: str) -> Iterator[Found | Refused]:
    """By the lines of metadata.csv; a file may be named without suffix, and lie in `wavs/`."""
    for number, line in enumerate(table.read_text(encoding="utf-8-sig").splitlines(), start=1):
        if not line.strip():
            continue
        name, *rest = (part.strip() for part in line.split("|"))
        if not rest:
            yield Refused(id=f"{TABLE}:{number}", text=line, reason="expected file|text or file|text|speaker")
            continue
        path = find(root, name)
        if path is None:
            yield Refused(id=name, text=rest[0], reason=f"{root / name}: no such audio file")
            continue
        speaker = rest[1] if len(rest) > 1 and rest[1] else speaker_of(root, path)
        yield recording(root, path, rest[0], speaker, licence)


def from_neighbours(root: Path, licence: str) -> Iterator[Found | Refused]:
    """By the .txt file beside each recording."""
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() not in SUFFIXES:
            continue
        words = path.with_suffix(".txt")
        if not words.is_file():
            yield Refused(id=name_of(root, path), reason=f"{words}: no such file; it should hold the words")
            continue
        text = " ".join(words.read_text(encoding="utf-8-sig", errors="replace").split())
        yield recording(root, path, text, speaker_of(root, path), licence)


def recording(root: Path, path: Path, text: str, speaker: str, licence: str) -> Found:
    """A recording to train on."""
    return Found(id=name_of(root, path), audio=path, text=text, speaker=speaker, split="train", licence=licence)


def find(root: Path, name: str) -> Path | None:
    """The file of this name."""
    places = [root / name, root / "wavs" / name]
    places += [place.with_name(place.name + suffix) for place in places[:2] for suffix in SUFFIXES]
    return next((place for place in places if place.is_file()), None)


def name_of(root: Path, path: Path) -> str:
    """The path below `root` without suffix."""
    return path.relative_to(root).with_suffix("").as_posix()


def speaker_of(root: Path, path: Path) -> str:
    """The folder a recording lies in: the first one below `root`, or `root` itself; `wavs` is nobody's name."""
    first = path.relative_to(root).parts[0] if path.parent != root else root.resolve().name
    return root.resolve().name if first == "wavs" else first
