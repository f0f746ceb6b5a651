"""Inputs of `marstts speak`: which text, and which voice.

Upstream: `speak`.  Downstream: `Synthesizer.open_voice`, `Synthesizer.clone`.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from marstts.cli import book
from marstts.cli.book_output import is_book_output
from marstts.cli.terminal import print_prefix, printed_warnings, warn
from marstts.errors import ConfigError, TextError
from marstts.io.reading import SAMPLE_BYTES, binary_data, decode_text, printable_name, read_regular_file
from marstts.synthesis.clone.packaged import VOICE_SUFFIX
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.books import book as books
from marstts.text.books import epub
from marstts.text.books.epub import Notes
from marstts.text.books.formats import refuse_binary_formats, refuse_other_formats
from marstts.voice import Voice

STANDARD_INPUT = "-"

MAX_TEXT_BYTES = 16 * 2**20
"""About two weeks of speech."""


def choose_text(text: str | None, file: str | None, notes: Notes = Notes.IN_PLACE, chapters: str | None = None) -> str:
    """The text to speak: TEXT, a file, or without both what is piped.

    Raises ConfigError for two ways or none, TextError for unreadable files.
    """
    if text is not None and file is not None:
        raise ConfigError("give the text either as TEXT or with --file, not both")
    is_file = file is not None and file != STANDARD_INPUT
    if chapters is not None and not is_file:
        book_of_words = books.book_of_text(choose_text(text, file), "the text")
        return "\n\n".join(chapter.spoken for chapter in book.choose_chapters(book_of_words, chapters))
    if text is None and file is None:
        if sys.stdin.isatty() or not (content := read_standard_input()):
            raise ConfigError("there is no text: give it as TEXT, with --file FILE, or through a pipe")
        return content
    if STANDARD_INPUT in (text, file):
        return read_standard_input()
    if file is None:
        hint_at_file(str(text))
        return str(text)
    if chapters is not None or epub.is_epub_file(Path(file)):
        chosen = book.choose_chapters(_read_book(file, notes), chapters)
        return "\n\n".join(chapter.spoken for chapter in chosen)
    return decoded(read_regular_file(file, MAX_TEXT_BYTES, TextError), printable_name(file))


def read_standard_input() -> str:
    """The text that is piped to the command."""
    content = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
    if len(content) > MAX_TEXT_BYTES:
        raise TextError(f"standard input: the text has more than {MAX_TEXT_BYTES} bytes; split it")
    if content.startswith(b"PK") and b"application/epub+zip" in content[:200]:
        raise TextError("standard input: expected text, but this is an EPUB; name its file: --file BOOK.epub")
    return decoded(content, "standard input")


def decoded(content: bytes, name: str) -> str:
    """The text of a file or a pipe; TextError where it is a document of another kind."""
    refuse_binary_formats(content, name, TextError)
    text = decode_text(content, name, TextError)
    if "\0" in text[:SAMPLE_BYTES]:
        raise binary_data(name, TextError)
    return plain(text, name)


def hint_at_file(text: str) -> None:
    """Warn where TEXT is the name of a file: the name is spoken, not the file."""
    path = text.strip()
    if "\n" not in path and is_file_name(path):
        warn(
            f"the name {printable_name(path)} is spoken; to speak what is in this file, give --file {shlex.quote(path)}"
        )


def is_file_name(path: str) -> bool:
    """Whether a file is there."""
    try:
        return bool(path) and os.path.isfile(os.path.expanduser(path))
    except (OSError, ValueError):  # a text that is no path
        return False


def plain(text: str, name: str) -> str:
    """The text of a file or stream; TextError where it is the source of another kind of document."""
    refuse_other_formats(text, name, TextError)
    return text


def choose_book(
    text: str | None, file: str | None, output: str | None, notes: Notes = Notes.IN_PLACE
) -> books.Book | None:
    """The book to speak chapter by chapter, where the output is a folder or an m4b; None for any other text."""
    if file is None or text is not None or not is_book_output(output):
        return None
    return _read_book(file, notes)


def _read_book(file: str, notes: Notes) -> books.Book:
    """The book; its warnings are printed."""
    found = books.read_book(file, notes)
    for warning in found.warnings:
        warn(warning)
    return found


def is_recording(voice: str) -> bool:
    """Whether a voice is a file of audio rather than a name or a voice file."""
    return Path(voice).suffix != VOICE_SUFFIX and is_file_name(voice)


def check_voice(reference: str | None, transcript: str | None, voice: str | None) -> None:
    """Raise ConfigError for two voices, and for a transcript of what is no recording."""
    if reference is not None and voice is not None:
        raise ConfigError("give the voice either with --reference or with --voice, not both")
    if transcript is not None and reference is None and (voice is None or not is_recording(voice)):
        raise ConfigError("--transcript belongs to a recording; a voice holds its own transcript")


def choose_voice(
    synthesizer: Synthesizer, reference: str | None, transcript: str | None, voice: Voice | str | None
) -> Voice:
    """Clone the recording, or open the voice; without either, the default voice."""
    if reference is None and transcript is not None and isinstance(voice, str):
        reference = voice
    with printed_warnings():
        if reference is None:
            return synthesizer.open_voice(voice)
        cloned = synthesizer.clone(Path(reference), transcript, keep_reference=False)  # it is not saved
    print_prefix(cloned, synthesizer.session.codec.spec.patch_rate)
    return cloned
