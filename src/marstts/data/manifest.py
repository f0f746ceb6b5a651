"""The manifest: a corpus as one JSON object per line, each naming one recorded utterance.

Two ways in: `read_manifest` is for people's mistakes and stops at the first; `scan_manifest` is for corpora of millions
of lines, where a bad line is named and passed over.

Upstream: `data.corpora` (and anyone with a text editor).  Downstream: `data.tokenize`, evaluation test sets.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import DataError

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """One recording and all that is known of it."""

    id: str
    """Unique in its corpus."""

    audio: str
    """Path of the recording, absolute or relative to the manifest's folder."""

    text: str
    """The words spoken."""

    speaker: str
    """Who speaks; the same name is the same person throughout the corpus."""

    style: str
    """How: regular, loud, whisper, high, low, fast, slow, or a name of the corpus's own."""

    seconds: float
    """Length of the recording."""

    source_rate: int
    """Sample rate (Hz) whose bandwidth the recording truly fills, however often it was resampled since."""

    split: str
    """`train`, `validation` or `test`."""

    licence: str
    """What may be done with the recording."""

    start: float | None = None
    """Second at which the recording begins in a longer file; without one, the recording is the file."""


FIELDS = {field.name: field.type for field in dataclasses.fields(Utterance)}
OPTIONAL_FIELDS = ("start",)
TYPES: dict[str, type] = {"str": str, "float": float, "float | None": float, "int": int}


@dataclass(frozen=True)
class Line:
    """One line of a manifest as `scan_manifest` finds it."""

    first_byte: int
    last_byte: int
    """Where it begins, and where the next one does."""

    utterance: Utterance | None
    """What it says; None where it is of no use."""

    name: str
    """The utterance's id, or the line's number where it has none."""

    problem: str
    """Why it is of no use; empty where it is of use."""


def read_manifest(path: Path) -> list[Utterance]:
    """All utterances in file order; DataError naming file and line at the first that is malformed or a duplicate.

    Every utterance is a file of its own; parts of longer files, which only `data.tokenize` reads, are refused.
    """
    check_exists(path)
    utterances: list[Utterance] = []
    first_lines: dict[str, int] = {}
    with path.open(encoding="utf-8") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                utterance = parse_utterance(line, f"{path}:{number}")
                if utterance.start is not None:
                    raise DataError(
                        f"{path}:{number}: {utterance.id!r} is part of a longer file, which only `marstts tokenize` "
                        "reads; prepare the corpus with `--audio flac`, which writes it as a file of its own"
                    )
                if utterance.id in first_lines:
                    first = first_lines[utterance.id]
                    raise DataError(
                        f"{path}:{number}: id {utterance.id!r} was used before on line {first}; ids are unique"
                    )
                first_lines[utterance.id] = number
                utterances.append(utterance)
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: expected UTF-8 text, but {error}") from error
    return utterances


def check_exists(path: Path) -> None:
    """DataError unless a file lies at `path`."""
    if not path.is_file():
        raise DataError(f"{path}: no such manifest; expected a .jsonl file with one utterance per line")


def scan_manifest(path: Path) -> Iterator[Line]:
    """Every line that is not blank, with what is wrong with it: malformed, or an id that was used before.

    Of equal ids the first is kept. Besides the ids nothing is held in memory. DataError only if there is no file.
    """
    check_exists(path)
    seen: set[str] = set()
    first = 0
    with path.open("rb") as lines:
        for number, content in enumerate(lines, start=1):
            last = first + len(content)
            if content.strip():
                yield (line := judge_line(content, f"{path.name}:{number}", (first, last), seen))
                seen.add(line.name)
            first = last


def judge_line(content: bytes, place: str, span: tuple[int, int], seen: set[str]) -> Line:
    """One line, or why it is of no use; `seen` are the names of those before."""
    try:
        utterance = parse_utterance(content.decode("utf-8"), place)
    except UnicodeDecodeError as error:
        return Line(*span, None, place, f"{place}: expected UTF-8 text, but {error}")
    except DataError as error:
        return Line(*span, None, place, str(error))
    if utterance.id in seen:
        return Line(*span, None, utterance.id, f"{place}: id {utterance.id!r} was used before; ids are unique")
    return Line(*span, utterance, utterance.id, "")


def read_recording(utterance: Utterance, folder: Path) -> Waveform:
    """The audio of an utterance whose manifest lies in `folder`; AudioError as from `audio.read`."""
    path = folder / utterance.audio
    if utterance.start is None:
        return audio.read(path)
    return audio.read_span(path, utterance.start, utterance.seconds)


def parse_utterance(line: str, place: str) -> Utterance:
    """One manifest line as an Utterance; DataError, prefixed by `place`, listing every complaint."""
    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place}: expected one JSON object per line, but {error}") from error
    if not isinstance(values, dict):
        raise DataError(f"{place}: expected a JSON object, got {type(values).__name__}")
    complaints = complaints_about(values)
    if complaints:
        raise DataError(f"{place}: {'; '.join(complaints)}")
    return Utterance(**{**values, "seconds": float(values["seconds"])})


def complaints_about(values: dict[str, Any]) -> list[str]:
    """What keeps these values from being an utterance; empty if nothing does."""
    complaints = [f"{name} is missing" for name in FIELDS if name not in values and name not in OPTIONAL_FIELDS]
    complaints += [f"{name} is not a field of an utterance" for name in values if name not in FIELDS]
    for name, kind in FIELDS.items():
        if name in OPTIONAL_FIELDS and values.get(name) is None:
            continue
        if name in values and not fits(values[name], TYPES[str(kind)]):
            complaints.append(f"{name} should be {kind}, got {values[name]!r}")
    if complaints:
        return complaints
    for name in ("id", "audio", "speaker", "style"):
        if not values[name].strip():
            complaints.append(f"{name} is empty")
    if not (math.isfinite(values["seconds"]) and values["seconds"] > 0):
        complaints.append(f"seconds should be positive, got {values['seconds']!r}")
    start = values.get("start")
    if start is not None and not (math.isfinite(start) and start >= 0):
        complaints.append(f"start should not be negative, got {start!r}")
    if values["source_rate"] <= 0:
        complaints.append(f"source_rate should be positive, got {values['source_rate']!r}")
    if values["split"] not in SPLITS:
        complaints.append(f"split should be one of {', '.join(SPLITS)}, got {values['split']!r}")
    return complaints


def fits(value: object, kind: type) -> bool:
    """Whether a JSON value is of the kind; whole numbers pass as float, true and false pass as neither number."""
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def write_manifest(utterances: Iterable[Utterance], path: Path) -> None:
    """Write one line per utterance, under a temporary name until complete; DataError on a duplicate id."""
    seen: set[str] = set()
    temporary = path.with_name(f".{path.name}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary.open("w", encoding="utf-8") as file:
        for utterance in utterances:
            if utterance.id in seen:
                raise DataError(f"{path}: id {utterance.id!r} occurs twice; ids are unique in a manifest")
            seen.add(utterance.id)
            file.write(utterance_line(utterance) + "\n")
    os.replace(temporary, path)


def utterance_line(utterance: Utterance) -> str:
    """The manifest line of one utterance, without line end."""
    return json.dumps(as_row(utterance), ensure_ascii=False)


def as_row(utterance: Utterance) -> dict[str, Any]:
    """The fields of an utterance as they are written: a file of its own has no `start`."""
    row = dict(vars(utterance))  # every field is a plain value, so nothing needs a deep copy
    if row["start"] is None:
        del row["start"]
    return row
