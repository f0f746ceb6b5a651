"""`marstts speak --file lines.txt --batch N`: one sound file per line of a text file, and a report.

Upstream: `cli.speak`, `Synthesizer.speak_many`.  Downstream: a folder of `0001.wav`, `0002.wav`, … and `report.jsonl`.

Files are named after their lines, blank ones included in the count. A line whose file is there, and whose entry in the
report says that it was made from the same words, voice, model and settings, is not spoken again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from marstts.cli.terminal import messages, warn
from marstts.errors import AudioError, DataError
from marstts.synthesis.many import Spoken
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice

REPORT_FILE = "report.jsonl"


@dataclass(frozen=True)
class Line:
    """One line to be spoken."""

    number: int
    """From 1, in its file."""

    text: str
    file: str
    """Name of its sound file."""

    fingerprint: str
    """Of all that decides how it sounds."""


@dataclass(frozen=True)
class Outcome:
    """What became of the lines of a file."""

    spoken: int
    kept: int
    """Spoken before, and not touched."""

    failed: tuple[int, ...]
    """Numbers of lines that could not be spoken."""


def speak_lines(
    synthesizer: Synthesizer, text: str, voice: Voice, folder: Path, *, seed: int, top_p: float | None, batch: int
) -> Outcome:
    """Speak every line of `text` that is not blank into `folder`, at most `batch` sentences at a time."""
    lines = number_lines(text, voice, f"{synthesizer.name} {seed} {top_p}")
    entries = read_report(folder)
    missing = [line for line in lines if not is_made(line, entries.get(line.number), folder)]
    failed: list[int] = []
    texts = [line.text for line in missing]
    with open_report(folder) as report, progress_of_lines(len(lines), len(lines) - len(missing)) as advance:
        for spoken in synthesizer.speak_many(texts, voice, seeds=seed, top_p=top_p, batch=batch):
            line = missing[spoken.number - 1]
            entries[line.number] = entry = save_line(line, spoken, folder)
            report.write(json.dumps(entry, ensure_ascii=False) + "\n")
            report.flush()
            failed += [line.number] if spoken.speech is None else []
            advance()
    sort_report(folder, [entries[line.number] for line in lines])
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
    """Whether a line was spoken before, just so."""
    return entry is not None and entry.get("fingerprint") == line.fingerprint and (folder / line.file).is_file()


def save_line(line: Line, spoken: Spoken, folder: Path) -> dict[str, Any]:
    """Write the line's sound file, if it has one, and say what became of it: its entry in the report."""
    about = {"line": line.number, "text": line.text}
    path = folder / line.file
    if spoken.speech is None:
        warn(f"line {line.number}: {spoken.problem}")
        path.unlink(missing_ok=True)  # of other words
        return {**about, "file": None, "fingerprint": None, "problem": str(spoken.problem)}
    for warning in spoken.speech.warnings:
        warn(f"line {line.number}: {warning}")
    temporary = path.with_suffix(".part.wav")
    spoken.speech.save(temporary)
    os.replace(temporary, path)
    return {**about, "file": line.file, "fingerprint": line.fingerprint, "problem": None, **spoken.speech.report()}


def read_report(folder: Path) -> dict[int, dict[str, Any]]:
    """The entries of an earlier run by line, the last of each; none where there was no run.

    An entry cut off by the end of that run counts as none; anything else that is no entry raises DataError.
    """
    path = folder / REPORT_FILE
    if not path.exists():
        return {}
    content = path.read_text(encoding="utf-8").splitlines()
    entries: dict[int, dict[str, Any]] = {}
    for number, text in enumerate(content, start=1):
        try:
            entry = json.loads(text)
            entries[entry["line"]] = entry
        except (json.JSONDecodeError, TypeError, KeyError) as error:
            if number < len(content):
                raise DataError(
                    f"{path}:{number}: expected the report of `marstts speak --batch`, but this is no entry of "
                    "one; give another folder"
                ) from error
    return entries


@contextmanager
def open_report(folder: Path) -> Iterator[TextIO]:
    """The report, to write further entries to; it begins with those that are whole."""
    entries = read_report(folder)
    sort_report(folder, list(entries.values()))
    with (folder / REPORT_FILE).open("a", encoding="utf-8") as file:
        yield file


def sort_report(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Write the entries in the order of their lines, all or nothing."""
    temporary = folder / f"{REPORT_FILE}.part"
    try:
        rows = [json.dumps(entry, ensure_ascii=False) for entry in sorted(entries, key=lambda entry: entry["line"])]
        temporary.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
        os.replace(temporary, folder / REPORT_FILE)
    except OSError as error:
        raise AudioError(f"{folder}: cannot be written to: {error.strerror or error}") from error


@contextmanager
def progress_of_lines(total: int, done: int) -> Iterator[Any]:
    """A bar on standard error that moves with every line; nothing where that is piped."""
    console = messages()
    columns = (TextColumn("speaking"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("speaking", total=total, completed=done)
        yield lambda: progress.advance(bar)
