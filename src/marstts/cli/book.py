"""`marstts speak --file book.epub --output folder/`: one tagged audio file per chapter, or an m4b with chapters.

Upstream: `cli.speak`, `text.books.book`.  Downstream: `Synthesizer.speak_in_order`, `spoken_folder`, `audio.m4b`.
An m4b is put together from a folder of chapters, which is kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marstts import audio
from marstts.audio.m4b import write_m4b
from marstts.cli.book_output import report_folder
from marstts.cli.spoken_folder import Line, Outcome, hash_of, speak_missing
from marstts.cli.streaming import play_through
from marstts.errors import AudioError, MarsError
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
    voices: Mapping[str, Voice]
    """Voices that the book may name."""


def speak_book(synthesizer: Synthesizer, book: Book, output: Path, settings: BookSettings) -> Outcome:
    """Speak every chapter that was not spoken before; AudioError where the output cannot be written."""
    folder = report_folder(output)
    chapters = number_chapters(book, synthesizer, settings)

    def speak(lines: list[Line]) -> Iterator[dict[str, Any]]:
        return (speak_chapter(synthesizer, book, line, folder, settings) for line in lines)

    outcome = speak_missing(chapters, folder, speak)
    if folder != output and not outcome.failed:
        files = [(chapter.title, folder / line.file) for chapter, line in zip(book, chapters, strict=True)]
        write_m4b(output, files, title=book.title, author=book.author)
    return outcome


def number_chapters(book: Book, synthesizer: Synthesizer, settings: BookSettings) -> list[Line]:
    """The chapters as lines of a report, each with the name of its file."""
    voice_digest = hashlib.sha256(settings.voice.to_bytes()).hexdigest()
    how = f"{synthesizer.name} {settings.seed} {settings.top_p} {settings.continuation.value} {synthesizer.lexicon}"
    how += "".join(f" {name} {voice.source_sha256}" for name, voice in sorted(settings.voices.items()))
    digits = max(2, len(str(len(book.chapters))))
    return [
        Line(
            chapter.number,
            words_of(chapter),
            f"{chapter.number:0{digits}d}{name_of(chapter.title)}{SUFFIX}",
            hash_of(words_of(chapter), book.title, book.author, voice_digest, how),
            "chapter",
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


def speak_chapter(
    synthesizer: Synthesizer, book: Book, line: Line, folder: Path, settings: BookSettings
) -> dict[str, Any]:
    """Speak one chapter into its file: its entry in the report, with an error where it has no words to speak."""
    shown = line.text[:80]
    tags = audio.Tags(
        title=book.chapters[line.number - 1].title, artist=book.author, album=book.title, track=line.number
    )
    try:
        chunks = synthesizer.speak_in_order(
            line.text, settings.voice, seed=settings.seed, top_p=settings.top_p, continuation=settings.continuation,
            voices=settings.voices,
        )  # fmt: skip
        sample_rate = synthesizer.codec.spec.sample_rate
        with audio.open_writer(folder / line.file, sample_rate, tags) as write, closing(chunks):
            made = play_through(chunks, lambda chunk: write(chunk.samples), model=synthesizer.name, seed=settings.seed)
    except AudioError:
        raise
    except MarsError as error:
        return line.failed(error, folder, shown)
    return line.spoken(made.report(), shown)
