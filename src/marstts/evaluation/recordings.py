"""Folders of recordings with their speakers and transcripts.

Upstream: `FOLDER/*.wav` (or .flac), with a list in the folder, or a .txt file of the same name for each.
Downstream: `reconstruction`, `testsets.folder`, `testsets.real_speakers`.

A list is metadata.csv (columns separated by |), transcripts.tsv or clips.tsv (by tabs). Its first column names the
recording, which may lie in a subfolder (`anna/one.wav`); `normalised_text` or `text` is the transcript, `speaker` the
speaker. A metadata.csv without such a header is that of `marstts prepare folder`: file, text and perhaps speaker.
Without a list, a folder is a speaker.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import soundfile

from marstts.data.corpora.folder import columns_of, find, read_columns_of, speaker_of
from marstts.errors import DataError
from marstts.io.reading import os_errors, printable_name, read_text

AUDIO_SUFFIXES = (".wav", ".flac")
LISTS = {"metadata.csv": "|", "transcripts.tsv": "\t", "clips.tsv": "\t"}
"""Lists that a folder may hold, and the separators of their columns."""

COLUMNS = ("file", "text", "speaker")
"""Columns of a metadata.csv whose first line names none."""

MAX_LIST_BYTES = 2**30
MAX_TEXT_BYTES = 2**20


@dataclass(frozen=True)
class Recording:
    """One file."""

    path: Path
    speaker: str
    transcript: str
    """Empty where there is none."""

    seconds: float
    sample_rate: int


def find_recordings(root: Path) -> list[Recording]:
    """All recordings in a folder, in its subfolders, and of its list; DataError where one cannot be read.

    The list of a recording's own folder counts before that of `root`. Without a speaker in a list, the speaker is the
    first folder below `root`, as in `marstts prepare folder`.
    """
    if not root.is_dir():
        raise DataError(f"{printable_name(root)}: expected a folder of recordings")
    with os_errors(root, "be read", DataError):
        folders = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    lists = {folder: read_list(folder) for folder in folders}
    deeper = {path for name in lists[root] if name.count("/") > 1 and (path := listed_file(root, name)) is not None}
    paths = [*(path for folder in folders for path in audio_files(folder)), *sorted(deeper)]
    return [recording(path, root, row_of(path, root, lists)) for path in paths]


def audio_files(folder: Path) -> list[Path]:
    """The recordings of one folder, sorted."""
    with os_errors(folder, "be read", DataError):
        return sorted(path for path in folder.iterdir() if path.suffix in AUDIO_SUFFIXES)


def listed_file(root: Path, name: str) -> Path | None:
    """The recording that a list in `root` calls `name`; None where there is none, or none that can be read here."""
    path = find(root, name)
    return path if path is not None and path.suffix in AUDIO_SUFFIXES else None


def recording(path: Path, root: Path, row: Mapping[str, str]) -> Recording:
    """A recording with what its row says of it; a transcript may be in a .txt file as well."""
    info = audio_info(path)
    transcript = transcript_of(row) or transcript_file(path)
    return Recording(path, row.get("speaker") or speaker_of(root, path), transcript, info.duration, info.samplerate)


def row_of(path: Path, root: Path, lists: Mapping[Path, Mapping[str, Mapping[str, str]]]) -> Mapping[str, str]:
    """The row of a recording in the list of its folder, else in that of `root`; empty where it has none."""
    own, below = lists.get(path.parent, {}), path.relative_to(root)
    row = own.get(path.name) or own.get(path.stem)
    if row is not None or path.parent == root:
        return row or {}
    places = [below, below.relative_to("wavs")] if below.parts[0] == "wavs" else [below]
    names = [name for place in places for name in (place.as_posix(), place.with_suffix("").as_posix())]
    return next((lists[root][name] for name in names if name in lists[root] and find(root, name) == path), {})


def audio_info(path: Path) -> soundfile._SoundFileInfo:
    """Length and sample rate of a recording; DataError where it cannot be read."""
    try:
        if not path.is_file():
            raise DataError(f"{printable_name(path)}: expected a recording, but there is no such file")
        return soundfile.info(path)
    except (soundfile.SoundFileError, OSError) as error:
        raise DataError(f"{printable_name(path)}: expected a recording, but it cannot be read as one") from error


def read_list(folder: Path) -> dict[str, Mapping[str, str]]:
    """Rows of the folder's list by the first column, a file's name or stem; empty where there is no list."""
    for name, separator in LISTS.items():
        path = folder / name
        if not path.exists():
            continue
        text = read_text(path, MAX_LIST_BYTES, DataError)
        first = [column.strip() for column in text.split("\n", 1)[0].split(separator)]
        if separator == "|" and {"normalised_text", *COLUMNS}.isdisjoint(first):
            return read_table_without_header(text)
        lines = io.StringIO(text, newline="")
        try:
            rows = list(csv.DictReader(lines, delimiter=separator, quoting=csv.QUOTE_NONE))
        except csv.Error as error:
            raise DataError(f"{printable_name(path)}: expected rows of columns, but {error}") from error
        stripped = [{key.strip(): (value or "").strip() for key, value in row.items() if key} for row in rows]
        return {next(iter(row.values()), ""): row for row in stripped}
    return {}


def read_table_without_header(text: str) -> dict[str, Mapping[str, str]]:
    """Rows of a metadata.csv as `marstts prepare folder` reads it."""
    rows = [columns_of(line) for line in text.splitlines() if line.strip()]
    read = read_columns_of(rows)
    return {row[0]: dict(zip(COLUMNS, (row[0], *read(row)), strict=True)) for row in rows if len(row) > 1}


def transcript_of(row: Mapping[str, str]) -> str:
    """The transcript in a row of a list; empty where there is none."""
    return row.get("normalised_text") or row.get("text") or ""


def transcript_file(recording: Path) -> str:
    """The transcript in the .txt file of a recording; empty where there is none."""
    path = recording.with_suffix(".txt")
    return read_text(path, MAX_TEXT_BYTES, DataError).strip() if path.exists() else ""
