"""The manifest: a corpus as one JSON object per line, each describing one utterance.

Two readers: `read_manifest` is for corpora written by hand and raises with all complaints; `scan_manifest` is for
corpora of millions of lines, where an invalid line is reported and skipped. Trainings read by `read_for_training`.

Upstream: `data.corpora`, or a text editor.  Downstream: `data.tokenize`, evaluation test sets.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import DataError
from marstts.io.files import atomic_path
from marstts.io.jsonl import MAX_COMPLAINTS, Scanned, dump_row, parse_row, read_rows, scan_rows, write_rows
from marstts.io.reading import printable_name
from marstts_lab.data.held_out_people import refuse_test_people

SPLITS = ("train", "validation", "test")

MAX_NAME_CHARACTERS, MAX_TEXT_CHARACTERS = 4096, 100_000
"""Bounds of a manifest's strings: names and paths; texts."""

MAX_UTTERANCE_SECONDS, MAX_SOURCE_RATE = 1e6, 1_000_000
"""Bounds of a manifest's numbers."""

UNSAFE_CHARACTERS = re.compile(r"[^\w.-]+")
MAX_FILE_NAME = 80
"""Characters of a file name; longer names are cut and get a hash."""


def check_not_blank(value: str) -> str:
    """The value; ValueError if it has no visible character."""
    if not value.strip():
        raise ValueError("is empty")
    return value


def check_split(value: str) -> str:
    """The value; ValueError unless it is one of `SPLITS`."""
    if value not in SPLITS:
        raise ValueError(f"expected one of {', '.join(SPLITS)}, got {value[:40]!r}")
    return value


Name = Annotated[str, Field(max_length=MAX_NAME_CHARACTERS), AfterValidator(check_not_blank)]


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """One recording and its metadata."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    id: Name
    """Unique in its corpus."""

    audio: Name
    """Path of the recording, absolute or relative to the manifest's folder."""

    text: Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]
    """The words spoken."""

    speaker: Name
    """Speaker label; the same label is the same speaker throughout the corpus."""

    style: Name
    """Speaking style: regular, loud, whisper, high, low, fast, slow, or a label of the corpus."""

    seconds: Annotated[float, Field(gt=0, le=MAX_UTTERANCE_SECONDS, allow_inf_nan=False)]
    """Length of the recording."""

    source_rate: Annotated[int, Field(gt=0, le=MAX_SOURCE_RATE)]
    """Sample rate (Hz) that matches the true bandwidth of the recording, before any upsampling."""

    split: Annotated[str, AfterValidator(check_split)]
    """`train`, `validation` or `test`."""

    license: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)]
    """License of the recording."""

    start: Annotated[float, Field(ge=0, le=MAX_UTTERANCE_SECONDS, allow_inf_nan=False)] | None = None
    """Second at which the utterance begins in a longer file; None where the utterance is the whole file."""


def read_manifest(path: Path) -> list[Utterance]:
    """All utterances in file order; DataError naming the file and all invalid or duplicate lines.

    Every utterance must be a whole file. Segments of longer files are refused: see `read_chosen`.
    """
    return read_rows(Utterance, path, unique=("id",), finish=check_whole_file)


def read_chosen(path: Path, wanted: Callable[[Utterance], bool]) -> list[Utterance]:
    """The wanted utterances in file order, segments of longer files included; only they are held in memory.

    DataError where lines are invalid or repeat an id.
    """
    chosen: list[Utterance] = []
    problems: list[str] = []
    for line in scan_manifest(path):
        if line.row is None:
            problems.append(f"line {line.number}: {line.problem}")
        elif wanted(line.row):
            chosen.append(line.row)
    if problems:
        more = f"; and {len(problems) - MAX_COMPLAINTS} more" if len(problems) > MAX_COMPLAINTS else ""
        raise DataError(f"{printable_name(path)}: {'; '.join(problems[:MAX_COMPLAINTS])}{more}")
    return chosen


def read_for_training(path: Path) -> list[Utterance]:
    """All utterances in file order, as `read_manifest`, to train on.

    DataError where people whom models are judged on are among those of another split than `test`.
    """
    utterances = read_manifest(path)
    used = ((one.speaker, (one.id, one.audio)) for one in utterances if one.split != "test")
    refuse_test_people(used, printable_name(path))
    return utterances


def as_whole_file(utterance: Utterance, folder: Path, output: Path) -> Utterance:
    """The utterance as a file of its own, with an absolute path; a segment is written into `output`, once.

    `folder` is the manifest's. Raises AudioError as `read_recording`.
    """
    if utterance.start is None:
        return replace(utterance, audio=str((folder / utterance.audio).absolute()))
    path = output / f"{safe_name(utterance.id)}.flac"
    if not path.is_file():
        waveform = read_recording(utterance, folder)
        with atomic_path(path, DataError) as temporary:
            audio.write(waveform, temporary)
    return replace(utterance, audio=str(path.absolute()), start=None)


def safe_name(name: str) -> str:
    """A name as part of a path; different names stay different."""
    plain = UNSAFE_CHARACTERS.sub("_", name).strip(".")[:MAX_FILE_NAME]
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def check_whole_file(utterance: Utterance) -> Utterance:
    """The utterance; DataError if it is a segment of a longer file."""
    if utterance.start is not None:
        raise DataError(
            f"{utterance.id!r} is a segment of a longer file, which this command does not read; prepare the corpus "
            "with `--audio flac`, which writes it as a file"
        )
    return utterance


def scan_manifest(path: Path) -> Iterator[Scanned[Utterance]]:
    """Every line that is not blank, with the reason if it is invalid: malformed, or an id that was used before.

    The first of two equal ids is valid. Only the ids are held in memory. DataError only where the file cannot be read.
    """
    return scan_rows(Utterance, path, unique=("id",))


def read_recording(utterance: Utterance, folder: Path) -> Waveform:
    """The audio of an utterance whose manifest lies in `folder`; AudioError as from `audio.read`."""
    path = folder / utterance.audio
    if utterance.start is None:
        return audio.read(path)
    return audio.read_span(path, utterance.start, utterance.seconds)


def parse_utterance(line: str | bytes, place: str) -> Utterance:
    """One manifest line as an Utterance; DataError, prefixed by `place`, listing every complaint."""
    try:
        return parse_row(Utterance, line if isinstance(line, bytes) else line.encode("utf-8"))
    except DataError as error:
        raise DataError(f"{printable_name(place)}: {error}") from error


def write_manifest(utterances: Iterable[Utterance], path: Path) -> None:
    """Write one line per utterance, atomically; DataError on a duplicate id."""
    write_rows(path, (as_row(utterance) for utterance in utterances), unique=("id",))


def utterance_line(utterance: Utterance) -> str:
    """The manifest line of one utterance, without line end."""
    return dump_row(as_row(utterance)).decode("utf-8").rstrip("\n")


def as_row(utterance: Utterance) -> dict[str, Any]:
    """The fields of an utterance as they are written: a whole file has no `start`."""
    row = dict(vars(utterance))  # every field is a plain value, so nothing needs a deep copy
    if row["start"] is None:
        del row["start"]
    return row
