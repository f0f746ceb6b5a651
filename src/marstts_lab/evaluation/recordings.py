"""Folders of recordings with their speakers and transcripts, as `marstts prepare folder` reads them.

Upstream: a folder with metadata.csv, or a .txt file next to each recording; transcripts may be missing.
Downstream: `testsets.folder`, `testsets.real_speakers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import soundfile

from marstts.errors import DataError
from marstts.io.reading import os_errors, printable_name, read_text
from marstts_lab.data.corpora.build_manifest import RawUtterance
from marstts_lab.data.corpora.folder import SUFFIXES, TABLE, from_table, speaker_of

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
    """All recordings below a folder, sorted; DataError where one cannot be read.

    Without a speaker in the table, the speaker is the first folder below `root`, or `root`.
    """
    if not root.is_dir():
        raise DataError(f"{printable_name(root)}: expected a folder of recordings")
    rows = from_table(root, root / TABLE, "") if (root / TABLE).is_file() else ()
    listed = {row.audio: row for row in rows if isinstance(row, RawUtterance)}
    with os_errors(root, "be read", DataError):
        paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES)
    return [recording(path, root, listed.get(path)) for path in paths]


def recording(path: Path, root: Path, row: RawUtterance | None) -> Recording:
    """A recording with what its row says of it; a transcript may be in a .txt file as well."""
    info = audio_info(path)
    transcript = (row.text if row else "") or transcript_file(path)
    return Recording(path, row.speaker if row else speaker_of(root, path), transcript, info.duration, info.samplerate)


def audio_info(path: Path) -> soundfile._SoundFileInfo:
    """Length and sample rate of a recording; DataError where it cannot be read."""
    try:
        if not path.is_file():
            raise DataError(f"{printable_name(path)}: expected a recording, but there is no such file")
        return soundfile.info(path)
    except (soundfile.SoundFileError, OSError) as error:
        raise DataError(f"{printable_name(path)}: expected a recording, but it cannot be read as one") from error


def transcript_file(recording: Path) -> str:
    """The transcript in the .txt file of a recording; empty where there is none."""
    path = recording.with_suffix(".txt")
    return read_text(path, MAX_TEXT_BYTES, DataError).strip() if path.exists() else ""
