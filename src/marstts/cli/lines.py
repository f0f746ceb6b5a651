"""`marstts speak --file lines.txt --batch N`: one sound file per line of a text file, and a report.

Upstream: `cli.speak`, `Synthesizer.speak_many`.  Downstream: a folder of `0001.wav`, `0002.wav`, … and `report.jsonl`.

Files are named after their lines, blank ones included in the count. A line whose file is there, and whose entry in the
report gives the same words, voice, model and settings is not spoken again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marstts.cli.book_output import REPORT_FILE
from marstts.cli.terminal import progress_of, warn
from marstts.errors import AudioError, DataError
from marstts.io.file_errors import os_errors, printable_name
from marstts.io.files import lock_folder
from marstts.io.jsonl import open_appender, scan_rows, write_rows
from marstts.synthesis.batch import SpeakResult
from marstts.synthesis.continuation import Continuation
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice


@dataclass(frozen=True)
class Line:
    """One line to be spoken."""

    number: int
    """Number of the line, from 1."""

    text: str
    file: str
    """Name of its sound file."""

    fingerprint: str
    """Hash of text, voice, model and settings."""


@dataclass(frozen=True)
class Outcome:
    """Number of lines of a file that were spoken."""

    spoken: int
    kept: int
    """Spoken before, and not touched."""

    failed: tuple[int, ...]
    """Numbers of lines that could not be spoken."""


def speak_lines(
    synthesizer: Synthesizer,
    text: str,
    voice: Voice,
    folder: Path,
    *,
    seed: int,
    top_p: float | None,
    batch: int,
    continuation: Continuation = Continuation.FIXED_REFERENCE,
) -> Outcome:
    """Speak every line of `text` that is not blank into `folder`, at most `batch` sentences at a time.

    AudioError where another process writes to the folder or it cannot be written, DataError for a foreign report.
    """
    with lock_folder(folder, AudioError):
        return speak_missing_lines(
            synthesizer, text, voice, folder, seed=seed, top_p=top_p, batch=batch, continuation=continuation
        )


def speak_missing_lines(
    synthesizer: Synthesizer,
    text: str,
    voice: Voice,
    folder: Path,
    *,
    seed: int,
    top_p: float | None,
    batch: int,
    continuation: Continuation,
) -> Outcome:
    """Speak the lines that were not spoken before; the caller holds the folder's lock."""
    lines = number_lines(text, voice, f"{synthesizer.name} {seed} {top_p} {continuation.value}")
    entries = read_report(folder)
    refuse_links(lines, folder)
    missing = [line for line in lines if not is_made(line, entries.get(line.number), folder)]
    failed: list[int] = []
    texts = [line.text for line in missing]
    write_report(folder, list(entries.values()))
    with (
        open_appender(folder / REPORT_FILE, kind=AudioError) as append,
        progress_of_lines(len(lines), len(lines) - len(missing)) as advance,
    ):
        for result in synthesizer.speak_many(
            texts, voice, seeds=seed, top_p=top_p, continuation=continuation, batch=batch
        ):
            line = missing[result.index - 1]
            entries[line.number] = entry = save_line(line, result, folder)
            append(entry)
            failed += [line.number] if result.speech is None else []
            advance()
    write_report(folder, [entries[line.number] for line in lines])
    return Outcome(len(missing) - len(failed), len(lines) - len(missing), tuple(sorted(failed)))


def number_lines(text: str, voice: Voice, settings: str) -> list[Line]:
    """The lines of a text that are not blank."""
    voice_digest = hashlib.sha256(voice.to_bytes()).hexdigest()
    lines = text.splitlines()
    digits = max(4, len(str(len(lines))))
    numbered = [(number, line.strip()) for number, line in enumerate(lines, start=1) if line.strip()]
    return [
        Line(number, words, f"{number:0{digits}d}.wav", hash_of(words, voice_digest, settings))
        for number, words in numbered
    ]


def hash_of(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def is_made(line: Line, entry: dict[str, Any] | None, folder: Path) -> bool:
    """Return True where a line was spoken before with the same settings."""
    return entry is not None and entry.get("fingerprint") == line.fingerprint and (folder / line.file).is_file()


def save_line(line: Line, result: SpeakResult, folder: Path) -> dict[str, Any]:
    """Write the line's sound file, if it has one, and return its entry in the report."""
    about = {"line": line.number, "text": line.text}
    path = folder / line.file
    if result.speech is None:
        warn(f"line {line.number}: {result.error}")
        with os_errors(path, kind=AudioError):
            path.unlink(missing_ok=True)  # of another text
        return {**about, "file": None, "fingerprint": None, "error": str(result.error)}
    for warning in result.speech.warnings:
        warn(f"line {line.number}: {warning}")
    result.speech.save(path)
    return {**about, "file": line.file, "fingerprint": line.fingerprint, "error": None, **result.speech.report()}


def refuse_links(lines: Iterable[Line], folder: Path) -> None:
    """Raise AudioError where the report or the file of a line is a link: what it points to would be overwritten."""
    for name in (REPORT_FILE, *(line.file for line in lines)):
        if (folder / name).is_symlink():
            raise AudioError(f"{printable_name(folder / name)}: expected no link, whose target would be overwritten")


def read_report(folder: Path) -> dict[int, dict[str, Any]]:
    """The entries of an earlier run by line, the last of each; none where there was no run.

    A last entry that the end of that run cut off counts as none; anything else that is no entry raises DataError.
    """
    path = folder / REPORT_FILE
    if not path.exists():
        return {}
    lines = list(scan_rows(dict[str, Any], path))
    entries: dict[int, dict[str, Any]] = {}
    for place, line in enumerate(lines, start=1):
        number = None if line.row is None else line.row.get("line")
        if line.row is not None and isinstance(number, int) and number > 0:
            entries[number] = line.row
        elif place < len(lines):
            raise DataError(
                f"{printable_name(path)}:{line.number}: expected the report of `marstts speak --batch`, but this is no "
                "entry of one; give another folder"
            )
    return entries


def write_report(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Write the entries in the order of their lines, all or nothing."""
    write_rows(folder / REPORT_FILE, sorted(entries, key=lambda entry: entry["line"]), kind=AudioError)


@contextmanager
def progress_of_lines(total: int, done: int) -> Iterator[Any]:
    """A bar on standard error that moves with every line; nothing where that is piped."""
    with progress_of("speaking") as progress:
        if progress is None:
            yield lambda: None
            return
        bar = progress.add_task("speaking", total=total, completed=done)
        yield lambda: progress.advance(bar)
