"""`marstts text`: the sentences that will be spoken, and with `--explain` which rule read what.

Upstream: the shell.  Downstream: `text.reading`, `text.books.book`, `text.lexicon`. Needs no model and no PyTorch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, TextIO

import typer

from marstts.cli.terminal import warn
from marstts.errors import ConfigError, DataError, TextError
from marstts.io.reading import describe_os_error, not_utf8, open_regular, printable_name
from marstts.text.books.book import read_book
from marstts.text.books.epub import Notes, is_epub_file
from marstts.text.books.formats import refuse_other_formats
from marstts.text.language import warnings_of
from marstts.text.lexicon import Lexicon, read_lexicon
from marstts.text.reading import Manner, Passage, Reading, read_stream, read_text
from marstts.text.segments import Boundary, Segment
from marstts.text.ssml import MAX_CHARACTERS, is_ssml

MAX_FILE_BYTES = 2**30
PIECE_CHARACTERS = 65_536
START_CHARACTERS = 20_000
"""Length of the start of a long text from which its language is detected."""


def text(
    words: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="A text; - reads it from standard input.", show_default=False)
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Read a text, SSML or EPUB file; - is standard input.")
    ] = None,
    lexicon: Annotated[
        str | None, typer.Option(metavar="TSV", help="A dictionary: word, tab, respelling, ARPAbet or /IPA/.")
    ] = None,
    notes: Annotated[Notes, typer.Option(help="Where the notes of an EPUB are read.")] = Notes.IN_PLACE,
    dialogue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name the voice of what is said in quotation marks.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print which rule read what.")] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="Print one JSON object per passage.")] = False,
) -> None:
    """Print the sentences that will be spoken, one per line."""
    if (words is None) == (file is None):
        raise ConfigError("give either a text or --file")
    known = read_lexicon(lexicon) if lexicon is not None else Lexicon()
    manner = Manner(lexicon=known, dialogue=dialogue)
    spoken = 0
    for passage in passages_of(words, file, manner, notes):
        spoken += sum(bool(segment.text) for segment in passage.segments)
        print_passage(passage, explain=explain, as_json=json_lines)
    if not spoken:
        raise TextError("there is nothing to speak in it; give a text with words or numbers")


def passages_of(words: str | None, file: str | None, manner: Manner, notes: Notes) -> Iterator[Passage]:
    """The passages of the text that was asked for; warnings are printed after the last."""
    if "-" in (words, file):
        yield from _stream(TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig"), manner, "standard input")
    elif words is not None:
        yield from _whole(words, manner)
    elif is_epub_file(Path(str(file))):
        book = read_book(str(file), notes)
        for warning in book.warnings:
            warn(warning)
        for chapter in book:
            yield from _whole(chapter.spoken, manner)
    else:
        content = open_regular(str(file), MAX_FILE_BYTES, DataError)
        with TextIOWrapper(content, encoding="utf-8-sig") as opened:
            yield from _stream(opened, manner, printable_name(str(file)))


def _whole(words: str, manner: Manner) -> Iterator[Passage]:
    reading: Reading = read_text(words, manner=manner)
    yield from reading.passages
    for warning in reading.warnings:
        warn(warning)


def _stream(opened: TextIO, manner: Manner, name: str) -> Iterator[Passage]:
    """The passages of an open file as they are read; SSML is read whole."""
    start = _read(opened, PIECE_CHARACTERS, name)
    refuse_other_formats(start, name, TextError)
    if is_ssml(start):
        yield from _whole(start + _read(opened, MAX_CHARACTERS, name), manner)
        return
    left_out: dict[str, None] = {}
    for passage in read_stream(_pieces(start, opened, name), manner=manner):
        left_out.update(dict.fromkeys(passage.left_out))
        yield passage
    for warning in warnings_of(left_out, start[:START_CHARACTERS]):
        warn(warning)


def _pieces(start: str, opened: TextIO, name: str) -> Iterator[str]:
    piece = start
    while piece:
        yield piece
        piece = _read(opened, PIECE_CHARACTERS, name)


def _read(opened: TextIO, characters: int, name: str) -> str:
    try:
        return opened.read(characters)
    except UnicodeDecodeError as error:
        raise not_utf8(error, name, DataError, opened) from error
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {describe_os_error(error)}") from error


def print_passage(passage: Passage, *, explain: bool, as_json: bool) -> None:
    """Print the sentences of a passage; with `explain` its written form and every step as well."""
    if as_json:
        about = {"segments": [asdict(segment) for segment in passage.segments], "left_out": list(passage.left_out)}
        if explain:
            about |= {"written": passage.written, "steps": [step._asdict() for step in passage.steps]}
        typer.echo(json.dumps(about, ensure_ascii=False))
        return
    for segment in passage.segments:
        typer.echo(describe(segment))
    if explain:
        width = max((len(step.rule) for step in passage.steps), default=0)
        for step in passage.steps:
            typer.echo(f"    {step.rule:<{width}}  {step.written!r} -> {step.read!r}")
        for run in dict.fromkeys(passage.left_out):
            typer.echo(f"    {'left out':<{width}}  {run!r}")


def describe(segment: Segment) -> str:
    """A segment in one line: its text, and in brackets what is not usual."""
    notes = []
    if segment.voice:
        notes.append(f"voice {segment.voice}")
    if segment.rate != 1.0:
        notes.append(f"rate {segment.rate:g}")
    if segment.boundary is Boundary.SCENE:
        notes.append("scene break")
    if segment.pause_seconds:
        notes.append(f"pause {segment.pause_seconds:g} s")
    return " ".join(([segment.text] if segment.text else []) + ([f"[{'; '.join(notes)}]"] if notes else []))
