"""Folders of recordings, as people have them, and what is known of each: who speaks, and the words.

Upstream: `FOLDER/*.wav` (or .flac), perhaps with a list beside them, or a .txt file of the same name beside each.
Downstream: `reconstruction`, `testsets.folder`, `testsets.people`.

A list is metadata.csv (columns parted by |), transcripts.tsv or clips.tsv (by tabs). Its first column names the
recording; `normalised_text` or `text` says the words, `speaker` who speaks. Without that, a folder is a speaker.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import soundfile

from marstts.errors import DataError

AUDIO_SUFFIXES = (".wav", ".flac")
LISTS = {"metadata.csv": "|", "transcripts.tsv": "\t", "clips.tsv": "\t"}
"""Lists a folder may hold, and what separates their columns."""


@dataclass(frozen=True)
class Recording:
    """One file."""

    path: Path
    speaker: str
    text: str
    """Empty where nobody wrote it down."""

    seconds: float
    sample_rate: int


def find_recordings(root: Path) -> list[Recording]:
    """All recordings in the folder and in the folders in it, sorted by path; DataError where one cannot be read."""
    places = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    return [recording for place in places for recording in recordings_of(place)]


def recordings_of(place: Path) -> list[Recording]:
    """The recordings of one folder, sorted."""
    listed = read_list(place)
    found = []
    for path in sorted(path for path in place.iterdir() if path.suffix in AUDIO_SUFFIXES):
        row = listed.get(path.name) or listed.get(path.stem) or {}
        try:
            info = soundfile.info(path)
        except soundfile.SoundFileError as error:
            raise DataError(f"{path}: expected a recording, but it cannot be read as one") from error
        text = words_of(row) or words_beside(path)
        found.append(Recording(path, row.get("speaker") or place.name, text, info.duration, info.samplerate))
    return found


def read_list(folder: Path) -> dict[str, Mapping[str, str]]:
    """Rows of the folder's list by the first column, a file's name or stem; empty where there is no list."""
    for name, separator in LISTS.items():
        if (folder / name).is_file():
            with (folder / name).open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file, delimiter=separator, quoting=csv.QUOTE_NONE))
            return {next(iter(row.values())): row for row in rows}
    return {}


def words_of(row: Mapping[str, str]) -> str:
    return row.get("normalised_text") or row.get("text") or ""


def words_beside(recording: Path) -> str:
    path = recording.with_suffix(".txt")
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""
