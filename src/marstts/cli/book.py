"""`marstts speak --file book.epub --output folder/`: one tagged sound file per chapter, or an m4b with chapters.

Upstream: `cli.speak`, `text.books.book`.  Downstream: `Synthesizer.stream`, `audio.writer`, `audio.m4b`.
A chapter whose file is there, and whose entry in the report gives the same words, voice, model and settings, is not
spoken again. An m4b is put together from such a folder, which is kept.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from marstts import audio
from marstts.audio.m4b import write_m4b
from marstts.cli.book_output import REPORT_FILE, report_folder
from marstts.cli.lines import (
    Line,
    Outcome,
    hash_of,
    is_made,
    progress_of_lines,
    read_report,
    refuse_links,
    write_report,
)
from marstts.cli.streaming import play_through
from marstts.cli.terminal import warn
from marstts.errors import AudioError, MarsError
from marstts.io.files import lock_folder
from marstts.io.jsonl import open_appender
from marstts.synthesis.continuation import Continuation
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.books.book import Book, Chapter
from marstts.voice import Voice

SUFFIX = ".mp3"

_UNSAFE = re.compile(r"[^A-Za-z0-9]+")
MAX_NAME = 50


@dataclass(frozen=True)
class BookSettings:
    """Voice and settings for a book."""

    voice: Voice
    seed: int
    top_p: float | None
    continuation: Continuation


def speak_book(synthesizer: Synthesizer, book: Book, output: Path, settings: BookSettings) -> Outcome:
    """Speak every chapter that was not spoken before; AudioError where the output cannot be written."""
    folder = report_folder(output)
    with lock_folder(folder, AudioError):
        chapters = number_chapters(book, synthesizer, settings)
        outcome = speak_missing_chapters(synthesizer, book, chapters, folder, settings)
    if folder != output and not outcome.failed:
        files = [(chapter.title, folder / line.file) for chapter, line in zip(book, chapters, strict=True)]
        write_m4b(output, files, title=book.title, author=book.author)
    return outcome


def number_chapters(book: Book, synthesizer: Synthesizer, settings: BookSettings) -> list[Line]:
    """The chapters as lines of a report, each with the name of its file."""
    voice_digest = hashlib.sha256(settings.voice.to_bytes()).hexdigest()
    how = f"{synthesizer.name} {settings.seed} {settings.top_p} {settings.continuation.value} {synthesizer.lexicon}"
    digits = max(2, len(str(len(book.chapters))))
    return [
        Line(
            chapter.number,
            words_of(chapter),
            f"{chapter.number:0{digits}d}{name_of(chapter.title)}{SUFFIX}",
            hash_of(words_of(chapter), book.title, book.author, voice_digest, how),
        )
        for chapter in book
    ]


def words_of(chapter: Chapter) -> str:
    """The text of a chapter with its title as a heading."""
    return f"# {chapter.title}\n\n{chapter.text}"


def name_of(title: str) -> str:
    """A title as a part of a file name: letters and digits with dashes between."""
    name = _UNSAFE.sub("-", title).strip("-")[:MAX_NAME].rstrip("-").lower()
    return f"-{name}" if name else ""


def speak_missing_chapters(
    synthesizer: Synthesizer, book: Book, chapters: list[Line], folder: Path, settings: BookSettings
) -> Outcome:
    """Speak the chapters that were not spoken before; the caller holds the folder's lock."""
    entries = read_report(folder)
    refuse_links(chapters, folder)
    missing = [line for line in chapters if not is_made(line, entries.get(line.number), folder)]
    failed: list[int] = []
    write_report(folder, list(entries.values()))
    with (
        open_appender(folder / REPORT_FILE, kind=AudioError) as append,
        progress_of_lines(len(chapters), len(chapters) - len(missing)) as advance,
    ):
        for line in missing:
            entries[line.number] = entry = speak_chapter(synthesizer, book, line, folder, settings)
            append(entry)
            failed += [line.number] if entry["file"] is None else []
            advance()
    write_report(folder, [entries[line.number] for line in chapters])
    return Outcome(len(missing) - len(failed), len(chapters) - len(missing), tuple(failed))


def speak_chapter(
    synthesizer: Synthesizer, book: Book, line: Line, folder: Path, settings: BookSettings
) -> dict[str, object]:
    """Speak one chapter into its file: its entry in the report, with an error where it has no words to speak."""
    about: dict[str, object] = {"line": line.number, "text": line.text[:80]}
    tags = audio.Tags(
        title=book.chapters[line.number - 1].title, artist=book.author, album=book.title, track=line.number
    )
    try:
        chunks = synthesizer.stream(
            line.text, settings.voice, seed=settings.seed, top_p=settings.top_p, continuation=settings.continuation
        )
        sample_rate = synthesizer.codec.spec.sample_rate
        with audio.open_writer(folder / line.file, sample_rate, tags) as write, closing(chunks):
            made = play_through(chunks, lambda chunk: write(chunk.samples), model=synthesizer.name, seed=settings.seed)
    except AudioError:
        raise
    except MarsError as error:
        warn(f"chapter {line.number}: {error}")
        return {**about, "file": None, "fingerprint": None, "error": str(error)}
    for warning in made.warnings:
        warn(f"chapter {line.number}: {warning}")
    return {**about, "file": line.file, "fingerprint": line.fingerprint, "error": None, **made.report()}
