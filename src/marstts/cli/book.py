"""`marstts speak --file book.epub --output folder/`: one tagged audio file per chapter, or an m4b with chapters.

Upstream: `cli.speak`, `text.books.book`.  Downstream: `kept_sentences`, `spoken_folder`, `audio.m4b`.
An m4b is put together from a folder of chapters, which is kept; they are FLAC, so that audio is encoded once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unicodedata import category, normalize

from marstts import audio
from marstts.audio.m4b import is_picture, write_m4b
from marstts.cli import kept_sentences
from marstts.cli.book_output import report_folder
from marstts.cli.spoken_folder import Line, Outcome, read_report, speak_missing
from marstts.cli.terminal import Progress, progress_of, warn
from marstts.errors import AudioError, ConfigError, MarsError
from marstts.io.reading import printable_name
from marstts.synthesis.model_session import OnTake
from marstts.synthesis.speaking import Speaking
from marstts.synthesis.speech import Take
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.words import captions
from marstts.synthesis.words.word_times import Word
from marstts.text.books.book import Book, Chapter

SUFFIX, LOSSLESS = ".mp3", ".flac"

_RANGE = re.compile(r"(?P<first>[0-9]{0,5})(?P<to>-)?(?P<last>[0-9]{0,5})")
MAX_NAME = 50
MAX_NAME_BYTES = 150
"""Most file systems take 255 bytes, and names of partial files are longer."""

SENTENCE_CHARACTERS = 60
"""Characters of a usual sentence, by which sentences are counted before any is read."""

MAX_TITLES = 100
"""Chapters that a message lists."""


def choose_chapters(book: Book, ranges: str | None) -> list[Chapter]:
    """The chapters of ranges such as "3", "2-5" or "1,4-"; all of them without any. ConfigError for other ranges."""
    if ranges is None:
        return list(book)
    count, chosen = len(book.chapters), set[int]()
    for each in ranges.replace(" ", "").split(","):
        match = _RANGE.fullmatch(each)
        if match is None or not (match["first"] or (match["to"] and match["last"])):
            raise ConfigError(f"--chapters {ranges}: expected numbers and ranges such as 3 or 2-5 or 1,4-")
        first = int(match["first"] or 1)
        last = int(match["last"] or count) if match["to"] else first
        if not 1 <= first <= last <= count:
            titles = "; ".join(f"{chapter.number} {chapter.title}" for chapter in book.chapters[:MAX_TITLES])
            raise ConfigError(f"--chapters {ranges}: the book has {count} chapter{'' if count == 1 else 's'}: {titles}")
        chosen.update(range(first, last + 1))
    return [chapter for chapter in book if chapter.number in chosen]


def speak_book(
    synthesizer: Synthesizer,
    book: Book,
    chapters: Sequence[Chapter],
    output: Path,
    how: Speaking,
    words: str | None = None,
) -> Outcome:
    """Speak the chapters that were not spoken before; AudioError where the output cannot be written.

    words: a file for the times of words from the beginning of the first of the chapters.
    """
    folder = report_folder(output)
    lines = number_chapters(book, chapters, synthesizer, how, SUFFIX if folder == output else LOSSLESS)

    def speak(missing: list[Line]) -> Iterator[dict[str, Any]]:
        with progress_of("speaking", "sentences") as progress:
            bar = SentenceBar(progress, missing)
            for line in missing:
                yield speak_chapter(synthesizer, book, line, folder, how, bar.begin(line))
                kept_sentences.forget(folder / line.file, also_list=False)  # its entry is in the report

    others = [chapter.number for chapter in book]
    outcome = speak_missing(lines, folder, speak, others=others, shows_progress=False)
    if outcome.failed:
        return outcome
    if folder != output:
        files = [(chapter.title, folder / line.file) for chapter, line in zip(chapters, lines, strict=True)]
        cover = book.cover if book.cover and is_picture(book.cover) else b""
        if book.cover and not cover:
            warn("the picture of the cover cannot be read; the audio book has none")
        about = {"description": book.description, "date": book.date}
        write_m4b(output, files, title=book.title, author=book.author, cover=cover, **about)
    if words is not None:
        found, seconds = words_of(lines, folder, synthesizer, how)
        captions.write_captions(found, words, seconds=seconds)
    return outcome


def number_chapters(
    book: Book, chapters: Sequence[Chapter], synthesizer: Synthesizer, how: Speaking, suffix: str
) -> list[Line]:
    """The chapters as lines of a report, each with the name of its file."""
    digits = max(2, len(str(len(book.chapters))))
    return [
        Line(
            chapter.number,
            chapter.spoken,
            f"{chapter.number:0{digits}d}{name_of(chapter.title)}{suffix}",
            how.fingerprint(synthesizer.session, chapter.spoken, book.title, book.author),
            "chapter",
        )
        for chapter in chapters
    ]


def name_of(title: str) -> str:
    """A title as a part of a file name: letters and digits of all scripts with dashes between."""
    composed = normalize("NFC", title).lower()
    kept = "".join(each if category(each)[0] in "LMN" else " " for each in composed)
    name = "-".join(kept.split())[:MAX_NAME].encode()[:MAX_NAME_BYTES].decode(errors="ignore").rstrip("-")
    return f"-{name}" if name else ""


def speak_chapter(
    synthesizer: Synthesizer, book: Book, line: Line, folder: Path, how: Speaking, on_take: OnTake | None
) -> dict[str, Any]:
    """Speak one chapter into its file: its entry in the report, with an error where it has no words to speak."""
    shown, path = line.text[:80], folder / line.file
    title = book.chapters[line.number - 1].title
    tags = audio.Tags(title=title, artist=book.author, album=book.title, track=line.number, date=book.date)
    try:
        made = kept_sentences.speak_kept(synthesizer, line.text, how, path, on_take=on_take)
        kept_sentences.finish(path, tags)
    except AudioError:
        raise
    except MarsError as error:
        return line.failed(error, folder, shown)
    return line.spoken(made.report(), shown)


def words_of(lines: Sequence[Line], folder: Path, synthesizer: Synthesizer, how: Speaking) -> tuple[list[Word], float]:
    """The words of the chapters with times that run over all of them, and the seconds of all."""
    entries, found, seconds = read_report(folder), list[Word](), 0.0
    for line in lines:
        rows = kept_sentences.read_list(folder / line.file, how.fingerprint(synthesizer.session, line.text))
        if not rows:
            path = printable_name(folder / line.file)
            raise AudioError(f"{path}: the times of its words are lost; remove the file, and it is spoken again")
        found += [word.shifted(seconds) for word in kept_sentences.words_of(rows)]
        seconds += float(entries[line.number]["audio_seconds"])
    return found, seconds


class SentenceBar:
    """A bar over the sentences of chapters. How many are left is estimated by the length of what was not read yet."""

    def __init__(self, progress: Progress, lines: Sequence[Line]) -> None:
        self.progress, self.bar = progress, progress.add_task("speaking", total=None)
        self.characters_left = sum(len(line.text) for line in lines)
        self.done = 0  # sentences of finished chapters

    def begin(self, line: Line) -> Callable[[Take, int, int], None]:
        """The function that counts the sentences of a chapter; those of an earlier run do not count."""
        self.characters_left -= len(line.text)
        before, kept = self.done, None

        def on_take(take: Take, number: int, sentences: int) -> None:
            nonlocal kept
            kept = number - 1 if kept is None else kept
            self.done = before + number - kept
            left = sentences - number + round(self.characters_left / SENTENCE_CHARACTERS)
            self.progress.update(self.bar, completed=self.done, total=self.done + left)

        return on_take
