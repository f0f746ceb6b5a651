"""A folder of sound files, one for each line of a text or chapter of a book, and its report: what is there is kept.

Upstream: `lines`, `book`.  Downstream: `report.jsonl`, with an entry for each file.
A file is not made again where it is there and its entry gives the same words, voice, model and settings. Entries are
appended as files are made, so that an interrupted run resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marstts.cli.book_output import REPORT_FILE
from marstts.cli.terminal import progress_of, warn
from marstts.errors import AudioError, DataError, MarsError
from marstts.io.files import lock_folder
from marstts.io.jsonl import open_appender, scan_rows, write_rows
from marstts.io.reading import os_errors, printable_name


@dataclass(frozen=True)
class Line:
    """One line or chapter to be spoken."""

    number: int
    """Number of the line, from 1."""

    text: str
    file: str
    """Name of its audio file."""

    fingerprint: str
    """Hash of text, voice, model and settings."""

    kind: str = "line"
    """Its name in messages."""

    def spoken(self, report: dict[str, Any], shown: str) -> dict[str, Any]:
        """The entry of a line that was spoken, with the report of its speech; prints its warnings."""
        for warning in report["warnings"]:
            warn(f"{self.kind} {self.number}: {warning}")
        about = {"line": self.number, "text": shown, "file": self.file, "fingerprint": self.fingerprint}
        return {**about, "error": None, **report}

    def failed(self, error: MarsError, folder: Path, shown: str) -> dict[str, Any]:
        """The entry of a line that cannot be spoken; prints why, and removes its file, which is of another text."""
        warn(f"{self.kind} {self.number}: {error}")
        path = folder / self.file
        with os_errors(path, kind=AudioError):
            path.unlink(missing_ok=True)
        return {"line": self.number, "text": shown, "file": None, "fingerprint": None, "error": str(error)}


@dataclass(frozen=True)
class Outcome:
    """Number of lines of a file that were spoken."""

    spoken: int
    kept: int
    """Spoken before, and not touched."""

    failed: tuple[int, ...]
    """Numbers of lines that could not be spoken."""


def speak_missing(
    lines: Sequence[Line],
    folder: Path,
    speak: Callable[[list[Line]], Iterator[dict[str, Any]]],
    *,
    others: Collection[int] = (),
    shows_progress: bool = True,
) -> Outcome:
    """Make the files that are not there yet: `speak` yields the entry of each line when it is done.

    others: numbers of lines that are not asked for, whose entries stay.
    shows_progress: False where `speak` shows it.

    AudioError where another process writes to the folder or it cannot be written, DataError for a foreign report.
    """
    with lock_folder(folder, AudioError):
        entries = read_report(folder)
        refuse_links(lines, folder)
        missing = [line for line in lines if not is_made(line, entries.get(line.number), folder)]
        failed: list[int] = []
        write_report(folder, list(entries.values()))
        with (
            open_appender(folder / REPORT_FILE, kind=AudioError) as append,
            progress_of_lines(len(lines), len(lines) - len(missing), shown=shows_progress) as advance,
        ):
            for entry in speak(missing):
                entries[entry["line"]] = entry
                append(entry)
                failed += [entry["line"]] if entry["file"] is None else []
                advance()
        kept = {line.number for line in lines}.union(others)
        write_report(folder, [entry for number, entry in entries.items() if number in kept])
    return Outcome(len(missing) - len(failed), len(lines) - len(missing), tuple(sorted(failed)))


def is_made(line: Line, entry: dict[str, Any] | None, folder: Path) -> bool:
    """Return True where a line was spoken before with the same settings."""
    return entry is not None and entry.get("fingerprint") == line.fingerprint and (folder / line.file).is_file()


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
def progress_of_lines(total: int, done: int, *, shown: bool) -> Iterator[Any]:
    """Progress on standard error with every line; nothing where it is not `shown`."""
    with progress_of("speaking", "lines") if shown else nullcontext() as progress:
        if progress is None:
            yield lambda: None
            return
        bar = progress.add_task("speaking", total=total, completed=done)
        yield lambda: progress.advance(bar)
