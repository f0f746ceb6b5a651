"""The parts of an uploaded book or text file, in a process of its own: `python -m marstts.server.book_parts`.

Upstream: `page`.  Downstream: `text.books`. Reading is work of the interpreter alone: in a thread of the server, a book
that takes long would slow down everybody's speech and clones, and its memory would stay. This module imports little,
so that the process begins soon.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from marstts.errors import DataError
from marstts.text.books.book import Book, read_book
from marstts.text.sentences import split_sentences

log = logging.getLogger(__name__)

PARAGRAPH_CHARACTERS = 16_384
"""Characters of a paragraph whose sentences are found at once: what has no sentences takes long."""

MAX_CUT_SECONDS = 0.5
"""Processor time in which a book that was read must be divided."""

MAX_SECONDS = 20.0
"""After this time the process is ended. The limits of `text.books` are of processor time; this is for busy machines."""

MAX_MEMORY_BYTES = 2**30
"""Address space of the process, some 100 MiB of which Python takes; the limits of `text.books` keep a book below."""

REFUSED = 3
"""Exit status where the answer is the sentence that refuses the file."""


def parts_in_process(content: bytes, name: str, max_characters: int) -> bytes:
    """Title and parts of a book as JSON; DataError where it cannot be read, OSError where the disk is full."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "book"
        path.write_bytes(content)
        request = json.dumps({"path": str(path), "name": name, "max_characters": max_characters})
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "marstts.server.book_parts"],
                input=request.encode(),
                capture_output=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                timeout=MAX_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DataError(
                f"{name}: the file takes too long to read; try again later, or give smaller files"
            ) from error
    if done.returncode == REFUSED:
        raise DataError(done.stdout.decode())
    if done.returncode:
        log.warning("a book could not be read: exit status %d, %s", done.returncode, done.stderr[-200:])
        raise DataError(f"{name}: the file could not be read; give it in smaller files")
    return done.stdout


def main() -> int:
    """Answer the request on standard input: the parts as JSON, or a sentence and the status `REFUSED`."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # not on every system

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    request = json.load(sys.stdin)
    path, name = Path(request["path"]), request["name"]
    try:
        answer, status = json.dumps(divided(read_book(path), path.name, name, request["max_characters"])), 0
    except DataError as error:
        answer, status = str(error).replace(str(path), name), REFUSED
    except MemoryError:
        answer, status = f"{name}: the file takes too much memory to read; give it in smaller files", REFUSED
    sys.stdout.buffer.write(answer.encode())
    return status


def divided(book: Book, file_name: str, name: str, max_characters: int) -> dict[str, object]:
    """Title and parts of a book; `name` in place of the name of its file. DataError where that takes too long."""
    started, parts = time.thread_time(), []
    for chapter in book:
        title = chapter.title if chapter.title != file_name else name
        heading = f"{title}\n\n" if chapter.is_titled else ""
        pieces = []
        for piece in cut(heading + chapter.text, max_characters):
            pieces.append(piece)
            if time.thread_time() - started > MAX_CUT_SECONDS:
                raise DataError(f"{name}: the text takes too long to divide; give it in smaller files")
        for number, text in enumerate(pieces, 1):
            parts.append({"title": f"{title} ({number} of {len(pieces)})" if len(pieces) > 1 else title, "text": text})
    return {"title": book.title if book.title != file_name else name, "parts": parts}


def cut(text: str, max_characters: int) -> Iterator[str]:
    """Whole paragraphs, or sentences of long ones, in pieces of limited length, in characters."""
    piece = ""
    for paragraph in text.split("\n\n"):
        short = len(paragraph) <= max_characters
        for index, part in enumerate([paragraph] if short else sentences_of(paragraph, max_characters)):
            joint = " " if index else "\n\n"
            if piece and len(piece) + len(joint) + len(part) > max_characters:
                yield piece
                piece = ""
            piece += (joint if piece else "") + part
    if piece.strip():
        yield piece


def sentences_of(paragraph: str, max_characters: int) -> Iterator[str]:
    """The sentences of a long paragraph, a part of it at a time, which ends between words where it can."""
    place = 0
    while place < len(paragraph):
        end = place + PARAGRAPH_CHARACTERS
        if end < len(paragraph):
            end = max(paragraph.rfind(" ", place, end), paragraph.rfind("\n", place, end)) + 1 or end
        yield from split_sentences(paragraph[place:end], max_characters)
        place = end


if __name__ == "__main__":
    sys.exit(main())
