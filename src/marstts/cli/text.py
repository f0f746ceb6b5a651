"""`marstts text`: the sentences that will be spoken, and with `--explain` which rule read what.

Upstream: the shell.  Downstream: `speak_input`, `text.reading`, `text.lexicon`. Needs no model and no PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from marstts.cli.speak_input import choose_text
from marstts.cli.terminal import say, say_json, warn
from marstts.errors import TextError
from marstts.text.books.epub import Notes
from marstts.text.language import is_no_pronunciation, warnings_of
from marstts.text.lexicon import Lexicon, read_lexicon
from marstts.text.phones import readable
from marstts.text.pronunciation.words import PhoneUse, phone_words
from marstts.text.reading import Manner, Passage, read_stream, read_text
from marstts.text.rules.engine import Step
from marstts.text.segments import Boundary, Segment
from marstts.text.ssml import is_ssml


def text(
    words: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="A text; without one, or with -, standard input.", show_default=False),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read a text, SSML or EPUB file; - is standard input."),
    ] = None,
    lexicon: Annotated[
        str | None, typer.Option(metavar="TSV", help="A dictionary: word, tab, respelling, ARPAbet or /IPA/.")
    ] = None,
    notes: Annotated[
        Notes, typer.Option(help="Where the notes of an EPUB are read.", case_sensitive=False)
    ] = Notes.IN_PLACE,
    dialogue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name the voice of what is said in quotation marks.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print which rule read what.")] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="Print one JSON object per passage.")] = False,
) -> None:
    """Print the sentences that will be spoken, one per line."""
    written = choose_text(words, file, notes)
    known = read_lexicon(lexicon) if lexicon is not None else Lexicon()
    spoken = 0
    for passage in passages_of(written, Manner(lexicon=known, dialogue=dialogue)):
        spoken += sum(bool(segment.text) for segment in passage.segments)
        print_passage(passage, explain=explain, as_json=json_lines)
    if not spoken:
        raise TextError("there is nothing to speak in it; give a text with words or numbers")


def passages_of(text: str, manner: Manner) -> Iterator[Passage]:
    """The passages of a text as they are read; warnings are printed after the last."""
    if is_ssml(text):
        reading = read_text(text, manner=manner)
        yield from reading.passages
        found = list(reading.warnings)
    else:
        left_out: dict[str, None] = {}
        for passage in read_stream([text], manner=manner):
            left_out.update(dict.fromkeys(passage.left_out))
            yield passage
        found = warnings_of(left_out, text)
    for warning in found:
        warn(warning)


def print_passage(passage: Passage, *, explain: bool, as_json: bool) -> None:
    """Print the sentences of a passage; with `explain` its written form and every step as well."""
    if as_json:
        segments = [asdict(segment) | {"text": readable(segment.text)} for segment in passage.segments]
        about = {"segments": segments, "left_out": list(passage.left_out)}
        if explain:
            about |= {"written": passage.written, "steps": [step._asdict() for step in steps_of(passage)]}
        say_json(about)
        return
    for segment in passage.segments:
        say(describe(segment))
    if explain:
        steps = steps_of(passage)
        width = max((len(step.rule) for step in steps), default=0)
        for step in steps:
            say(f"    {step.rule:<{width}}  {step.written!r} -> {step.read!r}")
        for run in dict.fromkeys(passage.left_out):
            label = "as text" if is_no_pronunciation(run) else "left out"
            say(f"    {label:<{width}}  {run!r}")


def steps_of(passage: Passage) -> list[Step]:
    """The readings by rule, then the phones of the words, as a model that reads phones gets them."""
    steps = [step._replace(read=readable(step.read)) for step in passage.steps]
    for text in dict.fromkeys(segment.text for segment in passage.segments):
        words = ((text[word.start : word.end], word.characters) for word in phone_words(text, PhoneUse.KNOWN))
        steps += [Step("phones", written, readable(said)) for written, said in words if written.isascii()]
    return list(dict.fromkeys(steps))


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
    return " ".join(([readable(segment.text)] if segment.text else []) + ([f"[{'; '.join(notes)}]"] if notes else []))
